#include <condition_variable>
#include <mutex>
#include <type_traits>

#include "lockstep/comm/store/store.h"
#include "lockstep/comm/store/store_table.h"
#include "lockstep/comm/store/store_timeout.h"

namespace lockstep::comm {
namespace {

// What the clones share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  StoreTable table;
};

class LocalStore final : public Store {
 public:
  explicit LocalStore(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  void set(const std::string& key, const std::string& value) override {
    change([&](StoreTable& table) { table.set(key, value); });
  }

  std::string get(const std::string& key, Duration timeout) override {
    std::unique_lock lock(shared_->mutex);
    wait_for_keys(lock, {key}, timeout);
    return *shared_->table.find(key);
  }

  std::optional<std::string> try_get(const std::string& key) override {
    const std::lock_guard lock(shared_->mutex);
    const std::string* value = shared_->table.find(key);
    return value ? std::optional(*value) : std::nullopt;
  }

  int64_t add(const std::string& key, int64_t amount) override {
    return change([&](StoreTable& table) { return table.add(key, amount); });
  }

  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override {
    return change([&](StoreTable& table) { return table.compare_set(key, expected, desired); });
  }

  void append(const std::string& key, const std::string& value) override {
    change([&](StoreTable& table) { table.append(key, value); });
  }

  void wait(const std::vector<std::string>& keys, Duration timeout) override {
    std::unique_lock lock(shared_->mutex);
    wait_for_keys(lock, keys, timeout);
  }

  bool check(const std::vector<std::string>& keys) override {
    const std::lock_guard lock(shared_->mutex);
    return missing(keys).empty();
  }

  bool remove(const std::string& key) override {
    return change([&](StoreTable& table) { return table.remove(key); });
  }

  std::vector<std::string> keys() override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->table.keys();
  }

  void push(const std::string& queue, const std::string& value) override {
    change([&](StoreTable& table) { table.push(queue, value); });
  }

  std::optional<std::string> pop(const std::string& queue, Duration timeout) override {
    std::unique_lock lock(shared_->mutex);
    std::optional<std::string> value;
    shared_->changed.wait_for(lock, sane_timeout(timeout), [&] {
      value = shared_->table.pop(queue);
      return value.has_value();
    });
    return value;
  }

  int64_t queue_length(const std::string& queue) override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->table.queue_length(queue);
  }

  std::unique_ptr<Store> clone() override { return std::make_unique<LocalStore>(shared_); }

 private:
  template <class Change>
  auto change(Change&& apply) -> std::invoke_result_t<Change, StoreTable&> {
    const std::lock_guard lock(shared_->mutex);
    shared_->changed.notify_all();  // they look when the lock is free
    return apply(shared_->table);
  }

  std::vector<std::string> missing(const std::vector<std::string>& keys) const {
    std::vector<std::string> absent;
    for (const std::string& key : keys) {
      if (!shared_->table.find(key)) absent.push_back(key);
    }
    return absent;
  }

  void wait_for_keys(std::unique_lock<std::mutex>& lock, const std::vector<std::string>& keys,
                     Duration timeout) {
    timeout = sane_timeout(timeout);
    const bool there = shared_->changed.wait_for(lock, timeout, [&] { return missing(keys).empty(); });
    if (!there) throw_store_timeout(missing(keys), timeout);
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace

std::unique_ptr<Store> make_local_store() { return std::make_unique<LocalStore>(std::make_shared<Shared>()); }

}  // namespace lockstep::comm

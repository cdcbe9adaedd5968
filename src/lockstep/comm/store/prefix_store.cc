#include "lockstep/comm/store/store.h"

namespace lockstep::comm {
namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::unique_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}

  void set(const std::string& key, const std::string& value) override { store_->set(below(key), value); }
  std::string get(const std::string& key, Duration timeout) override {
    return store_->get(below(key), timeout);
  }
  std::optional<std::string> try_get(const std::string& key) override { return store_->try_get(below(key)); }
  int64_t add(const std::string& key, int64_t amount) override { return store_->add(below(key), amount); }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override {
    return store_->compare_set(below(key), expected, desired);
  }
  void append(const std::string& key, const std::string& value) override {
    store_->append(below(key), value);
  }
  void wait(const std::vector<std::string>& keys, Duration timeout) override {
    store_->wait(below(keys), timeout);
  }
  bool check(const std::vector<std::string>& keys) override { return store_->check(below(keys)); }
  bool remove(const std::string& key) override { return store_->remove(below(key)); }

  std::vector<std::string> keys() override {
    std::vector<std::string> mine;
    for (const std::string& key : store_->keys()) {
      if (key.starts_with(prefix_)) mine.push_back(key.substr(prefix_.size()));
    }
    return mine;
  }

  void push(const std::string& queue, const std::string& value) override {
    store_->push(below(queue), value);
  }
  std::optional<std::string> pop(const std::string& queue, Duration timeout) override {
    return store_->pop(below(queue), timeout);
  }
  int64_t queue_length(const std::string& queue) override { return store_->queue_length(below(queue)); }
  std::unique_ptr<Store> clone() override { return std::make_unique<PrefixStore>(store_->clone(), prefix_); }

 private:
  std::string below(const std::string& key) const { return prefix_ + key; }
  std::vector<std::string> below(std::vector<std::string> keys) const {
    for (std::string& key : keys) key.insert(0, prefix_);
    return keys;
  }

  std::unique_ptr<Store> store_;
  std::string prefix_;  // with its slash
};

}  // namespace

std::unique_ptr<Store> with_prefix(std::unique_ptr<Store> store, std::string prefix) {
  return std::make_unique<PrefixStore>(std::move(store), std::move(prefix) + "/");
}

}  // namespace lockstep::comm

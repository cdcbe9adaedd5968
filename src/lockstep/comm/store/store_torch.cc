#include "lockstep/comm/store/store_torch.h"

#include <c10/util/Exception.h>

#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/comm/store/store_timeout.h"

namespace lockstep::comm {
namespace {

using Bytes = std::vector<uint8_t>;

std::string text_of(const Bytes& bytes) { return std::string(bytes.begin(), bytes.end()); }
Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

class TorchStore final : public c10d::Store {
 public:
  using Milliseconds = std::chrono::milliseconds;
  TorchStore(std::unique_ptr<comm::Store> store, Milliseconds timeout)
      : c10d::Store(timeout), store_(std::move(store)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    // Without the lock, which a wait of another thread may hold for long.
    return translated([&] { return c10::make_intrusive<TorchStore>(store_->clone(), timeout_); });
  }

  using c10d::Store::set;
  void set(const std::string& key, const Bytes& value) override {
    call([&] { store_->set(key, text_of(value)); });
  }

  using c10d::Store::compareSet;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return call([&] { return bytes_of(store_->compare_set(key, text_of(expected), text_of(desired))); });
  }

  Bytes get(const std::string& key) override {
    return call([&] { return bytes_of(store_->get(key, patience(timeout_))); });
  }

  int64_t add(const std::string& key, int64_t amount) override {
    return call([&] { return store_->add(key, amount); });
  }

  bool deleteKey(const std::string& key) override {
    return call([&] { return store_->remove(key); });
  }

  bool check(const std::vector<std::string>& keys) override {
    return call([&] { return store_->check(keys); });
  }

  int64_t getNumKeys() override {
    return call([&] { return static_cast<int64_t>(store_->keys().size()); });
  }

  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const Milliseconds& timeout) override {
    call([&] { store_->wait(keys, patience(timeout)); });
  }

  const Milliseconds& getTimeout() const noexcept override { return timeout_; }
  void setTimeout(const Milliseconds& timeout) override { timeout_ = timeout; }

  void append(const std::string& key, const Bytes& value) override {
    call([&] { store_->append(key, text_of(value)); });
  }

  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    std::vector<Bytes> values;
    for (const std::string& key : keys) values.push_back(get(key));
    return values;
  }

  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override {
    TORCH_CHECK_VALUE(keys.size() == values.size(), "multiSet: ", keys.size(), " keys, but ", values.size(),
                      " values");
    for (size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
  }

  bool hasExtendedApi() const override { return true; }

  void queuePush(const std::string& key, const Bytes& value) override {
    call([&] { store_->push(key, text_of(value)); });
  }

  Bytes queuePop(const std::string& key, bool block) override {
    const Duration timeout = block ? patience(timeout_) : Duration::zero();
    std::optional<std::string> value = call([&] { return store_->pop(key, timeout); });
    if (value) return bytes_of(*value);
    if (block)
      C10_THROW_ERROR(DistStoreError,
                      "wait timeout after " + std::to_string(timeout.count()) + " ms, queue: " + key);
    C10_THROW_ERROR(DistQueueEmptyError, "queue is empty");
  }

  int64_t queueLen(const std::string& key) override {
    return call([&] { return store_->queue_length(key); });
  }

  std::vector<std::string> listKeys() override {
    return call([&] { return store_->keys(); });
  }

 private:
  static Duration patience(Milliseconds timeout) { return timeout == kNoTimeout ? kLongestTimeout : timeout; }

  template <class Call>
  auto call(Call&& run) -> decltype(run()) {
    const std::lock_guard lock(mutex_);
    return translated(run);
  }

  // With c10d's errors in the place of ours.
  template <class Call>
  static auto translated(Call&& run) -> decltype(run()) {
    try {
      return run();
    } catch (const comm::StoreTimeoutError& error) {
      C10_THROW_ERROR(DistStoreError, std::string(error.what()));
    } catch (const base::CommError& error) {
      C10_THROW_ERROR(DistNetworkError, std::string(error.what()));
    }
  }

  std::mutex mutex_;
  std::unique_ptr<comm::Store> store_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> as_c10d(std::unique_ptr<Store> store) {
  return c10::make_intrusive<TorchStore>(std::move(store), c10d::Store::kDefaultTimeout);
}

}  // namespace lockstep::comm

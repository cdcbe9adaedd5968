// A store that tries again.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/store/store.h"

namespace lockstep::store {
namespace {

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class PatientStore final : public Store {
 public:
  PatientStore(std::unique_ptr<Store> store, Uri uri, Patience patience)
      : store_(std::move(store)), uri_(std::move(uri)), patience_(std::move(patience)) {}

  std::vector<Object> list(const std::string& folder) override {
    return patiently(folder, "listed", [&] { return store_->list(folder); });
  }
  std::optional<Object> find(const std::string& key) override {
    return patiently(key, "looked up", [&] { return store_->find(key); });
  }
  void read(const Object& object, int64_t offset, std::span<std::byte> out) override {
    patiently(object.key, "read", [&] { store_->read(object, offset, out); });
  }
  void write(const std::string& key, const std::string& file) override {
    patiently(key, "written", [&] { store_->write(key, file); });
  }
  void remove(const std::string& key) override {
    patiently(key, "removed", [&] { store_->remove(key); });
  }

 private:
  template <class Work>
  std::invoke_result_t<const Work&> patiently(const std::string& key, const char* done, const Work& work) {
    const double begun = now();
    double wait = patience_.first_pause;
    for (int attempt = 1;; ++attempt) {
      try {
        return with_faults(work);
      } catch (const Fault& fault) {
        const double passed = now() - begun;
        if (fault.kind != Fault::Kind::passing || passed + wait > patience_.seconds)
          give_up(key, done, fault, attempt, passed);
      }
      pause(wait);
      wait = std::min(2 * wait, patience_.longest_pause);
    }
  }

  // Client libraries throw things of their own at an answer that they cannot read, such as a proxy's page.
  template <class Work>
  static auto with_faults(const Work& work) -> decltype(work()) {
    try {
      return work();
    } catch (const std::runtime_error& error) {
      if (dynamic_cast<const Fault*>(&error) != nullptr ||
          dynamic_cast<const base::Error*>(&error) != nullptr)
        throw;
      throw Fault(Fault::Kind::passing, error.what());
    } catch (const std::out_of_range& error) {  // a header that is missing
      throw Fault(Fault::Kind::passing, error.what());
    }
  }

  [[noreturn]] void give_up(const std::string& key, const char* done, const Fault& fault, int attempts,
                            double seconds) const {
    const std::string where = uri_.shown(key);
    const std::string why(base::trimmed(fault.what()));
    switch (fault.kind) {
      case Fault::Kind::missing:
        throw base::DataError(
            288,
            fmt::format("{} cannot be {}: {}; check the bucket's and the object's name", where, done, why));
      case Fault::Kind::denied:
        throw base::ConfigError(
            289, fmt::format("{} cannot be {}: {}; check the credentials in the environment and what they "
                             "allow (docs/stores.md)",
                             where, done, why));
      case Fault::Kind::local:
        throw base::IoError(292, fmt::format("{} cannot be {}: {}", where, done, why));
      default:
        throw base::IoError(290, fmt::format("{} cannot be {}: {} (attempt {}, {} in all); the store is busy "
                                             "or cannot be reached: run the same command again",
                                             where, done, why, attempts, base::human_duration(seconds)));
    }
  }

  double now() const { return patience_.clock ? patience_.clock() : monotonic_seconds(); }
  void pause(double seconds) const {
    if (patience_.pause) return patience_.pause(seconds);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  std::unique_ptr<Store> store_;
  const Uri uri_;
  const Patience patience_;
};

}  // namespace

std::unique_ptr<Store> with_patience(std::unique_ptr<Store> store, Uri uri, Patience patience) {
  return std::make_unique<PatientStore>(std::move(store), std::move(uri), std::move(patience));
}

}  // namespace lockstep::store

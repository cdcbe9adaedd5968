// A store for tests whose ranks are forked processes: a key is a file in a folder.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm::testing {

// Only what engines use at meeting; the rest is a bug of the test.
class FolderStore final : public Store {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}

  void set(const std::string& key, const std::string& value) override {
    const std::string draft = path_of(key) + "." + std::to_string(::getpid());
    std::ofstream(draft, std::ios::binary) << value;
    std::filesystem::rename(draft, path_of(key));  // seen whole or not at all
  }
  std::optional<std::string> try_get(const std::string& key) override {
    std::ifstream file(path_of(key), std::ios::binary);
    if (!file) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::string get(const std::string& key, Duration timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      if (auto value = try_get(key)) return *value;
      if (std::chrono::steady_clock::now() >= end) throw base::CommError(510, "nobody set " + key);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  bool remove(const std::string& key) override { return std::filesystem::remove(path_of(key)); }
  bool check(const std::vector<std::string>& keys) override {
    return std::all_of(keys.begin(), keys.end(),
                       [&](const std::string& key) { return try_get(key).has_value(); });
  }
  void wait(const std::vector<std::string>& keys, Duration timeout) override {
    for (const std::string& key : keys) get(key, timeout);
  }
  std::unique_ptr<Store> clone() override { return std::make_unique<FolderStore>(folder_); }

  int64_t add(const std::string&, int64_t) override { return unused(), 0; }
  std::string compare_set(const std::string&, const std::string&, const std::string&) override {
    return unused(), "";
  }
  void append(const std::string&, const std::string&) override { unused(); }
  std::vector<std::string> keys() override { return unused(), std::vector<std::string>{}; }
  void push(const std::string&, const std::string&) override { unused(); }
  std::optional<std::string> pop(const std::string&, Duration) override { return unused(), std::nullopt; }
  int64_t queue_length(const std::string&) override { return unused(), 0; }

 private:
  static void unused() { LS_ASSERT(false, "this store of tests cannot do that"); }
  std::string path_of(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '~');
    return folder_ + "/" + key;
  }
  std::string folder_;
};

}  // namespace lockstep::comm::testing

// A store in memory for tests, which can be made to fail.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "lockstep/store/store.h"

namespace lockstep::store {

struct FakeState {
  std::mutex mutex = {};
  std::map<std::string, std::string> objects = {};
  std::map<std::string, int64_t> changed = {};
  std::deque<Fault> faults = {};        // thrown by the next requests, one each,
  size_t good = 0;                      // after so many that go well
  std::vector<std::string> asked = {};  // "read bucket/a 0 4"
  int64_t now = 1000;                   // seconds since 1970, of what is written next

  void put(const std::string& key, const std::string& bytes) {
    objects[key] = bytes;
    changed[key] = now;
  }
};

class FakeStore final : public Store {
 public:
  explicit FakeStore(FakeState& state) : state_(state) {}

  std::vector<Object> list(const std::string& folder) override {
    const std::lock_guard lock(state_.mutex);
    note("list " + folder);
    std::vector<Object> found;
    for (const auto& [key, bytes] : state_.objects) {
      if (key.starts_with(folder + "/")) found.push_back(object(key));
    }
    return found;
  }
  std::optional<Object> find(const std::string& key) override {
    const std::lock_guard lock(state_.mutex);
    note("find " + key);
    if (!state_.objects.contains(key)) return std::nullopt;
    Object found = object(key);
    found.version = std::to_string(std::hash<std::string>()(state_.objects[key]));
    return found;
  }
  void read(const Object& wanted, int64_t offset, std::span<std::byte> out) override {
    const std::lock_guard lock(state_.mutex);
    note("read " + wanted.key);
    if (!state_.objects.contains(wanted.key)) throw Fault(Fault::Kind::missing, "NoSuchKey");
    const std::string& bytes = state_.objects[wanted.key];
    if (offset + static_cast<int64_t>(out.size()) > static_cast<int64_t>(bytes.size()))
      throw Fault(Fault::Kind::passing, "too few bytes came");
    std::transform(bytes.begin() + offset, bytes.begin() + offset + static_cast<int64_t>(out.size()),
                   out.begin(), [](char c) { return static_cast<std::byte>(c); });
  }
  void write(const std::string& key, const std::string& file) override {
    const std::lock_guard lock(state_.mutex);
    note("write " + key);
    std::ifstream in(file, std::ios::binary);
    if (!in) throw Fault(Fault::Kind::local, file + " is gone");
    state_.put(key, std::string(std::istreambuf_iterator<char>(in), {}));
  }
  void remove(const std::string& key) override {
    const std::lock_guard lock(state_.mutex);
    note("remove " + key);
    state_.objects.erase(key);
  }

 private:
  Object object(const std::string& key) const {
    return {.key = key,
            .size = static_cast<int64_t>(state_.objects.at(key).size()),
            .changed_ns = state_.changed.at(key) * 1'000'000'000};
  }
  void note(const std::string& what) {
    state_.asked.push_back(what);
    if (state_.faults.empty() || (state_.good > 0 && state_.good-- > 0)) return;
    const Fault fault = state_.faults.front();
    state_.faults.pop_front();
    throw fault;
  }
  FakeState& state_;
};

}  // namespace lockstep::store

// What a store holds: keys with values, and queues. Both LocalStore and the server answer from one, so that
// what a call means stands in one place. It never waits and knows no threads; its owner does both.
//
// Refused with CommError 516, changing nothing: a key or value beyond the limits, a full table, add() on a
// value that is not a number.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::comm {

constexpr int64_t kMostKeyBytes = 8192;

struct StoreLimits {
  int64_t most_value_bytes = int64_t{1} << 30;
  int64_t most_bytes = int64_t{1} << 40;  // of everything together
};

class StoreTable {
 public:
  explicit StoreTable(StoreLimits limits = {}) : limits_(limits) {}

  void set(const std::string& key, const std::string& value);
  const std::string* find(const std::string& key) const;  // null if absent; holds until the next change
  int64_t add(const std::string& key, int64_t amount);
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  void append(const std::string& key, const std::string& value);
  bool remove(const std::string& key);
  std::vector<std::string> keys() const;  // sorted

  void push(const std::string& queue, const std::string& value);
  std::optional<std::string> pop(const std::string& queue);
  int64_t queue_length(const std::string& queue) const;

  int64_t bytes() const { return bytes_; }

 private:
  void make_room(const std::string& key, int64_t value_bytes, int64_t more) const;

  StoreLimits limits_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;
  int64_t bytes_ = 0;
};

}  // namespace lockstep::comm

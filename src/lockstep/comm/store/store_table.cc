#include "lockstep/comm/store/store_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::comm {
namespace {

// What an entry costs beyond its bytes; counted, or empty values would fill memory for free.
constexpr int64_t kEntryBytes = 128;

int64_t length(const std::string& text) { return static_cast<int64_t>(text.size()); }

[[noreturn]] void refuse(const std::string& key, const std::string& why) {
  throw base::CommError(516, fmt::format("the store rejects key {}: {}", base::quoted(key), why));
}

int64_t parse_counter(const std::string& key, const std::string& text) {
  const std::optional<int64_t> value = base::parse_number(text);
  if (!value) {
    refuse(key,
           fmt::format("its value {} is not a number, so it cannot be incremented", base::quoted(text, 20)));
  }
  return *value;
}

}  // namespace

// `more` bytes are about to be added, and the value of `key` will then have `value_bytes`.
void StoreTable::make_room(const std::string& key, int64_t value_bytes, int64_t more) const {
  if (length(key) > kMostKeyBytes) {
    refuse(key, fmt::format("it has {} bytes, but at most {} are allowed", length(key), kMostKeyBytes));
  }
  if (value_bytes > limits_.most_value_bytes) {
    refuse(key, fmt::format("a value of {} bytes exceeds {}", value_bytes, limits_.most_value_bytes));
  }
  if (bytes_ + more > limits_.most_bytes) {
    refuse(key,
           fmt::format("the store is full ({})", base::human_bytes(static_cast<double>(limits_.most_bytes))));
  }
}

void StoreTable::set(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  const bool fresh = found == values_.end();
  const int64_t more = length(value) + (fresh ? length(key) + kEntryBytes : -length(found->second));
  make_room(key, length(value), more);
  values_[key] = value;
  bytes_ += more;
}

const std::string* StoreTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

int64_t StoreTable::add(const std::string& key, int64_t amount) {
  const std::string* now = find(key);
  int64_t sum = 0;
  if (__builtin_add_overflow(now ? parse_counter(key, *now) : 0, amount, &sum)) {
    refuse(key, fmt::format("{} + {} overflows 64 bits", *now, amount));
  }
  set(key, fmt::format("{}", sum));
  return sum;
}

std::string StoreTable::compare_set(const std::string& key, const std::string& expected,
                                    const std::string& desired) {
  const std::string* now = find(key);
  if (now ? *now != expected : !expected.empty()) return now ? *now : expected;
  set(key, desired);
  return desired;
}

void StoreTable::append(const std::string& key, const std::string& value) {
  const auto found = values_.find(key);
  if (found == values_.end()) return set(key, value);
  make_room(key, length(found->second) + length(value), length(value));
  found->second += value;
  bytes_ += length(value);
}

bool StoreTable::remove(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= length(key) + length(found->second) + kEntryBytes;
  values_.erase(found);
  return true;
}

std::vector<std::string> StoreTable::keys() const {
  std::vector<std::string> names;
  names.reserve(values_.size());
  for (const auto& [key, value] : values_) names.push_back(key);
  std::sort(names.begin(), names.end());
  return names;
}

void StoreTable::push(const std::string& queue, const std::string& value) {
  // The queue's name is counted with every entry: a little too much, and never too little.
  const int64_t more = length(queue) + length(value) + kEntryBytes;
  make_room(queue, length(value), more);
  queues_[queue].push_back(value);
  bytes_ += more;
}

std::optional<std::string> StoreTable::pop(const std::string& queue) {
  const auto found = queues_.find(queue);
  if (found == queues_.end()) return std::nullopt;
  std::string value = std::move(found->second.front());
  found->second.pop_front();
  bytes_ -= length(queue) + length(value) + kEntryBytes;
  if (found->second.empty()) queues_.erase(found);
  return value;
}

int64_t StoreTable::queue_length(const std::string& queue) const {
  const auto found = queues_.find(queue);
  return found == queues_.end() ? 0 : static_cast<int64_t>(found->second.size());
}

}  // namespace lockstep::comm

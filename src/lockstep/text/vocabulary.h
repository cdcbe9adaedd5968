// Tokens by their ids and ids by their tokens.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::text {

class Vocabulary {
 public:
  // Ids may come in any order and leave holes. A token that is there already gets the new id; its old one
  // still reads as it did.
  void add(std::string token, int32_t id);

  std::optional<int32_t> find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  int32_t id(std::string_view token) const { return find(token).value_or(-1); }
  const std::string* token(int64_t id) const {  // null: a hole
    return id < 0 || id >= size() ? nullptr : tokens_[static_cast<size_t>(id)];
  }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // the largest id + 1
  size_t count() const { return ids_.size(); }
  uint64_t hash() const;

 private:
  std::deque<std::string> store_;  // never moves
  std::vector<const std::string*> tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

// Ids of this many at most: more are a mistake, and would cost memory.
constexpr int64_t kMostTokens = int64_t{1} << 24;

}  // namespace lockstep::text

#include "lockstep/text/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

const uint32_t* child(const std::vector<std::pair<unsigned char, uint32_t>>& next, unsigned char byte) {
  for (const auto& [key, node] : next) {
    if (key == byte) return &node;
  }
  return nullptr;
}

bool has(const char* at, uint32_t bit) { return (Unicode::table().bits(next_char(at)) & bit) != 0; }

size_t space_before(std::string_view text, size_t at) {
  while (at > 0) {
    const char* before = char_before(text.data() + at);
    if (!has(before, kSpace)) break;
    at = static_cast<size_t>(before - text.data());
  }
  return at;
}
size_t space_behind(std::string_view text, size_t at) {
  while (at < text.size() && has(text.data() + at, kSpace))
    at += static_cast<size_t>(length_of_char(text[at]));
  return at;
}

}  // namespace

void TokenFinder::add(std::string_view written, const AddedToken& token) {
  if (written.empty()) return;
  uint32_t node = 0;
  for (const char byte : written) {
    const auto key = static_cast<unsigned char>(byte);
    if (const uint32_t* known = child(nodes_[node].next, key)) {
      node = *known;
      continue;
    }
    const auto fresh = static_cast<uint32_t>(nodes_.size());
    nodes_[node].next.emplace_back(key, fresh);
    nodes_.emplace_back();
    node = fresh;
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  const auto first = static_cast<unsigned char>(written[0]);
  first_bytes_[first] = true;
  only_first_ = only_first_ == -1 || only_first_ == first ? first : -2;
}

// The leftmost, and there the longest.
bool TokenFinder::find(std::string_view text, size_t from, Match& match) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (only_first_ >= 0) {
      const void* found = std::memchr(text.data() + begin, only_first_, text.size() - begin);
      if (found == nullptr) return false;
      begin = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    } else if (!first_bytes_[static_cast<unsigned char>(text[begin])]) {
      continue;
    }
    match.token = -1;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const uint32_t* next = child(nodes_[node].next, static_cast<unsigned char>(text[at]));
      if (next == nullptr) break;
      node = *next;
      if (nodes_[node].token >= 0) match = {begin, at + 1, nodes_[node].token};
    }
    if (match.token >= 0) return true;
  }
  return false;
}

bool TokenFinder::between_words(std::string_view text, const Match& match) const {
  if (match.begin > 0 && has(char_before(text.data() + match.begin), kRustWord)) return false;
  return match.end == text.size() || !has(text.data() + match.end, kRustWord);
}

void TokenFinder::split(std::string_view text, bool specials, std::vector<Section>& out) const {
  size_t done = 0;
  Match match{};
  for (size_t at = 0; !tokens_.empty() && find(text, at, match);) {
    at = match.end;  // a token that does not count hides what begins inside it
    const AddedToken& token = tokens_[static_cast<size_t>(match.token)];
    if (token.special && !specials) continue;
    if (token.single_word && !between_words(text, match)) continue;
    size_t begin = match.begin, end = match.end;
    if (token.lstrip) begin = std::max(space_before(text, begin), done);
    if (token.rstrip) end = space_behind(text, end);
    if (begin >= end) continue;  // of nothing but space, which the token before it has taken
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

}  // namespace lockstep::text

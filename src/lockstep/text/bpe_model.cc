#include "lockstep/text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/hash.h"
#include "lockstep/text/byte_level.h"
#include "lockstep/text/utf8.h"

namespace lockstep::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // ▁

// No token has ▁ behind another character: what stands before a ▁ never joins it.
bool words_are_apart(const Vocabulary& vocabulary) {
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    const std::string* token = vocabulary.token(id);
    if (token == nullptr) continue;
    for (size_t at = token->find(kSpaceMark, 1); at != std::string::npos;
         at = token->find(kSpaceMark, at + 1)) {
      if (at < 3 || token->compare(at - 3, 3, kSpaceMark) != 0) return false;
    }
  }
  return true;
}

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, PairTable pairs, BpeOptions options)
    : Model(std::move(vocabulary)), pairs_(std::move(pairs)), options_(std::move(options)) {
  plain_ = options_.continuing_prefix.empty() && options_.end_suffix.empty();
  knows_all_bytes_ = plain_;
  for (int byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = vocabulary_.id(fmt::format("<0x{:02X}>", byte));
    letter_tokens_[byte] = vocabulary_.id(letter_of_byte(static_cast<unsigned char>(byte)));
    knows_all_bytes_ = knows_all_bytes_ && letter_tokens_[byte] >= 0;
  }
  std::string bytes;
  for (int64_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string* token = vocabulary_.token(id);
    if (token == nullptr || token->empty() || vocabulary_.id(*token) != id) continue;
    const char* at = token->data();
    if (whole_prefix(*token) == token->size() && static_cast<size_t>(length_of_char(*at)) == token->size()) {
      const uint32_t code = next_char(at);
      if (code >= char_tokens_.size()) char_tokens_.resize(code + 1, -1);
      char_tokens_[code] = static_cast<int32_t>(id);
    }
    if (options_.whole_first && knows_all_bytes_ && letters_to_bytes(*token, bytes))
      whole_.emplace(bytes, static_cast<int32_t>(id));
  }
  parts_ = plain_ && !options_.whole_first && vocabulary_.id(kSpaceMark) >= 0 && words_are_apart(vocabulary_);
}

int32_t BpeModel::char_token(std::string_view letter, bool first, bool last) const {
  if (plain_) {
    const char* at = letter.data();
    const uint32_t code = next_char(at);
    return code < char_tokens_.size() ? char_tokens_[code] : -1;
  }
  std::string written = first ? "" : options_.continuing_prefix;
  written += letter;
  if (last) written += options_.end_suffix;
  return vocabulary_.id(written);
}

bool BpeModel::add_bytes(std::string_view letter, std::vector<int32_t>& symbols) const {
  const auto token = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(letter.begin(), letter.end(), [&](char byte) { return token(byte) < 0; })) return false;
  for (const char byte : letter) symbols.push_back(token(byte));
  return true;
}

// Unknown characters wait, so that neighbours can be fused; as in `tokenizers`, bytes that come meanwhile go
// first.
void BpeModel::to_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  bool waiting = false;
  const auto flush = [&] {
    if (waiting) symbols.push_back(*options_.unknown);
    waiting = false;
  };
  for (size_t at = 0; at < piece.size();) {
    const auto size = static_cast<size_t>(length_of_char(piece[at]));
    const std::string_view letter = piece.substr(at, size);
    const bool first = at == 0, last = (at += size) >= piece.size();
    if (const int32_t token = char_token(letter, first, last); token >= 0) {
      flush();
      symbols.push_back(token);
      continue;
    }
    if (options_.byte_fallback) {
      std::string written = first ? "" : options_.continuing_prefix;
      written += letter;
      if (last) written += options_.end_suffix;
      if (add_bytes(written, symbols)) continue;
    }
    if (!options_.unknown) continue;
    if (!options_.fuse_unknown) flush();
    waiting = true;
  }
  flush();
}

void BpeModel::encode(std::string_view piece, size_t readable, Workspace& space,
                      std::vector<int32_t>& out) const {
  if (parts_) return encode_parts(piece, readable, space, out);
  if (space.cache.find(piece, readable, out)) return;
  std::vector<int32_t>& tokens = space.tokens;
  tokens.clear();
  if (const auto whole = options_.whole_first ? vocabulary_.find(piece) : std::nullopt) {
    tokens.push_back(*whole);
  } else {
    to_symbols(piece, tokens);
    merge_pairs(pairs_, tokens, space.merge);
  }
  space.cache.keep(piece, tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
}

// A sentence that was not cut before: words that begin with ▁ are joined apart, and remembered. Not where
// unknown characters would be fused over their border: ▁ is known, so there is none.
void BpeModel::encode_parts(std::string_view piece, size_t readable, Workspace& space,
                            std::vector<int32_t>& out) const {
  for (size_t at = 0; at < piece.size();) {
    size_t end = at;
    while (piece.compare(end, kSpaceMark.size(), kSpaceMark) == 0) end += kSpaceMark.size();
    end = std::min(piece.find(kSpaceMark, end), piece.size());
    const std::string_view part = piece.substr(at, end - at);
    if (!space.cache.find(part, readable - at, out)) {
      std::vector<int32_t>& tokens = space.tokens;
      tokens.clear();
      to_symbols(part, tokens);
      merge_pairs(pairs_, tokens, space.merge);
      space.cache.keep(part, tokens);
      out.insert(out.end(), tokens.begin(), tokens.end());
    }
    at = end;
  }
}

void BpeModel::encode_bytes(std::string_view piece, size_t readable, Workspace& space,
                            std::vector<int32_t>& out) const {
  if (space.cache.find(piece, readable, out)) return;
  std::vector<int32_t>& tokens = space.tokens;
  tokens.clear();
  const auto whole = options_.whole_first ? whole_.find(std::string(piece)) : whole_.end();
  if (whole != whole_.end()) {
    tokens.push_back(whole->second);
  } else {
    for (const char byte : piece) tokens.push_back(letter_tokens_[static_cast<unsigned char>(byte)]);
    merge_pairs(pairs_, tokens, space.merge);
  }
  space.cache.keep(piece, tokens);
  out.insert(out.end(), tokens.begin(), tokens.end());
}

uint64_t BpeModel::hash() const {
  uint64_t hash = base::hash_text(options_.continuing_prefix + "|" + options_.end_suffix);
  hash = base::hash_combine(hash,
                            options_.fuse_unknown | options_.byte_fallback << 1 | options_.whole_first << 2);
  hash = base::hash_combine(hash, static_cast<uint64_t>(options_.unknown.value_or(-1)));
  return base::hash_combine(hash, pairs_.hash());
}

}  // namespace lockstep::text

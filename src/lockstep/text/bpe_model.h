// The model BPE: characters, or the bytes behind GPT-2's alphabet, joined by a table of pairs.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/text/model.h"

namespace lockstep::text {

struct BpeOptions {
  std::optional<int32_t>
      unknown;                 // token of characters that there are none for; without one they are left out
  bool fuse_unknown = false;   // neighbours are one
  bool byte_fallback = false;  // their bytes, <0xE2>, where there are tokens for them
  bool whole_first = false;    // a piece that is a token is that token, whatever joins (ignore_merges)
  std::string continuing_prefix = {};  // of characters that do not begin a piece: "##"
  std::string end_suffix = {};         // of the one that ends it: "</w>"
};

class BpeModel final : public Model {
 public:
  BpeModel(Vocabulary vocabulary, PairTable pairs, BpeOptions options);

  void encode(std::string_view piece, size_t readable, Workspace& space,
              std::vector<int32_t>& out) const override;
  // The piece is raw bytes, and the vocabulary written in GPT-2's alphabet.
  void encode_bytes(std::string_view piece, size_t readable, Workspace& space,
                    std::vector<int32_t>& out) const;
  bool knows_all_bytes() const { return knows_all_bytes_; }
  uint64_t hash() const override;
  std::string name() const override { return "BPE"; }

 private:
  void to_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  int32_t char_token(std::string_view letter, bool first, bool last) const;
  bool add_bytes(std::string_view letter, std::vector<int32_t>& symbols) const;
  void encode_parts(std::string_view piece, size_t readable, Workspace& space,
                    std::vector<int32_t>& out) const;

  PairTable pairs_;
  BpeOptions options_;
  bool plain_ = true;                 // neither prefix nor suffix
  bool parts_ = false;                // no token has a ▁ behind another character: words are apart
  int32_t byte_tokens_[256];          // of <0x00> and so on, -1: none
  int32_t letter_tokens_[256];        // of the letters that stand for bytes
  std::vector<int32_t> char_tokens_;  // by character, -1: none
  bool knows_all_bytes_ = false;
  std::unordered_map<std::string, int32_t> whole_;  // raw bytes of tokens, for whole_first
};

}  // namespace lockstep::text

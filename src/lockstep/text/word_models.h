// Models that look words up: WordPiece, which takes the longest beginning of what is left, and a plain list
// of words.
#pragma once

#include <optional>
#include <string>

#include "lockstep/text/model.h"

namespace lockstep::text {

class WordPieceModel final : public Model {
 public:
  WordPieceModel(Vocabulary vocabulary, int32_t unknown, std::string prefix, int64_t most_chars);
  void encode(std::string_view piece, size_t readable, Workspace& space,
              std::vector<int32_t>& out) const override;
  uint64_t hash() const override;
  std::string name() const override { return "WordPiece"; }

 private:
  bool cut(std::string_view piece, std::vector<int32_t>& tokens) const;
  int32_t unknown_;
  std::string prefix_;  // of pieces inside a word: "##"
  int64_t most_chars_;  // longer words are unknown
  size_t longest_ = 0;  // bytes of the longest token
};

class WordLevelModel final : public Model {
 public:
  WordLevelModel(Vocabulary vocabulary, std::optional<int32_t> unknown)
      : Model(std::move(vocabulary)), unknown_(unknown) {}
  // A word that is not in the list and has no unknown token to be is DataError 245.
  void encode(std::string_view piece, size_t readable, Workspace& space,
              std::vector<int32_t>& out) const override;
  uint64_t hash() const override { return static_cast<uint64_t>(unknown_.value_or(-1)); }
  std::string name() const override { return "WordLevel"; }

 private:
  std::optional<int32_t> unknown_;
};

}  // namespace lockstep::text

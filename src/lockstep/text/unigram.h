// The model Unigram: of all ways to cut a piece into tokens, the one whose scores add up to most.
//
// Sums are kept as the library keeps them that the file belongs to (double in `tokenizers`, float in
// SentencePiece, which takes them off again where they have become large), token by token from the left: ties
// and roundings are part of the answer.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/text/model.h"

namespace lockstep::text {

enum class Precision : unsigned char { single_, double_ };

struct UnigramOptions {
  std::vector<double> scores;      // by id
  std::vector<bool> usable = {};   // ids that may be taken; empty: all
  std::optional<int32_t> unknown;  // without one, a character that there is no token for is DataError 245
  bool byte_fallback = false;
  double least_score = 0;  // of all tokens
  Precision precision = Precision::double_;
};

class UnigramModel final : public Model {
 public:
  UnigramModel(Vocabulary vocabulary, UnigramOptions options);
  void encode(std::string_view piece, size_t readable, Workspace& space,
              std::vector<int32_t>& out) const override;
  uint64_t hash() const override;
  std::string name() const override { return "Unigram"; }

 private:
  struct Node {
    uint32_t first = 0, count = 0;  // of edges_
    int32_t token = -1;
  };
  struct Edge {
    unsigned char byte;
    uint32_t node;
  };
  struct Best {
    double score = 0;
    uint32_t from = UINT32_MAX;
    int32_t token = -1;
  };
  void build_trie();
  template <class Real>
  void walk(std::string_view piece, std::vector<Best>& best) const;
  void emit_unknown(std::string_view text, std::vector<int32_t>& out) const;

  UnigramOptions options_;
  int32_t byte_tokens_[256];
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
};

}  // namespace lockstep::text

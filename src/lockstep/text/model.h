// A model turns a piece of text into tokens: BPE, Unigram, WordPiece, a list of words.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/text/bpe.h"
#include "lockstep/text/piece_cache.h"
#include "lockstep/text/vocabulary.h"

namespace lockstep::text {

// One thread's memory.
struct Workspace {
  PieceCache cache;
  MergeSpace merge;
  std::vector<int32_t> tokens;
};

class Model {
 public:
  virtual ~Model() = default;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Appends the tokens of a piece. `readable`: bytes that may be read from piece.data() on, at least its
  // size.
  virtual void encode(std::string_view piece, size_t readable, Workspace& space,
                      std::vector<int32_t>& out) const = 0;
  virtual uint64_t hash() const = 0;  // of what the vocabulary does not say
  virtual std::string name() const = 0;

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  Vocabulary vocabulary_;
};

}  // namespace lockstep::text

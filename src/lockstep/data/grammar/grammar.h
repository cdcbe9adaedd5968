// The built-in grammar as an endless dataset with a known floor: nothing to download, and a loss that
// can be held against the truth.
//
// Every sample starts where a sentence starts: its first input is the ".", that ends the sentence
// before, and its labels are sentence after sentence, cut at seq_len. A model therefore sees all that
// decides the next word, and entropy_floor() is the exact expectation of -log p over these labels.
// Sample i is a function of (seed, split, i) alone.
#pragma once

#include "lockstep/data/dataset.h"
#include "lockstep/data/grammar/sentence_automaton.h"

namespace lockstep::data {

class Grammar final : public Dataset {
 public:
  static constexpr int64_t kTrainSamples = int64_t{1} << 20;
  static constexpr int64_t kEvalSamples = int64_t{1} << 16;

  Grammar(uint64_t seed, int64_t seq_len);

  int64_t vocab() const override { return static_cast<int64_t>(automaton_.words().size()); }
  int64_t samples(Split split) const override { return split == Split::train ? kTrainSamples : kEvalSamples; }
  void read(Split split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override;
  std::optional<double> entropy_floor() const override { return floor_; }
  std::string describe() const override;
  uint64_t content_hash() const override;
  std::vector<int32_t> start() const override { return {end_}; }
  // "a dog sleeps. (Anna sees herself)."; a token that is no word is written as <140>.
  std::string decode(std::span<const int32_t> tokens) const override;
  // The inverse; where spaces stand around punctuation does not matter.
  std::vector<int32_t> encode(const std::string& text) const override;

  struct Judgement {
    int64_t sentences = 0;  // complete ones
    int64_t accepted = 0;
  };
  Judgement judge(std::span<const int32_t> tokens) const;
  std::optional<double> acceptance(std::span<const int32_t> tokens) const override;

  const SentenceAutomaton& automaton() const { return automaton_; }

 private:
  int32_t word_id(const std::string& word) const;  // -1: not a word of the grammar

  uint64_t seed_;
  SentenceAutomaton automaton_;
  int32_t end_;  // the word "."
  double floor_;
};

}  // namespace lockstep::data

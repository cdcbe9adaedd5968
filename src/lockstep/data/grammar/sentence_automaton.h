// A weighted grammar of finite depth, turned into an automaton that says and judges sentences.
//
// A state is what is left to be said: the stack of a leftmost derivation. Rules whose alternatives
// start with different words (LL(1)) make the automaton deterministic, so the words said so far name
// the state, every sentence has exactly one derivation, and a reader who has seen the sentence from its
// start knows exactly the distribution of the next word. That is what makes the entropies below exact.
//
//     SentenceAutomaton a({{"sentence", 1, {"yes", "."}}, {"sentence", 3, {"no", "."}}}, "sentence");
//     a.arcs(a.start())   // "yes" with probability 1/4, "no" with 3/4
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

// One alternative of `left`. A symbol that is the left side of no rule is a word.
struct Rule {
  std::string left;
  double weight;  // relative to the other alternatives of the same left side
  std::vector<std::string> right;
};

class SentenceAutomaton {
 public:
  static constexpr int32_t kNowhere = -1;

  struct Arc {
    int32_t word;
    int32_t next;  // the start state again once the sentence is complete
    double probability;
  };

  // A grammar that is recursive or not LL(1) is a bug of whoever wrote its rules.
  SentenceAutomaton(const std::vector<Rule>& rules, const std::string& start);

  const std::vector<std::string>& words() const { return words_; }  // sorted
  int32_t states() const { return static_cast<int32_t>(states_.size()); }
  int32_t start() const { return 0; }
  std::span<const Arc> arcs(int32_t state) const { return states_[static_cast<size_t>(state)]; }

  // Where `word` leads, or kNowhere when it cannot be said here.
  int32_t follow(int32_t state, int32_t word) const;
  // The arc that a uniform draw from [0, 1) picks.
  const Arc& pick(int32_t state, double uniform) const;
  // Whether these words are one complete sentence.
  bool accepts(std::span<const int32_t> sentence) const;

 private:
  std::vector<std::string> words_;
  std::vector<std::vector<Arc>> states_;  // arcs by falling probability: pick() ends early
};

// Word by word statistics of a sentence, k counted from its start.
struct SentenceStatistics {
  std::vector<double> ends;     // ends[k]: probability that the sentence has exactly k words
  std::vector<double> entropy;  // entropy[k]: nats of word k given the words before, times P(it exists)

  // Nats a word over the first `count` words of a text that starts with a sentence: by renewal theory,
  // the mean over t of sum over k of P(a sentence starts at t - k) * entropy[k].
  double mean_entropy(int64_t count) const;
};
SentenceStatistics statistics(const SentenceAutomaton& automaton);

}  // namespace lockstep::data

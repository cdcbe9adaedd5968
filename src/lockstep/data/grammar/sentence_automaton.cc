#include "lockstep/data/grammar/sentence_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// What is left to be said, the next symbol last.
using Stack = std::vector<std::string>;

struct Alternative {
  double probability;
  const std::vector<std::string>* right;
};
using Alternatives = std::map<std::string, std::vector<Alternative>>;

Alternatives group(const std::vector<Rule>& rules) {
  std::map<std::string, double> totals;
  for (const Rule& rule : rules) {
    LS_ASSERT(rule.weight > 0, rule.left);
    totals[rule.left] += rule.weight;
  }
  Alternatives grouped;
  for (const Rule& rule : rules) grouped[rule.left].push_back({rule.weight / totals[rule.left], &rule.right});
  return grouped;
}

// Without recursion there are finitely many stacks, hence states.
void refuse_recursion(const Alternatives& grammar, const std::string& symbol, std::set<std::string>& above) {
  const auto found = grammar.find(symbol);
  if (found == grammar.end()) return;
  LS_ASSERT(above.insert(symbol).second, fmt::format("'{}' is part of itself", symbol));
  for (const Alternative& alternative : found->second) {
    for (const std::string& part : *alternative.right) refuse_recursion(grammar, part, above);
  }
  above.erase(symbol);
}

struct Spoken {
  double probability;
  Stack rest;
};
using Choices = std::map<std::string, Spoken>;  // by word

// Every word that can come next, with what is left after it.
void next_words(const Alternatives& grammar, Stack stack, double probability, Choices& out) {
  LS_ASSERT(!stack.empty(), "a sentence may be empty");
  const std::string symbol = std::move(stack.back());
  stack.pop_back();
  const auto found = grammar.find(symbol);
  if (found == grammar.end()) {
    const bool first = out.emplace(symbol, Spoken{probability, std::move(stack)}).second;
    LS_ASSERT(first, fmt::format("two derivations start with '{}': the grammar is not LL(1)", symbol));
    return;
  }
  for (const Alternative& alternative : found->second) {
    Stack rest = stack;
    rest.insert(rest.end(), alternative.right->rbegin(), alternative.right->rend());
    next_words(grammar, std::move(rest), probability * alternative.probability, out);
  }
}

// Only words that can be said: rules nobody uses add nothing.
std::vector<std::string> words_of(const std::vector<Choices>& states) {
  std::set<std::string> words;
  for (const Choices& choices : states) {
    for (const auto& [word, after] : choices) words.insert(word);
  }
  return {words.begin(), words.end()};
}

double entropy_of(std::span<const SentenceAutomaton::Arc> arcs) {
  double entropy = 0;
  for (const auto& arc : arcs) entropy -= arc.probability * std::log(arc.probability);
  return entropy;
}

}  // namespace

SentenceAutomaton::SentenceAutomaton(const std::vector<Rule>& rules, const std::string& start) {
  const Alternatives grammar = group(rules);
  std::set<std::string> above;
  refuse_recursion(grammar, start, above);
  std::map<Stack, int32_t> numbers{{{}, 0}, {{start}, 0}};  // nothing left: the next sentence starts
  std::vector<Stack> stacks{{start}};
  std::vector<Choices> choices;
  for (size_t state = 0; state < stacks.size(); ++state) {
    Choices& spoken = choices.emplace_back();
    next_words(grammar, stacks[state], 1, spoken);
    for (const auto& [word, after] : spoken) {
      if (numbers.emplace(after.rest, static_cast<int32_t>(stacks.size())).second)
        stacks.push_back(after.rest);
    }
  }

  words_ = words_of(choices);
  std::map<std::string, int32_t> word_ids;
  for (const std::string& word : words_) word_ids.emplace(word, static_cast<int32_t>(word_ids.size()));
  for (const Choices& spoken : choices) {
    std::vector<Arc>& arcs = states_.emplace_back();
    for (const auto& [word, after] : spoken) {
      arcs.push_back({word_ids.at(word), numbers.at(after.rest), after.probability});
    }
    std::stable_sort(arcs.begin(), arcs.end(),
                     [](const Arc& a, const Arc& b) { return a.probability > b.probability; });
  }
}

int32_t SentenceAutomaton::follow(int32_t state, int32_t word) const {
  for (const Arc& arc : arcs(state)) {
    if (arc.word == word) return arc.next;
  }
  return kNowhere;
}

const SentenceAutomaton::Arc& SentenceAutomaton::pick(int32_t state, double uniform) const {
  const std::span<const Arc> choices = arcs(state);
  size_t chosen = 0;
  // The last arc takes what rounding left over.
  for (; chosen + 1 < choices.size() && uniform >= choices[chosen].probability; ++chosen) {
    uniform -= choices[chosen].probability;
  }
  return choices[chosen];
}

bool SentenceAutomaton::accepts(std::span<const int32_t> sentence) const {
  int32_t state = start();
  for (size_t k = 0; k < sentence.size(); ++k) {
    state = follow(state, sentence[k]);
    if (state == kNowhere) return false;
    if (state == start()) return k + 1 == sentence.size();
  }
  return false;
}

SentenceStatistics statistics(const SentenceAutomaton& automaton) {
  SentenceStatistics result;
  result.ends.push_back(0);
  std::map<int32_t, double> reached{{automaton.start(), 1.0}};  // P(in this state after k words)
  while (!reached.empty()) {
    std::map<int32_t, double> after;
    double entropy = 0, ended = 0;
    for (const auto& [state, probability] : reached) {
      entropy += probability * entropy_of(automaton.arcs(state));
      for (const auto& arc : automaton.arcs(state)) {
        (arc.next == automaton.start() ? ended : after[arc.next]) += probability * arc.probability;
      }
    }
    result.entropy.push_back(entropy);
    result.ends.push_back(ended);
    reached = std::move(after);
  }
  return result;
}

double SentenceStatistics::mean_entropy(int64_t count) const {
  const int64_t longest = static_cast<int64_t>(entropy.size());
  std::vector<double> starts(static_cast<size_t>(longest));  // ring: P(a sentence starts at t) at t % longest
  double sum = 0;
  for (int64_t t = 0; t < count; ++t) {
    double start_here = t == 0 ? 1 : 0;
    for (int64_t k = 1; k <= std::min(t, longest); ++k) {
      start_here += ends[static_cast<size_t>(k)] * starts[static_cast<size_t>((t - k) % longest)];
    }
    starts[static_cast<size_t>(t % longest)] = start_here;
    for (int64_t k = 0; k <= std::min(t, longest - 1); ++k) {
      sum += entropy[static_cast<size_t>(k)] * starts[static_cast<size_t>((t - k) % longest)];
    }
  }
  return sum / static_cast<double>(count);
}

}  // namespace lockstep::data

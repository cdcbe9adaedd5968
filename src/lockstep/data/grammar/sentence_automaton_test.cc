#include "lockstep/data/grammar/sentence_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/grammar/english_rules.h"

namespace lockstep::data {
namespace {

// Small, but with what matters: an optional part, agreement at a distance, a choice to the very last word,
// and sentences of 2 to 5 words.
const std::vector<Rule> kSmall = {
    {"sentence", 3, {"one", "mood", "barks", "end"}},
    {"sentence", 1, {"two", "mood", "bark", "end"}},
    {"sentence", 2, {"hush", "end"}},
    {"mood", 4, {}},
    {"mood", 1, {"sad", "more"}},
    {"more", 1, {}},
    {"more", 1, {"dogs"}},
    {"end", 2, {"."}},
    {"end", 1, {"!"}},
};

// Every sentence with its probability, straight from the rules: expand the leftmost symbol until only
// words are left. It shares nothing with the automaton.
std::map<std::string, double> enumerate(const std::vector<Rule>& rules, const std::string& start) {
  std::map<std::string, double> sentences;
  const std::function<void(std::string, std::vector<std::string>, double)> expand =
      [&](std::string said, std::vector<std::string> left, double probability) {
        if (left.empty()) {
          sentences[said] += probability;
          return;
        }
        const std::string symbol = left.front();
        left.erase(left.begin());
        double total = 0;
        for (const Rule& rule : rules) total += rule.left == symbol ? rule.weight : 0;
        if (total == 0) return expand(said + symbol + " ", left, probability);
        for (const Rule& rule : rules) {
          if (rule.left != symbol) continue;
          std::vector<std::string> next = rule.right;
          next.insert(next.end(), left.begin(), left.end());
          expand(said, next, probability * rule.weight / total);
        }
      };
  expand("", {start}, 1);
  return sentences;
}

double log_probability(const SentenceAutomaton& automaton, const std::string& sentence) {
  int32_t state = automaton.start();
  double sum = 0;
  std::istringstream words(sentence);
  for (std::string word; words >> word;) {
    bool found = false;
    for (const auto& arc : automaton.arcs(state)) {
      if (automaton.words()[static_cast<size_t>(arc.word)] != word) continue;
      sum += std::log(arc.probability);
      state = arc.next;
      found = true;
      break;
    }
    if (!found) return -INFINITY;
  }
  return state == automaton.start() ? sum : -INFINITY;
}

double mean_length(const SentenceStatistics& of) {
  double mean = 0;
  for (size_t k = 0; k < of.ends.size(); ++k) mean += static_cast<double>(k) * of.ends[k];
  return mean;
}

double sentence_entropy(const SentenceStatistics& of) {  // nats
  return std::accumulate(of.entropy.begin(), of.entropy.end(), 0.0);
}

// Nats a word, of an endless text.
double entropy_rate(const SentenceStatistics& of) { return sentence_entropy(of) / mean_length(of); }

TEST(SentenceAutomaton, AgreesWithEnumeration) {
  const SentenceAutomaton automaton(kSmall, "sentence");
  const SentenceStatistics measured = statistics(automaton);
  double total = 0, entropy = 0, length = 0;
  for (const auto& [sentence, probability] : enumerate(kSmall, "sentence")) {
    EXPECT_NEAR(log_probability(automaton, sentence), std::log(probability), 1e-12) << sentence;
    total += probability;
    entropy -= probability * std::log(probability);
    length += probability * static_cast<double>(std::count(sentence.begin(), sentence.end(), ' '));
  }
  EXPECT_NEAR(total, 1, 1e-12);
  EXPECT_NEAR(sentence_entropy(measured), entropy, 1e-12);
  EXPECT_NEAR(mean_length(measured), length, 1e-12);
  EXPECT_NEAR(entropy_rate(measured), entropy / length, 1e-12);
}

// The expectation of -log p over the first n words, by following every text there is.
double brute_force_entropy(const SentenceAutomaton& automaton, int32_t state, int64_t left) {
  if (left == 0) return 0;
  double sum = 0;
  for (const auto& arc : automaton.arcs(state)) {
    sum += arc.probability * (brute_force_entropy(automaton, arc.next, left - 1) - std::log(arc.probability));
  }
  return sum;
}

TEST(SentenceAutomaton, EntropyOfACutTextIsExact) {
  const SentenceAutomaton automaton(kSmall, "sentence");
  const SentenceStatistics measured = statistics(automaton);
  for (const int64_t words : {1, 2, 3, 5, 8, 13}) {
    const double expected =
        brute_force_entropy(automaton, automaton.start(), words) / static_cast<double>(words);
    EXPECT_NEAR(measured.mean_entropy(words), expected, 1e-12) << words << " words";
  }
}

TEST(SentenceAutomaton, EntropyOfALongTextTendsToTheRate) {
  const SentenceStatistics measured = statistics(SentenceAutomaton(kSmall, "sentence"));
  EXPECT_NEAR(measured.mean_entropy(1'000'000), entropy_rate(measured), 1e-5);
  EXPECT_GT(std::abs(measured.mean_entropy(3) - entropy_rate(measured)), 1e-3);
}

TEST(SentenceAutomaton, PicksArcsByTheirProbability) {
  const SentenceAutomaton automaton(kSmall, "sentence");
  std::map<std::string, int> counts;
  constexpr int kDraws = 60000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[automaton.words()[static_cast<size_t>(automaton.pick(0, (i + 0.5) / kDraws).word)]];
  }
  EXPECT_EQ(counts["one"], kDraws / 2);
  EXPECT_EQ(counts["hush"], kDraws / 3);
  EXPECT_EQ(counts["two"], kDraws / 6);
  EXPECT_NO_THROW(automaton.pick(0, 0.99999999999999989));
}

TEST(SentenceAutomaton, AcceptsExactlyOneSentence) {
  const SentenceAutomaton automaton(kSmall, "sentence");
  const struct {
    std::vector<std::string> words;
    bool accepted;
  } rows[] = {{{"hush", "."}, true},
              {{"two", "sad", "dogs", "bark", "!"}, true},
              {{"two", "sad", "dogs", "barks", "!"}, false},
              {{"hush"}, false},
              {{}, false},
              {{"hush", ".", "hush", "."}, false}};
  for (const auto& row : rows) {
    std::vector<int32_t> sentence;
    for (const std::string& word : row.words) {
      const auto& words = automaton.words();
      sentence.push_back(static_cast<int32_t>(std::find(words.begin(), words.end(), word) - words.begin()));
    }
    EXPECT_EQ(automaton.accepts(sentence), row.accepted) << testing::PrintToString(row.words);
  }
}

TEST(SentenceAutomaton, RefusesRulesItCannotPromiseFor) {
  const struct {
    const char* what;
    std::vector<Rule> rules;
  } rows[] = {
      {"two derivations of one sentence", {{"s", 1, {"a", "."}}, {"s", 1, {"x", "."}}, {"x", 1, {"a"}}}},
      {"a choice seen too late", {{"s", 1, {"a", "b", "."}}, {"s", 1, {"a", "c", "."}}}},
      {"recursion", {{"s", 1, {"a", "s"}}, {"s", 1, {"."}}}},
      {"left recursion", {{"s", 1, {"s", "a"}}, {"s", 1, {"."}}}},
      {"an empty sentence", {{"s", 1, {}}}},
      {"a weight of 0", {{"s", 0, {"a"}}}},
  };
  for (const auto& row : rows) EXPECT_THROW(SentenceAutomaton(row.rules, "s"), base::Bug) << row.what;
}

TEST(EnglishRules, EverySeedIsLearnableAndKnowsItsFloor) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const SentenceAutomaton automaton(english_rules(seed), kEnglishStart);
    const SentenceStatistics measured = statistics(automaton);
    EXPECT_EQ(automaton.words().size(), 137u);
    EXPECT_LT(automaton.states(), 1000);
    EXPECT_GT(entropy_rate(measured), 1.5) << "seed " << seed;
    EXPECT_LT(entropy_rate(measured), 2.5) << "seed " << seed;
  }
}

TEST(EnglishRules, WordsAreWordsAndTheEndStandsOnlyAtTheEnd) {
  const SentenceAutomaton automaton(english_rules(7), kEnglishStart);
  for (const std::string& word : automaton.words()) {
    EXPECT_TRUE(word == kEnglishEnd || word.find('.') == std::string::npos) << word << " names no rule";
  }
  for (int32_t state = 0; state < automaton.states(); ++state) {
    for (const auto& arc : automaton.arcs(state)) {
      const bool is_end = automaton.words()[static_cast<size_t>(arc.word)] == kEnglishEnd;
      EXPECT_EQ(is_end, arc.next == automaton.start());
    }
  }
}

}  // namespace
}  // namespace lockstep::data

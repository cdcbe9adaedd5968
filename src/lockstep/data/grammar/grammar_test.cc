#include "lockstep/data/grammar/grammar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr int64_t kSeqLen = 64;

struct Sample {
  std::vector<int32_t> inputs = std::vector<int32_t>(kSeqLen), labels = inputs;
};

Sample read(const Grammar& grammar, Split split, int64_t index) {
  Sample sample;
  grammar.read(split, index, sample.inputs, sample.labels);
  return sample;
}

// -log p of a sample's labels, as a reader who knows the grammar would pay.
double nats(const Grammar& grammar, const Sample& sample) {
  const SentenceAutomaton& automaton = grammar.automaton();
  double sum = 0;
  int32_t state = automaton.start();
  for (const int32_t word : sample.labels) {
    for (const auto& arc : automaton.arcs(state)) {
      if (arc.word == word) sum -= std::log(arc.probability);
    }
    state = automaton.follow(state, word);
    if (state == SentenceAutomaton::kNowhere) return NAN;
  }
  return sum;
}

TEST(Grammar, TheFloorIsWhatSamplesCost) {
  for (const uint64_t seed : {7ull, 1ull, 123456789ull}) {
    const Grammar grammar(seed, kSeqLen);
    for (const Split split : {Split::train, Split::eval}) {
      constexpr int kSamples = 4000;
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < kSamples; ++i) {
        const double mean = nats(grammar, read(grammar, split, i)) / kSeqLen;
        sum += mean;
        squares += mean * mean;
      }
      const double mean = sum / kSamples;
      const double standard_error = std::sqrt((squares / kSamples - mean * mean) / kSamples);
      EXPECT_LT(standard_error, 0.005);
      // Fixed seeds, so no flake; a wrong floor by 1 % would be 7 standard errors off.
      EXPECT_NEAR(mean, *grammar.entropy_floor(), 3 * standard_error) << "grammar seed " << seed;
    }
  }
}

TEST(Grammar, LabelsAreTheInputsOneLater) {
  const Grammar grammar(7, kSeqLen);
  const Sample sample = read(grammar, Split::train, 12345);
  EXPECT_EQ(grammar.decode(std::span(sample.inputs).first(1)), ".");
  for (size_t t = 0; t + 1 < sample.inputs.size(); ++t) EXPECT_EQ(sample.inputs[t + 1], sample.labels[t]);
}

// Recorded losses are of these very sentences: a change here makes old runs unrepeatable.
TEST(Grammar, IsStable) {
  const Grammar grammar(7, kSeqLen);
  EXPECT_NEAR(*grammar.entropy_floor(), 1.9725, 5e-5);
  const Sample sample = read(grammar, Split::train, 0);
  EXPECT_EQ(grammar.decode(std::span(sample.labels).first(24)),
            "two bears that follow many ducks visit one small goat. Anna sings behind the house. \"many old "
            "ducks sleep\" says");
}

TEST(Grammar, SamplesAreKeyedBySeedSplitAndIndex) {
  const Grammar grammar(7, kSeqLen), same(7, kSeqLen), other(8, kSeqLen);
  std::set<std::vector<int32_t>> seen;
  for (int64_t i = 0; i < 500; ++i) {
    seen.insert(read(grammar, Split::train, i).labels);
    seen.insert(read(grammar, Split::eval, i).labels);
  }
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_EQ(read(grammar, Split::train, 3).labels, read(same, Split::train, 3).labels);
  EXPECT_NE(read(grammar, Split::train, 3).labels, read(other, Split::train, 3).labels);
  EXPECT_EQ(grammar.content_hash(), same.content_hash());
  EXPECT_NE(grammar.content_hash(), other.content_hash());
}

TEST(Grammar, AShorterSampleIsAPrefix) {
  const Grammar grammar(7, kSeqLen), shorter(7, 10);
  std::vector<int32_t> inputs(10), labels(10);
  shorter.read(Split::train, 5, inputs, labels);
  const Sample sample = read(grammar, Split::train, 5);
  EXPECT_TRUE(std::equal(labels.begin(), labels.end(), sample.labels.begin()));
}

TEST(Grammar, AcceptsWhatItSays) {
  const Grammar grammar(7, kSeqLen);
  int64_t sentences = 0;
  for (int64_t i = 0; i < 200; ++i) {
    const Grammar::Judgement judgement = grammar.judge(read(grammar, Split::train, i).inputs);
    EXPECT_EQ(judgement.accepted, judgement.sentences);
    sentences += judgement.sentences;
  }
  EXPECT_GT(sentences, 1000);
}

TEST(Grammar, JudgesSentences) {
  const Grammar grammar(7, kSeqLen);
  const struct {
    const char* text;
    bool good;
  } rows[] = {
      {"a dog sleeps.", true},
      {"a dog sleep.", false},
      {"two red dogs that see a cat sleep.", true},
      {"two red dogs that see a cat sleeps.", false},
      {"Anna draws herself.", true},
      {"Anna draws himself.", false},
      {"these goats like their king.", true},
      {"these goats like her king.", false},
      {"when Ben sings, Ben smiles near the river.", true},
      {"when Ben sings, Tom smiles near the river.", false},
      {"\"every cow waits\" says Ruth.", true},
      {"([every cow waits]).", true},
      {"([every cow waits)].", false},
      {"(every cow waits.", false},
      {".", false},
      {"a dog.", false},
  };
  for (const auto& row : rows) {
    std::vector<int32_t> tokens = grammar.encode(". " + std::string(row.text));
    const std::optional<double> share = grammar.acceptance(tokens);
    ASSERT_TRUE(share.has_value()) << row.text;
    EXPECT_EQ(*share, row.good ? 1 : 0) << row.text;
  }
}

TEST(Grammar, CountsCompleteSentencesOnly) {
  const Grammar grammar(7, kSeqLen);
  EXPECT_EQ(grammar.acceptance(grammar.encode("a dog")), std::nullopt);
  EXPECT_EQ(grammar.acceptance({}), std::nullopt);
  EXPECT_EQ(grammar.acceptance(grammar.encode("a dog sleeps. a cat sleep. Ben")), 0.5);
  const std::vector<int32_t> nonsense = {-1, 137, 1 << 30, grammar.encode(".")[0]};
  EXPECT_EQ(grammar.acceptance(nonsense), 0.0);
}

TEST(Grammar, TextGoesThereAndBack) {
  const Grammar grammar(7, kSeqLen);
  for (int64_t i = 0; i < 100; ++i) {
    const std::vector<int32_t> tokens = read(grammar, Split::eval, i).inputs;
    EXPECT_EQ(grammar.encode(grammar.decode(tokens)), tokens);
  }
  for (const char* text :
       {"a dog sleeps. ([Anna sees herself]). \"two cats run\" says Tom.", "when Ben sings, Ben smiles."}) {
    EXPECT_EQ(grammar.decode(grammar.encode(text)), text);
  }
  EXPECT_EQ(grammar.decode(std::vector<int32_t>{-5, 999}), "<-5> <999>");
}

TEST(Grammar, NamesAnUnknownWordAndANearOne) {
  const Grammar grammar(7, kSeqLen);
  const struct {
    std::string text, shown, near;
  } rows[] = {{"a dgo sleeps", "\"dgo\"", "\"dog\""},
              {"a dog sleeeps", "\"sleeeps\"", "\"sleeps\""},
              {"a dog!", "\"!\"", ""},
              {std::string(100000, 'x'), std::string(40, 'x') + "\"", ""}};
  for (const auto& row : rows) {
    try {
      grammar.encode(row.text);
      ADD_FAILURE() << "accepted";
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 220);
      EXPECT_NE(std::string(error.what()).find(row.shown), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(row.near), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace lockstep::data

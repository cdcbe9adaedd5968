// Histograms of gradients against a count made by other means, in every kind of layout; and training that is
// looked at has the bits of training that is not.
#include "lockstep/run/session/gradient_histograms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

TEST(Histogram, PutsValuesBetweenItsEdges) {
  const double lowest = std::ldexp(1.0, base::Histogram::kLowest);
  for (const float value : {1.0F, -1.0F, 1.49F, 1.5F, -2.0F, 3e-9F, -7e5F, 0.0F, -0.0F, 1e-38F, 1e-45F}) {
    const int bin = base::bin_of(value);
    ASSERT_GE(bin, 0);
    ASSERT_LT(bin, base::Histogram::kBins);
    EXPECT_LE(base::edge_of(bin), value) << value;
    EXPECT_GE(base::edge_of(bin + 1), value) << value;
    EXPECT_EQ(bin == base::Histogram::kOneSign, std::abs(value) < lowest) << value;
  }
  for (int bin = 0; bin < base::Histogram::kBins; ++bin)
    EXPECT_LT(base::edge_of(bin), base::edge_of(bin + 1)) << bin;
  base::Histogram all;
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, 2, -3, 0, infinity, -infinity, std::nanf(""), 1e30F};
  all.add(values.data(), 8, 0.5F);
  EXPECT_EQ(all.count(), 5);
  EXPECT_EQ(all.not_finite(), 3);
  EXPECT_EQ(all.smallest(), -1.5F);
  EXPECT_EQ(all.largest(), 0.5e30F);
  EXPECT_EQ(all.edges().size(), all.counts().size() + 1);
  EXPECT_EQ(all.edges().front(), -2);
  EXPECT_EQ(base::Histogram().edges().size() + base::Histogram().counts().size(), 0U);
}

struct Seen {
  std::map<std::string, base::Histogram> blocks;  // of the last step
  std::vector<int64_t> steps;
  std::string hash;
  std::vector<double> norms;
};

struct Watcher : Observer {
  Seen* seen;
  void stepped(const StepReport& report) override { seen->norms.push_back(report.grad_norm); }
  void histogram(int64_t step, const std::string& block, const base::Histogram& gradient) override {
    if (seen->steps.empty() || seen->steps.back() != step) seen->steps.push_back(step);
    seen->blocks[block] = gradient;
  }
};

Seen train_rank(const std::vector<std::string>& words, comm::World& world) {
  Ranks ranks(world);
  Session session(make_plan(tiny_recipe(words), {}, for_this(ranks)), &ranks);
  Seen seen;
  Watcher watcher;
  watcher.seen = &seen;
  seen.hash = train(session, {}, watcher).params_hash;
  return seen;
}

std::vector<Seen> train_on(int world, const std::vector<std::string>& words) {
  std::vector<Seen> seen(static_cast<size_t>(world));
  on_ranks(world, "shm",
           [&](comm::World& one) { seen[static_cast<size_t>(one.rank())] = train_rank(words, one); });
  return seen;
}

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

const std::vector<std::string> kWords = {"run.steps=4", "model.layers=4", "model.tied=true",
                                         "batch.product_strands=2"};

// Every value of every gradient, from what a step leaves in memory, and its size by logarithms.
TEST(GradientHistograms, CountWhatIsInMemory) {
  LS_NEEDS_HOST_MEMORY();
  Session session = tiny_session({"model.layers=2", "log.histograms=1"});
  GradientHistograms histograms(session);
  const data::Batch batch = batch_of(session, 0);
  std::map<size_t, std::map<int, int64_t>> expected;
  double squares = 0;
  session.executor->step(
      {.seed = 1, .step = 0, .learning_rate = 0, .valid_tokens = static_cast<double>(batch.valid_labels)},
      {batch.inputs, batch.labels, batch.documents, batch.references}, [&] {
        histograms.count();
        for (size_t b = 0; b < session.plan.model->blocks.size(); ++b) {
          const float* values = gradient_of_block(session, b).as<float>();
          for (const model::PlacedParam& p : model::layout_of(session.plan.model->blocks[b]).params) {
            for (int64_t i = 0; p.spec.holds_values() && i < p.spec.shape.numel(); ++i) {
              const double value = values[p.offset + i];
              squares += value * value;
              const bool tiny = std::abs(value) < std::ldexp(1.0, base::Histogram::kLowest);
              const int octave = tiny ? 0 : static_cast<int>(std::floor(std::log2(std::abs(value))));
              expected[b][tiny ? 9999 : (value < 0 ? -1 : 1) * (octave + 1000)]++;
            }
          }
        }
      });
  const kernels::StepState state = session.executor->read_oldest();
  EXPECT_NEAR(std::sqrt(squares), state.grad_norm, 1e-6 * state.grad_norm);
  const auto all = histograms.sum();
  ASSERT_EQ(all.size(), session.plan.model->blocks.size());
  for (size_t b = 0; b < all.size(); ++b) {
    EXPECT_EQ(all[b].first, session.plan.model->blocks[b].name());
    std::map<int, int64_t> octaves;
    const std::vector<double> edges = all[b].second.edges();
    const std::vector<int64_t> counts = all[b].second.counts();
    for (size_t k = 0; k < counts.size(); ++k) {
      if (counts[k] == 0) continue;
      const double middle = (edges[k] + edges[k + 1]) / 2;
      const bool tiny = edges[k] < 0 && edges[k + 1] > 0;
      const int octave = tiny ? 0 : static_cast<int>(std::floor(std::log2(std::abs(middle))));
      octaves[tiny ? 9999 : (middle < 0 ? -1 : 1) * (octave + 1000)] += counts[k];
    }
    EXPECT_EQ(octaves, expected[b]) << all[b].first;
  }
}

TEST(GradientHistograms, AreTheSameInEveryLayoutAndChangeNoBit) {
  LS_NEEDS_HOST_MEMORY();
  const Seen unseen = train_on(1, kWords)[0];
  EXPECT_TRUE(unseen.steps.empty());
  const Seen one = train_on(1, with(kWords, {"log.histograms=2"}))[0];
  EXPECT_EQ(one.hash, unseen.hash);
  EXPECT_EQ(one.norms, unseen.norms);
  EXPECT_EQ(one.steps, (std::vector<int64_t>{2, 4}));
  const std::pair<int, std::vector<std::string>> layouts[] = {
      {2, {}},
      {4, {"parallel.zero=1"}},
      {4, {"parallel.zero=2"}},
      {2, {"parallel.zero=3"}},
      {4, {"parallel.zero=3", "parallel.shard=2"}},
      {2, {"parallel.tensor=2"}},
      {4, {"parallel.tensor=2", "parallel.zero=3"}},
      {2, {"parallel.pipeline=2"}},
      {4, {"parallel.pipeline=2", "parallel.schedule=zero-bubble", "parallel.zero=2"}},
  };
  for (const auto& [world, layout] : layouts) {
    SCOPED_TRACE(std::to_string(world) + " ranks" +
                 std::accumulate(layout.begin(), layout.end(), std::string(),
                                 [](std::string all, const std::string& word) { return all + " " + word; }));
    for (const Seen& rank : train_on(world, with(with(kWords, {"log.histograms=2"}), layout))) {
      EXPECT_EQ(rank.hash, unseen.hash);
      EXPECT_EQ(rank.steps, one.steps);
      ASSERT_EQ(rank.blocks.size(), one.blocks.size());
      for (const auto& [block, histogram] : one.blocks) {
        const base::Histogram& mine = rank.blocks.at(block);
        EXPECT_EQ(mine.counts(), histogram.counts()) << block;
        EXPECT_EQ(mine.edges(), histogram.edges()) << block;
        EXPECT_EQ(mine.smallest(), histogram.smallest()) << block;
        EXPECT_EQ(mine.largest(), histogram.largest()) << block;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::run

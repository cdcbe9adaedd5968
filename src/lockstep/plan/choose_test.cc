#include "lockstep/plan/choose.h"

#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/plan/list_key.h"
#include "lockstep/program/check.h"
#include "lockstep/program/testing.h"

namespace lockstep::plan {
namespace {

using program::Instruction;
using program::Program;

// Layouts whose programs are one instruction, with times and bytes from a table.
struct Fake {
  std::function<double(const Candidate&)> seconds = [](const Candidate&) { return 1.0; };
  std::function<int64_t(const Candidate&)> bytes = [](const Candidate&) { return 10; };
  std::function<std::string(const Candidate&)> refuses = [](const Candidate&) { return ""; };
  std::function<int64_t(const Candidate&)> instructions = [](const Candidate&) { return 1; };
  std::vector<std::string> tried;
  std::mutex* guard = nullptr;  // of `tried`, where threads try

  Choice choose(Question question) {
    question.machine = machine_named("H100");
    question.machine.launch_seconds = 0;
    if (question.available_bytes == 0) question.available_bytes = 100;
    return plan::choose(question, [&](const Candidate& c) {
      std::optional<std::lock_guard<std::mutex>> held;
      if (guard != nullptr) held.emplace(*guard);
      tried.push_back(c.words());
      if (const std::string why = refuses(c); !why.empty()) throw base::ConfigError(157, why);
      Compiled compiled;
      compiled.programs.push_back(std::make_unique<Program>());
      const double flops = seconds(c) * question.machine.flops_fp32 * question.machine.reached_fp32;
      compiled.programs[0]->instructions = {{.flops = flops}};
      compiled.programs[0]->instructions.resize(static_cast<size_t>(instructions(c)));
      compiled.world = world_of({});
      compiled.world.programs = {compiled.programs[0].get()};
      compiled.peak_bytes = bytes(c);
      return compiled;
    });
  }
};

TEST(Choose, TheFastestThatFits) {
  Fake fake;
  fake.seconds = [](const Candidate& c) { return c.layout.tensor == 4 ? 1.0 : 2.0; };
  Choice choice = fake.choose({.ranks = 4});
  EXPECT_EQ(choice.best.layout.tensor, 4);
  EXPECT_EQ(choice.trials[0].candidate.words(), choice.best.words());
  fake.bytes = [](const Candidate& c) { return c.layout.tensor == 4 ? 101 : 100; };
  choice = fake.choose({.ranks = 4});
  EXPECT_EQ(choice.best.words(), "data=4");  // all others are as fast: the simplest
  EXPECT_NE(choice.why().find("chosen"), std::string::npos);
  EXPECT_NE(choice.why().find("need more memory"), std::string::npos) << choice.why();
}

// Tensor ranks talk in every layer: over the network that would be the slowest of all, whatever a price says.
TEST(Choose, TensorRanksStayInsideANode) {
  Fake fake;
  fake.seconds = [](const Candidate& c) { return 1.0 / c.layout.tensor; };
  const Choice choice = fake.choose({.ranks = 16});
  EXPECT_EQ(choice.best.layout.tensor, machine_named("H100").ranks_per_node);
  EXPECT_NE(choice.why().find("inside a node"), std::string::npos) << choice.why();
}

TEST(Choose, SharesOutAndRecomputesOnlyWhereItMust) {
  Fake fake;
  EXPECT_EQ(fake.choose({.ranks = 4}).best.layout.zero, 0);
  for (const std::string& words : fake.tried) EXPECT_EQ(words.find("recompute"), std::string::npos) << words;
  // Sharing out the update may be worth it where all of it fits.
  fake.seconds = [](const Candidate& c) { return c.layout.zero == 1 ? 1.0 : 1.1; };
  EXPECT_EQ(fake.choose({.ranks = 4}).best.words(), "data=4,zero=1");
  fake.seconds = [](const Candidate&) { return 1.0; };
  // Only stage 2 of pure data parallelism fits.
  fake.bytes = [](const Candidate& c) { return c.layout.data == 4 && c.layout.zero >= 2 ? 90 : 200; };
  EXPECT_EQ(fake.choose({.ranks = 4}).best.words(), "data=4,zero=2");
  // Only with recomputation.
  fake.bytes = [](const Candidate& c) { return c.recompute == "full" && c.layout.pipeline == 2 ? 90 : 200; };
  const Choice choice = fake.choose({.ranks = 4});
  EXPECT_EQ(choice.best.recompute, "full");
  EXPECT_EQ(choice.best.overrides().back(), "memory.recompute=full");
  // The recipe's own recomputation is not taken away.
  fake.bytes = [](const Candidate&) { return 10; };
  EXPECT_EQ(fake.choose({.ranks = 2, .recompute = "every-2"}).best.recompute, "every-2");
}

TEST(Choose, WhatTheUserHasSettledStays) {
  Fake fake;
  const Choice choice = fake.choose({.ranks = 8,
                                     .tensor = 2,
                                     .pipeline = 2,
                                     .zero = 3,
                                     .chunks = 3,
                                     .form = "heads",
                                     .schedule = "interleaved",
                                     .sequence = false});
  EXPECT_EQ(choice.trials.size(), 2u);  // context 1 and 2
  for (const Trial& trial : choice.trials) {
    const Layout& layout = trial.candidate.layout;
    EXPECT_EQ(layout.tensor, 2);
    EXPECT_EQ(layout.pipeline, 2);
    EXPECT_EQ(layout.zero, layout.data > 1 ? 3 : 0);
    EXPECT_EQ(layout.schedule, "interleaved");
    EXPECT_EQ(layout.chunks, 3);
    EXPECT_EQ(layout.form, layout.context > 1 ? "heads" : "ring");
    EXPECT_FALSE(layout.sequence);
  }
}

// A name that is cut off could not be given to anything.
TEST(Choose, LongNamesAreWhole) {
  const std::string words =
      "data=2,zero=3,tensor=2,sequence,context=2,form=heads,pipeline=2,schedule=interleaved,chunks=3";
  Choice choice;
  choice.trials.push_back({.candidate = {parse_layout(words), "full"}, .fits = true});
  EXPECT_NE(choice.why().find(words + ", recompute full "), std::string::npos) << choice.why();
}

TEST(Choose, ReasonsAgainstOthersAreTold) {
  Fake fake;
  fake.refuses = [](const Candidate& c) { return c.layout.tensor > 1 ? "heads do not divide" : ""; };
  const Choice choice = fake.choose({.ranks = 4});
  EXPECT_NE(choice.why().find("heads do not divide"), std::string::npos) << choice.why();
  // Layouts with 16 tensor ranks are refused before they are compiled; the recipe's own mistake is what the
  // user wants.
  fake.refuses = [](const Candidate&) { return "the recipe has no such preset"; };
  try {
    fake.choose({.ranks = 16});
    FAIL();
  } catch (const base::ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("the recipe has no such preset", 0), 0) << error.what();
    EXPECT_NE(error.number(), 183);
  }
  fake.refuses = [](const Candidate&) { return ""; };
  fake.bytes = [](const Candidate& c) { return c.layout.zero == 3 ? 150 : 200; };
  try {
    fake.choose({.ranks = 4});
    FAIL();
  } catch (const base::ConfigError& error) {
    EXPECT_EQ(error.number(), 183);
    EXPECT_NE(std::string(error.what()).find("zero=3"), std::string::npos) << error.what();
  }
  EXPECT_THROW(fake.choose({.ranks = 4, .tensor = 3}), base::ConfigError);
}

// With real programs of data ranks: where all copies fit nothing is sharded; where they do not, it is.
// Thousands of ranks can be dealt out in thousands of ways: those that cut the model most are left out, and
// that is said.
TEST(Choose, LongListsAreLeftOutWhereShortOnesFit) {
  Fake fake;
  fake.instructions = [](const Candidate& c) { return 2'000 * c.layout.tensor * c.layout.pipeline; };
  Choice choice = fake.choose({.ranks = 64});
  EXPECT_EQ(choice.best.words(), "data=64");
  EXPECT_GT(choice.unseen, 0u);
  EXPECT_NE(choice.why().find("not tried"), std::string::npos) << choice.why();
  for (const std::string& words : fake.tried)
    EXPECT_EQ(words.find("pipeline=64"), std::string::npos) << words;
  // Where none of the short ones fits, it goes on for a while.
  fake.bytes = [](const Candidate& c) { return c.layout.tensor * c.layout.pipeline >= 8 ? 100 : 101; };
  choice = fake.choose({.ranks = 64});
  EXPECT_GE(choice.best.layout.tensor * choice.best.layout.pipeline, 8);
}

TEST(Choose, RealProgramsOfDataRanks) {
  program::Case drawn = program::case_of(
      {"model.layers=3", "model.hidden=64", "model.heads=2", "data.seq_len=16"}, device::DType::f32);
  drawn.layout.slices = drawn.layout.strands = 4;
  const Compile compile = [&](const Candidate& c) {
    const Layout& l = c.layout;
    if (l.tensor * l.context * l.pipeline > 1) throw base::ConfigError(157, "only data ranks here");
    program::DataRanks& ranks = drawn.layout.ranks;
    ranks = {.replicas = l.zero > 0 ? 1 : l.data, .shard = l.zero > 0 ? l.data : 1, .zero = l.zero};
    drawn.layout.recompute = program::parse_recompute(c.recompute, *drawn.model);
    comm::Mesh mesh;
    mesh.sizes[static_cast<int>(comm::Axis::shard)] = ranks.shard;
    mesh.sizes[static_cast<int>(comm::Axis::replica)] = ranks.replicas;
    Compiled compiled{.programs = {}, .world = world_of(mesh)};
    const Lists lists = lists_of(mesh, ranks, drawn.layout.strands);
    compiled.world.program_of = lists.of;
    for (const int rank : lists.first) {
      ranks.replica = rank / ranks.shard;
      ranks.shard_rank = rank % ranks.shard;
      compiled.programs.push_back(std::make_unique<Program>(program::compile(*drawn.model, drawn.layout)));
      compiled.peak_bytes =
          std::max(compiled.peak_bytes, program::place(*compiled.programs.back()).peak_bytes());
      program::order(*compiled.programs.back());
      compiled.world.programs.push_back(compiled.programs.back().get());
    }
    return compiled;
  };
  const int64_t whole = compile({.layout = {.data = 4}}).peak_bytes;
  const Machine machine = machine_named("laptop");
  const Choice roomy = choose({.ranks = 4, .available_bytes = whole, .machine = machine}, compile);
  EXPECT_EQ(roomy.best.words(), "data=4");
  EXPECT_GT(roomy.trials[0].step_seconds, 0);
  const Choice tight = choose({.ranks = 4, .available_bytes = whole * 6 / 10, .machine = machine}, compile);
  EXPECT_GT(tight.best.layout.zero, 0) << tight.why();
  EXPECT_LE(tight.trials[0].peak_bytes, whole * 6 / 10);
}

// Threads decide nothing: not what is tried, nor what goes unseen.
TEST(Choose, BesideEachOtherOrNot) {
  for (const int64_t length : {int64_t{1}, int64_t{30'000}}) {
    std::vector<std::string> found;
    for (const bool beside : {false, true}) {
      Fake fake;
      std::mutex one;
      fake.instructions = [&](const Candidate&) { return length; };
      fake.seconds = [](const Candidate& c) { return 1.0 + 1.0 / (c.layout.tensor + 3 * c.layout.pipeline); };
      fake.guard = &one;
      const Choice choice = fake.choose({.ranks = 64, .beside = beside});
      std::string words = std::to_string(choice.unseen);
      for (const Trial& trial : choice.trials) words += " | " + trial.candidate.words();
      found.push_back(words);
    }
    EXPECT_EQ(found[0], found[1]);
  }
}

// A shop looks at many machines: of each, at what cuts the model least and fits.
TEST(Choose, SimplyMeansNoFurtherThanWhatFits) {
  Fake fake;
  fake.bytes = [](const Candidate& c) { return c.layout.tensor * c.layout.pipeline >= 2 ? 10 : 1000; };
  const Choice choice = fake.choose({.ranks = 16, .simple = true});
  for (const Trial& trial : choice.trials) {
    if (!trial.refused.empty()) continue;
    EXPECT_LE(trial.candidate.layout.tensor * trial.candidate.layout.pipeline, 4) << trial.candidate.words();
  }
  EXPECT_GT(choice.unseen, 0u);
  EXPECT_LT(choice.trials.size(), fake.choose({.ranks = 16}).trials.size());
}

// What cannot fit is not compiled: by what a rank needs at least, and where the thriftiest stage is far too
// much.
TEST(Choose, WhatCannotFitIsNotCompiled) {
  Fake fake;
  fake.bytes = [](const Candidate& c) { return c.layout.tensor == 4 ? 100 : 200; };
  fake.choose({.ranks = 4});
  for (const std::string& words : fake.tried) {
    const bool thrifty =
        words.find("zero=") == std::string::npos || words.find("zero=3") != std::string::npos;
    EXPECT_TRUE(thrifty) << words;
  }
  fake.tried.clear();
  const auto least = [](const Candidate& c) { return int64_t{c.layout.tensor == 4 ? 50 : 101}; };
  const Choice choice = fake.choose({.ranks = 4, .least_bytes = least});
  EXPECT_EQ(choice.best.layout.tensor, 4);
  for (const std::string& words : fake.tried) EXPECT_NE(words.find("tensor=4"), std::string::npos) << words;
  try {
    fake.choose({.ranks = 2, .least_bytes = least});
    ADD_FAILURE();
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("needs at least 101 B"), std::string::npos) << error.what();
  }
}

// What was compiled is nearer than what was not; and what was not compiled is checked before it is named, and
// has other remedies than a smaller step.
TEST(Choose, WhatIsNamedIsPossible) {
  struct Row {
    std::function<bool(const Candidate&)> alone, possible;  // too much by its state alone; for the recipe
    std::string is_named, remedy;
  };
  const auto tensor = [](const Candidate& c) { return c.layout.tensor > 1; };
  const auto data = [](const Candidate& c) { return c.layout.data > 1; };
  const auto all = [](const Candidate&) { return true; };
  const auto none = [](const Candidate&) { return false; };
  for (const Row& row : std::vector<Row>{{data, all, "tensor=2", "more batch.slices"},
                                         {all, data, "data=2", "optim.moments=bf16"},
                                         {all, tensor, "tensor=2", "optim.offload"},
                                         {all, none, "", "heads do not divide"},
                                         {none, all, "", "more batch.slices"}}) {
    Fake fake;
    fake.bytes = [](const Candidate&) { return 500; };
    fake.refuses = [&](const Candidate& c) { return row.possible(c) ? "" : "heads do not divide"; };
    Question question{.ranks = 2, .context = 1, .pipeline = 1};
    question.least_bytes = [&](const Candidate& c) -> int64_t { return row.alone(c) ? 150 : 50; };
    try {
      fake.choose(question);
      ADD_FAILURE();
    } catch (const base::ConfigError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(row.is_named), std::string::npos) << text;
      EXPECT_NE(text.find(row.remedy), std::string::npos) << text;
      // Where all are refused alike, it is the recipe's own fault, with the number of that.
      EXPECT_EQ(text.find("LS0157") != std::string::npos, row.remedy == "heads do not divide") << text;
    }
  }
}

// Looking for the simplest, nothing beside it is compiled in vain.
TEST(Choose, SimplyMeansOneSplitAtATime) {
  Fake fake;
  fake.choose({.ranks = 64, .simple = true});
  for (const std::string& words : fake.tried) EXPECT_TRUE(words.starts_with("data=64")) << words;
}

TEST(Choose, AReasonHasOneNumber) {
  Fake fake;
  fake.refuses = [](const Candidate& c) { return c.layout.data > 1 ? "the batch is odd" : "no"; };
  try {
    fake.choose({.ranks = 2});
    ADD_FAILURE();
  } catch (const base::ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the batch is odd [LS0183]"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace lockstep::plan

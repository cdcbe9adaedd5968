#include "lockstep/verify/verify.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/verify/child.h"
#include "lockstep/verify/testing.h"

namespace lockstep::verify {
namespace {

// Trains nothing: forges the run that a layout would leave, with the faults of a test.
struct Forger {
  std::function<void(const Job&, Forged&)> change = [](const Job&, Forged&) {};
  std::vector<Job> jobs;
  std::string stop_at;  // a title
  Ended operator()(const Job& job) {
    jobs.push_back(job);
    if (job.title == stop_at) return {Ended::How::stopped, ""};
    const recipe::Recipe recipe = recipe::read_recipe({.file = job.recipe}).recipe;
    if (job.ranks > 4) return {Ended::How::refused, "too many ranks"};
    Forged forged{.first = job.resume.empty() ? 1 : 1 + recipe.run.steps / 2, .last = recipe.run.steps};
    change(job, forged);
    forge_run(job.folder, blocks_of(recipe), recipe, forged);
    return {};
  }
};

Report report_of(const std::string& layouts, Forger& forger, const std::string& folder,
                 const std::string& against = "", bool named = true, int64_t jobs = 1,
                 const Train& train = {}) {
  return verify(
      {.resolved = recipe::read_recipe({.overrides = {"run.device=cpu", "precision.compute=fp32"}}),
       .layouts = plan::parse_layouts(layouts),
       .named = named,
       .steps = 2,
       .jobs = jobs,
       .folder = folder,
       .against = against},
      train ? train : [&](const Job& job) { return forger(job); });
}

TEST(Verify, HoldsWhereNothingDiffers) {
  const base::TemporaryFolder folder;
  Forger forger;
  const Report report = report_of("data=4,zero=3 tensor=2", forger, folder.path());
  EXPECT_TRUE(report.holds);
  ASSERT_EQ(report.rows.size(), 3u);
  for (const Row& row : report.rows) {
    EXPECT_TRUE(row.holds && row.repeats.value_or(false) && row.resumes.value_or(false)) << row.note;
    EXPECT_EQ(row.memory_gib, 0.5);
  }
  ASSERT_EQ(forger.jobs.size(), 9u);
  // What is exact goes on from one rank's checkpoint, what is not from its own.
  EXPECT_NE(forger.jobs[5].resume.find("one-rank/checkpoints/step-00000001"), std::string::npos);
  EXPECT_NE(forger.jobs[8].resume.find("tensor=2/checkpoints/step-00000001"), std::string::npos);
  EXPECT_EQ(forger.jobs[3].overrides, std::vector<std::string>{"parallel.zero=3"});
}

// run.exact = false asks for other bits than one rank's; the row goes on from its own checkpoint.
TEST(Verify, DataRanksThatNeedNotBeExactAreHeldToATolerance) {
  struct Case {
    std::vector<std::string> words;
    bool holds;
    double tolerance;
  };
  for (const Case& c : {Case{{}, false, 1e-5}, Case{{"run.exact=false"}, true, 1e-5},
                        Case{{"run.exact=false", "parallel.wire=bf16"}, true, 2e-4}}) {
    const base::TemporaryFolder folder;
    Forger forger;
    forger.change = [](const Job& job, Forged& forged) {
      if (job.title.starts_with("data=2")) forged.loss *= 1 + 1e-7;
    };
    std::vector<std::string> words = {"run.device=cpu", "precision.compute=fp32"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const Report report = verify({.resolved = recipe::read_recipe({.overrides = words}),
                                  .layouts = plan::parse_layouts("data=2"),
                                  .named = true,
                                  .steps = 2,
                                  .jobs = 1,
                                  .folder = folder.path(),
                                  .against = ""},
                                 [&](const Job& job) { return forger(job); });
    EXPECT_EQ(report.rows[1].holds, c.holds) << report.rows[1].note;
    EXPECT_EQ(report.tolerance.loss, c.tolerance);
    if (!c.holds) continue;
    EXPECT_NE(forger.jobs.back().resume.find("data=2/checkpoints"), std::string::npos);
  }
}

// Two layouts wait for each other, so that they must be tried at once; rows stand in the requested order.
TEST(Verify, TriesSomeLayoutsAtOnce) {
  const base::TemporaryFolder folder;
  Forger forger;
  std::mutex mutex;
  std::condition_variable changed;
  int met = 0;
  const Report report =
      report_of("data=2 tensor=2 pipeline=2", forger, folder.path(), "", true, 2, [&](const Job& job) {
        std::unique_lock lock(mutex);
        if (job.title == "data=2" || job.title == "tensor=2") {
          ++met, changed.notify_all();
          EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return met >= 2; }));
        }
        return forger(job);
      });
  EXPECT_TRUE(report.holds);
  std::vector<std::string> words;
  for (const Row& row : report.rows) words.push_back(row.layout.words());
  EXPECT_EQ(words, (std::vector<std::string>{Layout().words(), "data=2", "tensor=2",
                                             plan::parse_layouts("pipeline=2")[0].words()}));
}

// A run that breaks beside others is tried alone: it may have been the crowd. What differs is not.
TEST(Verify, WhatBreaksInACrowdIsTriedAlone) {
  for (const bool crowd : {true, false}) {
    const base::TemporaryFolder folder;
    Forger forger;
    forger.change = [](const Job& job, Forged& forged) {
      if (job.title == "data=2") forged.loss *= 2;
    };
    std::mutex mutex;
    int tries = 0;
    const auto train = [&](const Job& job) {
      const std::lock_guard lock(mutex);
      if (job.title == "tensor=2" && (tries++ == 0 || !crowd)) return Ended{Ended::How::failed, "no memory"};
      return forger(job);
    };
    const Report report = report_of("data=2 tensor=2", forger, folder.path(), "", true, 2, train);
    EXPECT_EQ(tries, 2);
    EXPECT_FALSE(report.rows[1].holds);
    EXPECT_EQ(report.rows[2].holds, crowd);
    EXPECT_NE(report.rows[2].note.find("while other runs were active: tensor=2 failed: no memory"),
              std::string::npos)
        << report.rows[2].note;
    EXPECT_EQ(std::count_if(forger.jobs.begin(), forger.jobs.end(),
                            [](const Job& job) { return job.title == "data=2"; }),
              1);
  }
}

TEST(Verify, KeepsTheRowsBeforeItWasStopped) {
  const base::TemporaryFolder folder;
  Forger forger;
  forger.stop_at = "tensor=2, again";
  const Report report = report_of("data=2 tensor=2 pipeline=2", forger, folder.path());
  EXPECT_TRUE(report.stopped);
  EXPECT_FALSE(report.holds);
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_TRUE(report.rows[1].holds);
  EXPECT_EQ(forger.jobs.back().title, forger.stop_at);
}

TEST(Verify, NamesWhatDoesNotHold) {
  struct Fault {
    const char* name;
    std::function<void(const Job&, Forged&)> change;
    const char* words;
  };
  const auto in = [](const Job& job, const char* title) { return job.title == title; };
  const std::vector<Fault> faults{{"a wrong gradient",
                                   [&](const Job& job, Forged& forged) {
                                     if (!in(job, "tensor=2")) return;
                                     forged.spoil = [](const std::string& name, Values& v) {
                                       if (name == "transformer.h.2.mlp.c_fc.weight") v[0] *= 3;
                                     };
                                   },
                                   "transformer.h.2.mlp.c_fc.weight"},
                                  {"another loss",
                                   [&](const Job& job, Forged& forged) {
                                     if (in(job, "tensor=2")) forged.loss *= 1.001;
                                   },
                                   "the loss differs by"},
                                  {"a second run with other bits",
                                   [&](const Job& job, Forged& forged) {
                                     if (in(job, "tensor=2, again")) forged.loss *= 1 + 1e-12;
                                   },
                                   "a second run"},
                                  {"a resumed run with other bits",
                                   [&](const Job& job, Forged& forged) {
                                     if (!in(job, "tensor=2, from the middle")) return;
                                     forged.spoil_weights = [](const std::string&, Values& v, int64_t step) {
                                       if (step == 2) v[0] += 1;
                                     };
                                   },
                                   "the resumed run has different bits"}};
  for (const Fault& fault : faults) {
    const base::TemporaryFolder folder;
    Forger forger{.change = fault.change, .jobs = {}};
    const Report report = report_of("tensor=2", forger, folder.path());
    EXPECT_FALSE(report.holds) << fault.name;
    ASSERT_EQ(report.rows.size(), 2u);
    EXPECT_NE(report.rows[1].note.find(fault.words), std::string::npos)
        << fault.name << ": " << report.rows[1].note;
  }
}

TEST(Verify, ExactLayoutsMustHaveTheSameBits) {
  const base::TemporaryFolder folder;
  Forger forger{.change =
                    [](const Job& job, Forged& forged) {
                      if (job.ranks > 1) forged.loss *= 1 + 1e-9;
                    },
                .jobs = {}};
  const Report report = report_of("data=2 tensor=2", forger, folder.path());
  EXPECT_FALSE(report.holds);
  EXPECT_FALSE(report.rows[1].holds);
  EXPECT_TRUE(report.rows[2].holds) << report.rows[2].note;
}

TEST(Verify, RefusedLayoutsFailOnlyWhenNamed) {
  const base::TemporaryFolder a, b;
  Forger forger;
  EXPECT_FALSE(report_of("data=8", forger, a.path(), "", true).holds);
  const Report report = report_of("data=8", forger, b.path(), "", false);
  EXPECT_TRUE(report.holds);
  EXPECT_EQ(report.rows[1].note, "refused: too many ranks");
}

TEST(Verify, GoldenRunsAreKeptAndComparedWith) {
  const base::TemporaryFolder first, second, third, place;
  const std::string golden = place.path() + "/golden";
  Forger same, other{.change =
                         [](const Job&, Forged&forged) {
                           forged.spoil = [](const std::string& name, Values& v) {
                             if (name == "transformer.h.1.ln_1.weight") v[5] = 9;
                           };
                         },
                     .jobs = {}};
  report_of("data=2", same, first.path());
  keep_golden(first.path(), golden);
  EXPECT_THROW(keep_golden(first.path(), golden), base::ConfigError);
  EXPECT_TRUE(report_of("data=2", same, second.path(), golden).golden->same_bits);
  const Report report = report_of("data=2", other, third.path(), golden);
  EXPECT_FALSE(report.holds);
  EXPECT_NE(report.golden_note.find("transformer.h.1.ln_1.weight"), std::string::npos) << report.golden_note;
  base::write_file_durable(golden + "/recipe.toml", "[run]\nseed = 5\n");
  EXPECT_THROW(report_of("data=2", same, second.path(), golden), base::ConfigError);
}

TEST(SmallRecipe, KeepsWhatDecidesALayout) {
  const Small small = small_recipe(
      recipe::read_recipe(
          {.overrides = {"model.family=llama", "model.layers=32", "model.hidden=4096", "model.heads=32",
                         "model.kv_heads=8", "model.ffn=14336", "data.seq_len=2048", "batch.global=512",
                         "parallel.zero=3", "precision.compute=bf16", "optim.name=lion"}}),
      3, 16);
  const recipe::Recipe& r = small.recipe;
  EXPECT_EQ(r.model.layers, 6);
  EXPECT_EQ(r.model.heads / r.model.kv_heads.value, 4);
  EXPECT_EQ(r.model.kv_heads.value, 8);  // which eight tensor ranks divide
  EXPECT_LE(r.model.hidden, 512);
  EXPECT_EQ(r.data.seq_len, 64);
  EXPECT_EQ(r.batch.slices.value, 16);
  EXPECT_FALSE(r.batch.strands.is_auto);
  EXPECT_EQ(r.batch.strands.value, 16);  // as many on one rank as on sixteen
  EXPECT_EQ(r.parallel.zero, "0");
  EXPECT_EQ(r.optim.name, "lion");
  EXPECT_EQ(r.precision.compute, "bf16");
  EXPECT_EQ(r.run.steps, 3);
  EXPECT_FALSE(small.changes.empty());
  EXPECT_EQ(blocks_of(r).size(), 8u);  // embedding, six layers, head
  // What the recipe's sizes do not allow is refused in the small version too.
  const Small odd = small_recipe(
      recipe::read_recipe({.overrides = {"model.layers=2", "model.hidden=1200", "model.heads=6",
                                         "model.ffn=3201", "model.vocab=50260", "data.seq_len=1000"}}),
      2, 2);
  for (int64_t ranks = 2; ranks <= 16; ++ranks) {
    EXPECT_EQ(odd.recipe.model.ffn.value % ranks == 0, 3201 % ranks == 0) << ranks;
    EXPECT_EQ(odd.recipe.model.vocab.value % ranks == 0, 50260 % ranks == 0) << ranks;
    EXPECT_EQ(odd.recipe.data.seq_len % ranks == 0, 1000 % ranks == 0) << ranks;
  }
  EXPECT_LT(odd.recipe.model.ffn.value, 1000);
  EXPECT_LT(odd.recipe.model.vocab.value, 1000);
  // What is small already stays.
  const Small tiny =
      small_recipe(recipe::read_recipe({.overrides = {"model.layers=2", "model.hidden=32"}}), 2, 2);
  EXPECT_EQ(tiny.recipe.model.layers, 2);
  EXPECT_EQ(tiny.recipe.model.hidden, 32);
}

TEST(SmallRecipe, TheSameRanksDivideItsHeadsAndLayers) {
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{
           {25, 25}, {24, 24}, {40, 40}, {96, 96}, {32, 8}, {128, 8}, {20, 10}, {71, 1}, {64, 64}}) {
    SCOPED_TRACE(fmt::format("{} heads, {} kv_heads", heads, kv_heads));
    const recipe::Recipe small =
        small_recipe(recipe::read_recipe({.overrides = {"model.family=llama", "model.layers=40",
                                                        fmt::format("model.hidden={}", heads * 64),
                                                        fmt::format("model.heads={}", heads),
                                                        fmt::format("model.kv_heads={}", kv_heads)}}),
                     2, 16, 12)
            .recipe;
    for (int64_t ranks = 2; ranks <= 16; ++ranks)
      EXPECT_EQ(small.model.kv_heads.value % ranks == 0, kv_heads % ranks == 0) << ranks;
    EXPECT_EQ(small.model.heads % small.model.kv_heads.value, 0);
    EXPECT_EQ(small.model.heads == small.model.kv_heads.value, heads == kv_heads);
    EXPECT_LE(small.model.hidden, 512);
    EXPECT_EQ(small.model.layers, 12);
  }
}

// What fp8 multiplies in the large model, whole and in parts, it multiplies in the small one.
TEST(SmallRecipe, SizesThatFp8MultipliesStayMultiples) {
  for (const std::vector<std::string>& sizes :
       std::vector<std::vector<std::string>>{{"model.family=gemma3", "model.hidden=1152", "model.heads=4",
                                              "model.kv_heads=1", "model.head_dim=256", "model.ffn=6912"},
                                             {"model.family=gemma2", "model.hidden=2304", "model.heads=8",
                                              "model.kv_heads=4", "model.head_dim=256", "model.ffn=9216"},
                                             {"model.family=llama", "model.hidden=5120", "model.heads=32",
                                              "model.kv_heads=8", "model.head_dim=128", "model.ffn=14336"}}) {
    std::vector<std::string> words = {"precision.compute=fp8", "data.seq_len=2048", "model.layers=4"};
    words.insert(words.end(), sizes.begin(), sizes.end());
    const recipe::Recipe small = small_recipe(recipe::read_recipe({.overrides = words}), 2, 16).recipe;
    const recipe::Recipe::Model& m = small.model;
    for (int64_t ranks = 1; ranks <= m.kv_heads.value; ranks *= 2) {
      EXPECT_EQ((m.heads + 2 * m.kv_heads.value) * m.head_dim.value % (16 * ranks), 0) << sizes[1];
      EXPECT_EQ(m.heads * m.head_dim.value % (16 * ranks), 0) << sizes[1];
      EXPECT_EQ(m.ffn.value % (16 * ranks), 0) << sizes[1];
    }
    EXPECT_EQ(small.batch.global / small.batch.slices.value * small.data.seq_len / 16 % 16, 0) << sizes[1];
  }
}

TEST(Child, TheSentenceIsFoundInWhatARunSays) {
  EXPECT_EQ(last_sentence("step 1\nlockstep: model.heads is wrong [LS0102]\n\n"),
            "model.heads is wrong [LS0102]");
  EXPECT_EQ(last_sentence("[0] lockstep: a\nlockstep: b\nnothing"), "b");
  EXPECT_EQ(
      last_sentence("lockstep: this is a bug\nx.cc:3: n > 0\n  stack\nlockstep: rank 0 failed\n log: x\n"),
      "this is a bug: x.cc:3: n > 0");
  EXPECT_EQ(last_sentence("Segmentation fault\n"), "Segmentation fault");
  EXPECT_EQ(last_sentence(""), "");
}

TEST(Child, ARunThatHangsIsEnded) {
  const base::TemporaryFolder folder;
  const std::string program = folder.write("slow", "#!/bin/sh\nexec sleep 60\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const Ended ended = train_by({.program = program, .most_seconds = 0.2})({.folder = folder.path() + "/run"});
  EXPECT_EQ(ended.how, Ended::How::failed);
  EXPECT_NE(ended.why.find("did not finish"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::verify

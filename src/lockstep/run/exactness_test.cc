// The same bits, whatever changes that must not change them.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

// A word instead of forty failures where the wanted device is not.
class NeedsItsDevice : public testing::Environment {
  void SetUp() override {
    if (test_device() == "cpu" || device::cuda_availability().devices > 0) return;
    std::printf("skipped: %s\n", device::cuda_availability().why_not.c_str());
    std::exit(77);
  }
};
const auto* const kNeedsItsDevice = testing::AddGlobalTestEnvironment(new NeedsItsDevice);

using Words = std::vector<std::string>;

struct Row {
  const char* name;
  Words recipe;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string hash_of(const Words& words, int64_t steps = 4) {
  Session session = tiny_session(words);
  return hash_after(session, steps);
}

class SameBits : public testing::TestWithParam<Row> {};

TEST_P(SameBits, WithEveryRecomputation) {
  const std::string expected = hash_of(GetParam().recipe);
  for (const char* recompute : {"none", "cheap", "full", "every-2", "every-3", "up", "down", "up,down"}) {
    EXPECT_EQ(hash_of(with(GetParam().recipe, {std::string("memory.recompute=") + recompute})), expected)
        << recompute;
  }
}

// On CUDA a step becomes a graph after the first ones; a profiled step runs call by call again.
TEST_P(SameBits, AsAGraphCallByCallAndProfiled) {
  Session session = tiny_session(GetParam().recipe);
  std::string why_not;
  Profile profile;
  for (int64_t step = 0; step < 8; ++step) {
    if (step == 5) why_not = session.executor->start_profile();
    one_step(session, step, 0.01f);
    if (step == 6 && why_not.empty()) profile = session.executor->stop_profile();
  }
  const std::string hash = session.parameters->hash();
  EXPECT_EQ(session.executor->runs_as_graph(), session.plan.device->can_capture())
      << session.executor->graph_refusal();
  ::setenv("LOCKSTEP_GRAPH", "off", 1);
  EXPECT_EQ(hash_of(GetParam().recipe, 8), hash);
  ::unsetenv("LOCKSTEP_GRAPH");
  ASSERT_EQ(why_not, "");
  EXPECT_EQ(profile.steps, 2);
  const std::string trace =
      trace_json(profile, session.plan.program, *session.plan.model, 0, began_ns(profile));
  for (const char* word : {"forward", "up", "update", "lane compute"}) {
    EXPECT_NE(trace.find(word), std::string::npos) << word;
  }
  const std::string table = profile_table(profile, session.plan.program, *session.plan.model,
                                          {.product_tflops = 1, .copy_gb_s = 1}, 100);
  EXPECT_NE(table.find("backward_weight up"), std::string::npos) << table;
  const std::string timed = session.plan.device->can_capture() ? "1 step as a graph" : "2 steps";
  EXPECT_NE(table.find(timed), std::string::npos) << table;
}

TEST_P(SameBits, AtAnyNumberOfThreads) {
  const std::string expected = hash_of(with(GetParam().recipe, {"run.threads=1"}));
  for (const char* threads : {"2", "3", "5"}) {
    EXPECT_EQ(hash_of(with(GetParam().recipe, {std::string("run.threads=") + threads})), expected) << threads;
  }
  device::set_thread_count(0);
}

TEST_P(SameBits, AfterSavingAndLoading) {
  const base::TemporaryFolder folder;
  Session whole = tiny_session(GetParam().recipe);
  const std::string expected = hash_after(whole, 6);
  std::string saved;
  {
    Session first = tiny_session(GetParam().recipe);
    hash_after(first, 3);
    saved = save_checkpoint(first, folder.path(), 3);
  }
  Session second = tiny_session(GetParam().recipe);
  EXPECT_EQ(load_checkpoint(second, saved), 3);
  for (int64_t step = 3; step < 6; ++step) one_step(second, step, 0.01f);
  EXPECT_EQ(second.parameters->hash(), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, SameBits,
    testing::Values(
        Row{"gpt2", {}}, Row{"gpt2_dropout_bf16", {"model.dropout=0.1", "precision.compute=bf16"}},
        Row{"gpt2_fp16", {"precision.compute=fp16"}},
        Row{"gpt2_fp8_dropout", {"precision.compute=fp8", "precision.fp8_head=true", "model.dropout=0.1"}},
        Row{"llama_fp8_rows",
            {"model.family=llama", "precision.compute=fp8", "precision.fp8_scaling=row",
             "precision.fp8_skip_first=1"}},
        Row{"llama_bf16_moments", {"model.family=llama", "precision.compute=bf16", "optim.moments=bf16"}},
        Row{"llama_six_strands",
            {"model.family=llama", "batch.global=12", "batch.slices=12", "batch.strands=6"}},
        Row{"mlp_lion", {"model.family=mlp", "optim.name=lion"}}, Row{"gpt2_sgd", {"optim.name=sgd"}}),
    [](const auto& row) { return std::string(row.param.name); });

// Every byte is as it was written, and yet these are not the weights that the run had: a manifest of another
// step, or parameters that changed in memory before they were saved.
TEST(Loading, ParametersOfAnotherHashAreRefused) {
  const base::TemporaryFolder folder;
  Session session = tiny_session();
  const std::string saved = save_checkpoint(session, folder.path(), 1);
  EXPECT_EQ(base::number_of_refusal([&] { load_checkpoint(session, saved); }), 0);
  checkpoint::Manifest manifest = checkpoint::read_manifest(saved);
  manifest.params_hash.back() = manifest.params_hash.back() == '0' ? '1' : '0';
  checkpoint::write_manifest(saved, manifest);
  EXPECT_EQ(base::number_of_refusal([&] { load_checkpoint(session, saved); }), 322);
}

TEST(Moments, OfAnotherFormatAreRefused) {
  const base::TemporaryFolder folder;
  for (const char* other : {"fp32", "bf16"}) {
    const std::string own = other == std::string("fp32") ? "bf16" : "fp32";
    Session saves = tiny_session({std::string("optim.moments=") + other});
    one_step(saves, 0, 0.01f);
    const std::string saved = save_checkpoint(saves, folder.path() + "/" + other, 1);
    Session loads = tiny_session({"optim.moments=" + own});
    try {
      load_checkpoint(loads, saved);
      FAIL() << "was not refused";
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 188);
    }
  }
}

TEST(Moments, InBf16TakeHalfTheMemory) {
  const auto kept = [](const char* moments) {
    const Plan plan = make_plan(tiny_recipe({std::string("optim.moments=") + moments}), {});
    return plan.memory.persistent_by_kind.at(program::BufferKind::optimizer);
  };
  EXPECT_NEAR(static_cast<double>(kept("fp32")) / static_cast<double>(kept("bf16")), 2, 0.02);
}

// In the host's memory: the same bits, saved and loaded by a run that keeps them on the device.
TEST(Moments, OfAGpuMayLiveOnTheHost) {
  if (test_device() == "cpu") {
    EXPECT_THROW(make_plan(tiny_recipe({"optim.offload=true"}), {}), base::ConfigError);
    return;
  }
  const base::TemporaryFolder folder;
  for (const char* moments : {"optim.moments=fp32", "optim.moments=bf16"}) {
    const std::string expected = hash_of({moments}, 6);
    EXPECT_EQ(hash_of({moments, "optim.offload=true"}, 6), expected);
    Session saves = tiny_session({moments, "optim.offload=true"});
    hash_after(saves, 3);
    Session loads = tiny_session({moments});
    load_checkpoint(loads, save_checkpoint(saves, folder.path() + "/" + moments, 3));
    Session back = tiny_session({moments, "optim.offload=true"});
    load_checkpoint(back, save_checkpoint(loads, folder.path() + "/back " + moments, 3));
    for (int64_t step = 3; step < 6; ++step) one_step(back, step, 0.01f);
    EXPECT_EQ(back.parameters->hash(), expected);
  }
}

TEST(OtherBits, WhenTheContractChanges) {
  const std::string base = hash_of({});
  const Words changes = {"run.seed=2",      "batch.slices=8",    "batch.strands=1",   "model.init_std=0.021",
                         "optim.beta1=0.8", "model.dropout=0.1", "optim.moments=bf16"};
  for (const std::string& change : changes) EXPECT_NE(hash_of({change}), base) << change;
}

// The tree by hand: gradients of six one-slice strands must come out as ((0+1)+(2+3))+(4+5).
TEST(StrandTree, IsSplitAtPowersOfTwo) {
  LS_NEEDS_HOST_MEMORY();
  const Words recipe = {"batch.global=6", "batch.slices=6", "batch.strands=6", "model.tied=false"};
  Session session = tiny_session(recipe);
  one_step(session, 0, 0);
  const device::Tensor whole = gradient_of_block(session, 1);
  std::vector<std::vector<float>> slices;
  const data::Batch batch = batch_of(session, 0);
  for (int64_t s = 0; s < 6; ++s) {
    Session one = tiny_session({"batch.global=1", "batch.slices=1", "model.tied=false"});
    const size_t words = batch.inputs.size() / 6, at = static_cast<size_t>(s) * words;
    one.executor->step(
        {.seed = 1, .step = 0, .learning_rate = 0, .valid_tokens = static_cast<double>(batch.valid_labels)},
        {std::span(batch.inputs).subspan(at, words), std::span(batch.labels).subspan(at, words)});
    one.executor->read_oldest();
    const device::Tensor g = gradient_of_block(one, 1);
    slices.emplace_back(g.as<float>(), g.as<float>() + g.numel());
  }
  for (const model::PlacedParam& p : model::layout_of(session.plan.model->blocks[1]).params) {
    for (int64_t i = p.offset; i < p.offset + p.spec.shape.numel(); ++i) {
      const auto g = [&](size_t s) { return slices[s][static_cast<size_t>(i)]; };
      ASSERT_EQ(whole.as<float>()[i], ((g(0) + g(1)) + (g(2) + g(3))) + (g(4) + g(5))) << i;
    }
  }
}

}  // namespace
}  // namespace lockstep::run

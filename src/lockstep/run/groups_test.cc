// Parameter groups and whole-matrix optimizers in every layout: the bits of one rank, nothing kept for what
// is frozen, and its bytes unchanged. Ranks are threads here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/run/saving/saving_testing.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct Outcome {
  std::string hash;
  std::vector<double> losses, norms;
  double eval_loss = 0;
  bool operator==(const Outcome&) const = default;
};
void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << outcome.hash << " after";
  for (const double loss : outcome.losses) *out << fmt::format(" {:a}", loss);
}

struct Watcher : Observer {
  Outcome outcome;
  void stepped(const StepReport& report) override {
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.grad_norm);
  }
};

// From `from` (empty: from the start); with `save_in`, saves after kStop steps.
constexpr int64_t kSteps = 3, kStop = 1;
Outcome run_on(int world, const Words& words, const std::string& from = "", const std::string& save_in = "") {
  std::vector<Outcome> outcomes(static_cast<size_t>(world));
  on_ranks(world, "shm", [&](comm::World& one) {
    Ranks ranks(one);
    Session session(make_plan(tiny_recipe(words), {}, for_this(ranks)), &ranks);
    Watcher watcher;
    const Summary summary = train_and_save(session, from, save_in, kStop, watcher);
    watcher.outcome.hash = summary.params_hash;
    watcher.outcome.eval_loss = summary.eval_loss.value_or(0);
    outcomes[static_cast<size_t>(one.rank())] = watcher.outcome;
  });
  for (const Outcome& one : outcomes) EXPECT_EQ(one, outcomes[0]) << "ranks differ";
  return outcomes[0];
}

struct Recipe {
  const char* name;
  Words words;
  bool whole = false;  // its optimizer needs matrices whole: gathered from tensor ranks
};
void PrintTo(const Recipe& recipe, std::ostream* out) { *out << recipe.name; }

struct Layout {
  int world;
  Words words;
  bool exact;  // one rank's bits
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {2, {}, true},
      {3, {"parallel.zero=1"}, true},
      {2, {"parallel.zero=2"}, true},
      {4, {"parallel.zero=3"}, true},
      {4, {"parallel.zero=3", "parallel.shard=2"}, true},
      {4, {"parallel.zero=2", "parallel.shard=2", "parallel.bucket_mib=0"}, true},
      {2, {"parallel.pipeline=2"}, true},
      {2, {"parallel.pipeline=2", "parallel.schedule=interleaved"}, true},
      {4, {"parallel.pipeline=4", "parallel.schedule=zero-bubble", "memory.recompute=cheap"}, true},
      {4, {"parallel.pipeline=2", "parallel.zero=3", "memory.recompute=full"}, true},
      {6, {"parallel.pipeline=3", "parallel.zero=1"}, true},
      {2, {"parallel.context=2"}, false},
      {4, {"parallel.context=2", "parallel.context_form=heads", "parallel.zero=3"}, false},
      {2, {"parallel.tensor=2"}, false},
      {4, {"parallel.tensor=2", "parallel.sequence=true", "parallel.zero=3"}, false},
      {4, {"parallel.tensor=2", "parallel.sequence=true", "parallel.pipeline=2"}, false},
  };
  return all;
}

Words base_words(const Recipe& recipe) {
  return with({"model.layers=4", "model.hidden=32", "model.heads=4", "batch.global=12", "batch.slices=12",
               "batch.strands=12", "checkpoint.keep=9", fmt::format("run.steps={}", kSteps)},
              recipe.words);
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1;
  for (size_t k = 0; k < std::min(a.size(), b.size()); ++k)
    most = std::max(most, std::abs(a[k] - b[k]) / std::abs(b[k]));
  return most;
}

class Groups : public testing::TestWithParam<Recipe> {};

TEST_P(Groups, HaveOneRanksBitsInEveryLayout) {
  LS_NEEDS_HOST_MEMORY();
  const Words words = base_words(GetParam());
  const bool rounds = std::find(words.begin(), words.end(), "precision.compute=bf16") != words.end();
  const Outcome one = run_on(1, words);
  for (const Layout& layout : layouts()) {
    const Words all = with(words, layout.words);
    SCOPED_TRACE(fmt::format("{} ranks {}", layout.world, fmt::join(layout.words, " ")));
    const bool cuts = std::find(all.begin(), all.end(), "parallel.tensor=2") != all.end();
    if (cuts && std::find(all.begin(), all.end(), "model.hidden=28") != all.end()) {
      base::refusal(194,
                    [&] { make_plan(tiny_recipe(all), {}, {.seat = {.rank = 0, .world = layout.world}}); });
      continue;
    }
    const Outcome many = run_on(layout.world, all);
    if (layout.exact) {
      EXPECT_EQ(many, one);
      continue;
    }
    // Newton and Schulz make of each direction one of length one, also of those that rounding gave.
    EXPECT_LT(largest_difference(many.losses, one.losses), rounds ? 1e-2 : GetParam().whole ? 1e-3 : 2e-5);
  }
}

// Stopped in one layout, resumed in another.
TEST_P(Groups, GoOnInAnotherLayout) {
  LS_NEEDS_HOST_MEMORY();
  const Words words = base_words(GetParam());
  const base::TemporaryFolder run;
  const Outcome whole = run_on(4, with(words, {"parallel.zero=3"}), "", run.path());
  const std::string folder = fmt::format("{}/checkpoints/step-{:08d}", run.path(), kStop);
  struct Row {
    int world;
    Words words;
  };
  for (const Row& row :
       {Row{1, {}}, Row{3, {"parallel.zero=2"}}, Row{4, {"parallel.pipeline=2", "parallel.zero=1"}}}) {
    SCOPED_TRACE(fmt::format("{} ranks {}", row.world, fmt::join(row.words, " ")));
    const Outcome rest = run_on(row.world, with(words, row.words), folder);
    EXPECT_EQ(rest.hash, whole.hash);
    EXPECT_EQ(rest.losses, (std::vector<double>{whole.losses.begin() + kStop, whole.losses.end()}));
  }
}

// What the optimizer kept, element by element, of a checkpoint in fp32.
std::map<std::string, std::vector<float>> momentum_in(const std::string& folder) {
  std::map<std::string, std::vector<float>> all;
  const checkpoint::Opened opened(folder);
  for (const std::string& name : opened.names()) {
    checkpoint::Whole tensor = opened.find(name);
    if (!name.ends_with(".m") || tensor.dtype != device::DType::f32) continue;
    all[name].resize(static_cast<size_t>(tensor.shape.numel()));
    opened.read({{checkpoint::whole_piece(tensor), all[name].data()}});
  }
  return all;
}

void expect_near(const std::map<std::string, std::vector<float>>& found,
                 const std::map<std::string, std::vector<float>>& expected) {
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    double largest = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(values[i])));
      difference = std::max(difference, std::abs(static_cast<double>(values[i]) - found.at(name)[i]));
    }
    EXPECT_LE(difference, 1e-2 * largest) << name;
  }
}

// Tensor ranks that own whole matrices save what they keep for them, and it is read in any layout.
TEST_P(Groups, GoOnFromTensorRanks) {
  LS_NEEDS_HOST_MEMORY();
  if (!GetParam().whole) GTEST_SKIP() << "nothing is updated whole";
  const Words words = base_words(GetParam());
  for (const Words& layout : {Words{"parallel.tensor=2"}, Words{"parallel.tensor=2", "parallel.zero=1"}}) {
    const base::TemporaryFolder run;
    const int world = layout.size() == 1 ? 2 : 4;
    const Outcome whole = run_on(world, with(words, layout), "", run.path());
    const std::string folder = fmt::format("{}/checkpoints/step-{:08d}", run.path(), kStop);
    const std::vector<double> expected{whole.losses.begin() + kStop, whole.losses.end()};
    const Outcome rest = run_on(world, with(words, layout), folder);
    EXPECT_EQ(rest.hash, whole.hash);
    EXPECT_EQ(rest.losses, expected);
    EXPECT_LT(largest_difference(run_on(1, words, folder).losses, expected), 1e-2);
    const base::TemporaryFolder alone;
    run_on(1, words, "", alone.path());
    expect_near(momentum_in(folder),
                momentum_in(fmt::format("{}/checkpoints/step-{:08d}", alone.path(), kStop)));
  }
}

std::map<std::string, std::vector<char>> bytes_of(const Session& session, bool frozen) {
  std::map<std::string, std::vector<char>> all;
  for (const Parameters::Named& one : session.parameters->named()) {
    if (one.frozen != frozen) continue;
    std::vector<char>& bytes = all[one.name];
    bytes.resize(static_cast<size_t>(one.master.values.bytes()));
    session.parameters->read(one.master.values, bytes.data());
  }
  return all;
}

// What is frozen keeps its bytes; what is trained does not.
TEST_P(Groups, LeaveFrozenBytesAlone) {
  Session session(make_plan(tiny_recipe(base_words(GetParam())), {}));
  const auto frozen = bytes_of(session, true), trained = bytes_of(session, false);
  EXPECT_FALSE(trained.empty());
  for (int64_t step = 0; step < 3; ++step) one_step(session, step, 0.01f);
  EXPECT_EQ(bytes_of(session, true), frozen);
  for (const auto& [name, bytes] : bytes_of(session, false)) EXPECT_NE(bytes, trained.at(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, Groups,
    testing::Values(
        Recipe{"frozen_tied_embedding", {"tune.freeze=*wte*,*wpe*"}},
        Recipe{"frozen_bottom_bf16",
               {"tune.freeze=*.wte.*,*.wpe.*,*.h.0.*,*.h.1.*", "model.tied=false", "precision.compute=bf16"}},
        Recipe{"only_biases", {"tune.train=*.bias"}},
        Recipe{"only_the_head", {"tune.train=lm_head.*", "model.tied=false"}},
        Recipe{"scattered_llama",
               {"model.family=llama", "tune.train=*.0.mlp.down_proj.*,*.2.self_attn.*,*.3.*norm*",
                "model.dropout=0.1"}},
        Recipe{"rules_and_rates",
               {"optim.groups=*.attn.* kind=sgd lr_scale=3,*.mlp.* kind=lion lr_scale=0.1,*.bias "
                "weight_decay=0.3",
                "optim.layer_lr_decay=0.8", "optim.moments=bf16"}},
        Recipe{"muon", {"optim.name=muon"}, true},
        Recipe{"muon_bf16_frozen_llama",
               {"optim.name=muon", "model.family=llama", "precision.compute=bf16", "optim.moments=bf16",
                "tune.freeze=*.0.*", "model.tied=false"},
               true},
        Recipe{"lora_gpt2", {"tune.method=lora", "tune.rank=4", "model.dropout=0.1"}},
        Recipe{"lora_llama_dropout_head",
               {"model.family=llama", "model.kv_heads=2", "tune.method=lora", "tune.dropout=0.1",
                "tune.train=lm_head.*", "model.tied=false", "tune.scaling=sqrt", "optim.layer_lr_decay=0.9",
                "optim.groups=*.lora_B.* lr_scale=4"}},
        Recipe{"lora_llama_some_bf16",
               {"model.family=llama", "tune.method=lora", "tune.targets=q_proj,v_proj,*.3.mlp.*",
                "precision.compute=bf16"}},
        Recipe{"qlora_gpt2_nf4", {"model.hidden=128", "tune.method=lora", "tune.rank=4", "tune.base=nf4"}},
        Recipe{"qlora_llama_fp8_bf16",
               {"model.family=llama", "model.hidden=128", "model.kv_heads=2", "model.ffn=256",
                "tune.method=lora", "tune.base=fp8", "tune.targets=q_proj,v_proj,*.3.mlp.*",
                "tune.train=*norm*", "precision.compute=bf16"}},
        Recipe{"qlora_llama_part_of_a_block",
               {"model.family=llama", "model.hidden=28", "model.heads=2", "model.ffn=44", "tune.method=lora",
                "tune.base=nf4"}}),
    [](const auto& row) { return std::string(row.param.name); });

// Nothing but the values themselves is kept for what is frozen.
TEST(FrozenMemory, HoldsValuesAlone) {
  const auto bytes = [](const Words& words) {
    const Plan plan =
        make_plan(tiny_recipe(with({"model.layers=4", "model.hidden=32", "model.tied=false"}, words)), {});
    std::map<program::BufferKind, int64_t> by_kind;
    for (const program::Buffer& buffer : plan.program.buffers) {
      if (buffer.persistent || buffer.kind == program::BufferKind::gradient)
        by_kind[buffer.kind] += buffer.bytes();
    }
    by_kind[program::BufferKind::state] = plan.model->trained_count();  // for comparison
    return by_kind;
  };
  using enum program::BufferKind;
  const Words half = {"tune.freeze=*.wte.*,*.wpe.*,*.h.0.*,*.h.1.*"};
  auto all = bytes({"precision.compute=fp32"}), some = bytes(with(half, {"precision.compute=fp32"})),
       narrow = bytes(with(half, {"precision.compute=bf16"}));
  const double share = static_cast<double>(some[state]) / static_cast<double>(all[state]);
  EXPECT_LT(share, 0.6);
  for (const program::BufferKind kind : {master, optimizer, gradient})
    EXPECT_NEAR(static_cast<double>(some[kind]) / static_cast<double>(all[kind]), share, 0.02);
  EXPECT_NEAR(static_cast<double>(some[frozen] + some[master]), static_cast<double>(all[master]),
              0.02 * static_cast<double>(all[master]));
  EXPECT_EQ(2 * narrow[frozen], some[frozen]);  // in the type of products
  EXPECT_EQ(narrow[master], some[master]);
}

// Below the lowest trained parameter nothing runs backward, nothing is reduced, and nothing is gathered that
// is not read.
TEST(FrozenBlocks, HaveNoWayBack) {
  const Words words = {"model.layers=4", "tune.freeze=*wte*,*wpe*,*.h.0.*,*.h.1.*", "model.tied=false"};
  for (const char* layout : {"parallel.zero=0", "parallel.zero=3", "memory.recompute=full"}) {
    const Plan plan = make_plan(tiny_recipe(with(words, {layout})), {}, {.seat = {.rank = 0, .world = 2}});
    std::map<int, int> forward, backward, reduced;  // by block
    for (const program::Instruction& i : plan.program.instructions) {
      if (i.runs(program::Pass::forward)) ++forward[i.block];
      if (i.runs(program::Pass::backward_input) || i.runs(program::Pass::backward_weight) ||
          i.runs(program::Pass::recompute))
        ++backward[i.block];
      if (!i.is<program::ReduceGradients>()) continue;
      for (const program::Use& use : i.writes) ++reduced[use.block];
    }
    for (const int block : {0, 1, 2}) {
      EXPECT_GT(forward[block], 0);
      EXPECT_EQ(backward[block], 0) << layout << " block " << block;
      EXPECT_EQ(reduced[block], 0) << layout << " block " << block;
    }
    EXPECT_GT(backward[3], 0);
    EXPECT_GT(reduced[3], 0);
  }
}

// The hash is of the weights, not of how they are trained.
TEST(FrozenHash, IsThatOfTheValues) {
  const std::string fp32 = "precision.compute=fp32";  // frozen ones are kept in it
  const std::string plain = tiny_session({fp32}).parameters->hash();
  EXPECT_EQ(tiny_session({fp32, "tune.freeze=*.h.0.*"}).parameters->hash(), plain);
  EXPECT_EQ(tiny_session({"optim.groups=*.mlp.* kind=sgd"}).parameters->hash(), plain);
  EXPECT_EQ(tiny_session({"optim.name=muon"}).parameters->hash(), plain);
}

// Weights of a full run go into one that keeps some of them in bf16, rounded as products' copies are.
TEST(FrozenWeights, ComeFromAnyCheckpoint) {
  const base::TemporaryFolder run;
  const Words words = {"precision.compute=bf16", "model.tied=false"};
  Session whole = tiny_session(words);
  one_step(whole, 0, 0.01f);
  const std::string folder = save_checkpoint(whole, run.path(), 1);
  Session part = tiny_session(with(words, {"tune.freeze=*.h.*", "model.from=" + folder}));
  std::map<std::string, Parameters::Named> expected;
  for (const Parameters::Named& one : whole.parameters->named()) expected.emplace(one.name, one);
  const kernels::Kernels& kernels = kernels::kernels_for(whole.plan.device->id().kind);
  int seen = 0;
  for (const Parameters::Named& one : part.parameters->named()) {
    const int64_t count = one.shape.numel();
    if (!one.frozen) continue;
    ++seen;
    std::vector<uint16_t> found(static_cast<size_t>(count)), rounded(found.size());
    part.parameters->read(one.master.values, found.data());
    void* narrow = whole.plan.device->allocate(2 * count);
    kernels.cast(
        {device::DType::f32, device::DType::bf16, count, expected.at(one.name).master.values.data, narrow},
        {});
    whole.parameters->read({narrow, device::DType::bf16, {count}}, rounded.data());
    whole.plan.device->free(narrow);
    EXPECT_EQ(found, rounded) << one.name;
  }
  EXPECT_GT(seen, 10);
  // And what it saves is read again, bit for bit.
  const std::string again = save_checkpoint(part, run.path(), 2);
  Session back = tiny_session(with(words, {"tune.freeze=*.h.*"}));
  EXPECT_EQ(load_checkpoint(back, again), 2);
  EXPECT_EQ(back.parameters->hash(), part.parameters->hash());
}

TEST(GroupWords, AreRefusedWithAWayOut) {
  struct Row {
    Words words;
    int number;
    const char* says;
  };
  const Row rows[] = {
      {{"tune.freeze=*.wtf.*"}, 190, "matches no parameter"},
      {{"tune.freeze=transformer.wte.wieght"}, 190, "transformer.wte.weight"},
      {{"tune.train=*.mlpp.*"}, 190, ".mlp."},
      {{"optim.groups=*.x.* lr_scale=1"}, 190, "optim.groups"},
      {{"tune.freeze=*"}, 191, "nothing is left to train"},
      {{"tune.freeze=*q_proj*", "model.family=llama"}, 192, "k_proj"},
      {{"optim.groups=*.gate_proj.* kind=sgd", "model.family=llama"}, 192, "up_proj"},
      {{"optim.groups=*.mlp.* lr_scael=1"}, 142, "did you mean lr_scale?"},
      {{"optim.groups=*.mlp.* lr_scale=-1"}, 142, "from 0 to"},
      {{"optim.groups=lr_scale=1"}, 142, "no pattern"},
      {{"optim.groups=*.mlp.* frozen=maybe"}, 142, "neither true nor false"},
      {{"optim.groups=*.mlp.* *.attn.* frozen"}, 142, "stands alone"},
      {{"optim.groups=*.mlp.* kind=moun"}, 141, "muon"},
  };
  for (const Row& row : rows) {
    const std::string said = base::refusal(
        row.number, [&] { make_plan(tiny_recipe(row.words), {}, {.seat = {.rank = 0, .world = 2}}); });
    EXPECT_NE(said.find(row.says), std::string::npos) << said;
  }
}

// In a file a group is a table; the last word on each counts.
TEST(GroupWords, ComeAsTablesAndAsText) {
  const auto spec_of = [](const recipe::Resolved& recipe, const std::string& name) {
    const Plan plan = make_plan(recipe, {});
    for (const model::Block& block : plan.model->blocks) {
      for (const model::ParamSpec& spec : block.params()) {
        if (spec.name == name) return spec.train;
      }
    }
    ADD_FAILURE() << name;
    return model::Treatment{};
  };
  const std::string text =
      "[model]\nlayers = 2\nhidden = 16\nheads = 2\n[data]\nseq_len = 8\n[batch]\nglobal = 8\n"
      "[[optim.groups]]\nmatch = \"*.attn.*\"\nlr_scale = 0.25\nkind = \"sgd\"\n"
      "[[optim.groups]]\nmatch = \"*.attn.*.bias\"\nweight_decay = 0\nlr_scale = 2\n"
      "[tune]\nfreeze = [\"*wpe*\", \"*.h.0.mlp.*\"]\n";
  const recipe::Resolved tables = recipe::read_recipe({.text = text});
  const recipe::Resolved again = recipe::read_recipe({.text = recipe::write_toml(tables.recipe)});
  const recipe::Resolved words =
      tiny_recipe({"optim.groups=*.attn.* lr_scale=0.25 kind=sgd,*.attn.*.bias weight_decay=0 lr_scale=2",
                   "tune.freeze=*wpe*,*.h.0.mlp.*"});
  for (const recipe::Resolved& one : {tables, again, words}) {
    const model::Treatment weight = spec_of(one, "transformer.h.1.attn.c_attn.weight"),
                           bias = spec_of(one, "transformer.h.1.attn.c_attn.bias");
    EXPECT_EQ(weight.rate, 0.25f);
    EXPECT_FALSE(weight.weight_decay.has_value());
    EXPECT_EQ(weight.rule, 1);
    EXPECT_EQ(bias.rate, 2.0f);
    EXPECT_EQ(bias.weight_decay, 0.0f);
    EXPECT_EQ(bias.rule, 1);
    EXPECT_TRUE(spec_of(one, "transformer.h.0.mlp.c_fc.weight").frozen);
    EXPECT_FALSE(spec_of(one, "transformer.h.1.mlp.c_fc.weight").frozen);
  }
}

}  // namespace
}  // namespace lockstep::run

// LoRA runs: what their checkpoints hold, what is read back, and what is merged. Layouts and resuming in
// other layouts are rows of groups_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/refusal.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/audit.h"
#include "lockstep/checkpoint/export.h"
#include "lockstep/kernels/quantized/quantized_testing.h"
#include "lockstep/model/adapters.h"
#include "lockstep/run/loop/evaluate.h"
#include "lockstep/run/saving/saver.h"
#include "lockstep/run/session/adapter.h"
#include "lockstep/run/session/load.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

namespace fs = std::filesystem;
using checkpoint::Adapters;
using checkpoint::Opened;
using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A model in a folder, as a run of ours leaves it, of a family that keeps weights as [in, out] or [out, in].
std::string base_model(const base::TemporaryFolder& folder, const Words& words) {
  Session session = tiny_session(words);
  one_step(session, 0, 0.01f);
  const std::string exported = folder.path() + "/model";
  checkpoint::export_model(Opened(save_checkpoint(session, folder.path() + "/first", 1)), exported, {});
  return exported;
}

struct Row {
  const char* name;
  Words words;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class Lora : public testing::TestWithParam<Row> {
 protected:
  Words lora(const Words& more = {}) const {
    return with(GetParam().words, with({"tune.method=lora", "tune.rank=3", "model.from=" + under}, more));
  }
  base::TemporaryFolder folder;
  const std::string under = base_model(folder, GetParam().words);
  // A run of three steps, saved.
  std::string trained(const Words& more = {}) {
    Session session = tiny_session(lora(more));
    for (int64_t step = 0; step < 3; ++step) one_step(session, step, 0.05f);
    hash = session.parameters->hash();
    loss = Evaluator(session).run(2).value();
    return save_checkpoint(session, folder.path() + "/lora", 3);
  }
  std::string hash;
  double loss = 0;
};

std::vector<std::string> weights_in(const Opened& opened) {
  std::vector<std::string> names;
  for (const std::string& name : opened.names()) {
    if (opened.find(name).kind == checkpoint::Kind::weight) names.push_back(name);
  }
  return names;
}

TEST_P(Lora, CheckpointsHoldWhatIsTrainedUnderPeftsNames) {
  const std::string saved = trained();
  const Opened opened(saved);
  for (const std::string& name : weights_in(opened)) EXPECT_TRUE(checkpoint::is_adapter_tensor(name)) << name;
  const Session session = tiny_session(lora());
  EXPECT_EQ(weights_in(opened).size(), 2 * model::adapted_maps(*session.plan.model).size());
  for (const checkpoint::TensorFile* file : opened.files()) {
    if (fs::path(file->path()).filename() != "adapter_model.safetensors") continue;
    for (const auto& [name, entry] : file->entries())
      EXPECT_TRUE(name.starts_with("base_model.model.") && name.find(".lora_") != std::string::npos) << name;
  }
  const auto config = nlohmann::json::parse(base::read_file(saved + "/adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["r"], 3);
  EXPECT_TRUE(fs::equivalent(config["base_model_name_or_path"].get<std::string>(), under));
  EXPECT_EQ(config["fan_in_fan_out"], session.plan.recipe().model.family == "gpt2");
  EXPECT_FALSE(fs::exists(saved + "/model.safetensors.index.json"));
  EXPECT_EQ(opened.manifest()->params_hash, hash);
  checkpoint::audit(opened);
}

TEST_P(Lora, ResumesBitForBit) {
  Session whole = tiny_session(lora());
  const std::string expected = hash_after(whole, 5, 0.05f);
  const std::string saved = trained();
  Session rest = tiny_session(lora());
  EXPECT_EQ(load_checkpoint(rest, saved), 3);
  EXPECT_EQ(rest.parameters->hash(), hash);
  for (int64_t step = 3; step < 5; ++step) one_step(rest, step, 0.05f);
  EXPECT_EQ(rest.parameters->hash(), expected);
}

// Evaluated as it was trained, merged, as an adapter that PEFT could have made, and merged into a folder.
TEST_P(Lora, IsTheSameModelHoweverItIsRead) {
  const std::string saved = trained();
  const auto loss_of = [&](const Words& words) {
    Session session = tiny_session(with(GetParam().words, words));
    return Evaluator(session).run(2).value();
  };
  const std::string adapter = folder.path() + "/adapter", merged = folder.path() + "/merged";
  checkpoint::export_adapter(Opened(saved), adapter, {});
  checkpoint::export_model(Opened(saved, Adapters::merged), merged, {});
  EXPECT_EQ(loss_of({"tune.method=lora", "model.from=" + under, "tune.adapter=" + saved}), loss);
  EXPECT_EQ(loss_of({"tune.method=lora", "model.from=" + under, "tune.adapter=" + adapter}), loss);
  EXPECT_EQ(loss_of({"tune.method=lora", "model.from=" + under, "tune.adapter=" + folder.path() + "/lora"}),
            loss);
  for (const std::string& from : {saved, adapter, merged, folder.path() + "/lora"})
    EXPECT_NEAR(loss_of({"model.from=" + from}), loss, 1e-5 * loss) << from;
  EXPECT_GT(std::abs(loss_of({"model.from=" + under}) - loss), 1e-3);
  // A new adapter on a model with one begins where that ended; and its own checkpoints find their way down.
  EXPECT_NEAR(loss_of({"tune.method=lora", "model.from=" + saved}), loss, 1e-5 * loss);
  Session second = tiny_session(with(GetParam().words, {"tune.method=lora", "model.from=" + saved}));
  one_step(second, 0, 0.05f);
  const double again = Evaluator(second).run(2).value();
  const std::string deep = save_checkpoint(second, folder.path() + "/second", 1);
  EXPECT_NEAR(loss_of({"model.from=" + deep}), again, 1e-5 * again);
}

// By hand, element by element, in fp64.
TEST_P(Lora, MergesTheProduct) {
  const std::string saved = trained();
  const Opened apart(saved, Adapters::apart), merged(saved, Adapters::merged);
  const auto values = [](const Opened& from, const std::string& name) {
    checkpoint::Whole tensor = from.find(name);
    tensor.dtype = device::DType::f32;
    std::vector<float> all(static_cast<size_t>(tensor.shape.numel()));
    // In two pieces, the first of which ends within a row.
    const checkpoint::Piece whole = checkpoint::whole_piece(tensor);
    const int64_t first = whole.count / 2 - 3;
    from.read({{checkpoint::part_of(whole, 0, first), all.data()},
               {checkpoint::part_of(whole, first, whole.count - first), all.data() + first}});
    return all;
  };
  const bool by_input = tiny_recipe(GetParam().words).recipe.model.family == "gpt2";
  int seen = 0;
  for (const std::string& name : apart.names()) {
    if (!name.ends_with(model::kAdapterA)) continue;
    const std::string weight = checkpoint::adapted_weight(name);
    std::string other = name;
    other.replace(other.find("lora_A"), 6, "lora_B");
    const auto a = values(apart, name), b = values(apart, other), w = values(apart, weight),
               m = values(merged, weight);
    const int64_t rank = 3, in = apart.find(name).shape[1], out = apart.find(other).shape[0];
    for (int64_t o = 0; o < out; ++o) {
      for (int64_t i = 0; i < in; ++i) {
        double sum = 0;
        for (int64_t r = 0; r < rank; ++r)
          sum +=
              static_cast<double>(b[static_cast<size_t>(o * rank + r)]) * a[static_cast<size_t>(r * in + i)];
        const auto at = static_cast<size_t>(by_input ? i * out + o : o * in + i);
        ASSERT_NEAR(m[at], w[at] + 16.0 / 3 * sum, 1e-6) << weight << " " << o << " " << i;
      }
    }
    EXPECT_FALSE(merged.names().empty());
    ++seen;
  }
  EXPECT_GT(seen, 4);
}

TEST_P(Lora, RefusesAModelThatIsGoneOrAnother) {
  const std::string saved = trained();
  fs::rename(under, under + "-moved");
  EXPECT_NE(base::refusal(341, [&] { Opened(saved, Adapters::merged); }).find(under), std::string::npos);
  // Another model of the same shape.
  Session other = tiny_session(with(GetParam().words, {"run.seed=5"}));
  checkpoint::export_model(Opened(save_checkpoint(other, folder.path() + "/other", 1)), under, {});
  base::refusal(342, [&] { Opened(saved, Adapters::apart); });
  Session rest = tiny_session(lora());
  base::refusal(342, [&] { load_checkpoint(rest, saved); });
}

INSTANTIATE_TEST_SUITE_P(
    Families, Lora,
    testing::Values(Row{"gpt2", with({"model.tied=false"}, without_rounding())},
                    Row{"llama", with({"model.family=llama", "model.kv_heads=1"}, without_rounding())},
                    Row{"gpt_neox", with({"model.family=gpt_neox"}, without_rounding())}),
    [](const auto& row) { return std::string(row.param.name); });

// Without a folder of its own the model is saved too, and all the rest works.
TEST(LoraFromNothing, SavesWholeCheckpoints) {
  const base::TemporaryFolder folder;
  const Words model = with({"model.family=llama"}, without_rounding());
  const Words words = with(model, {"tune.method=lora", "tune.alpha=5", "tune.scaling=sqrt"});
  Session session = tiny_session(words);
  for (int64_t step = 0; step < 2; ++step) one_step(session, step, 0.05f);
  const double loss = Evaluator(session).run(2).value();
  const std::string saved = save_checkpoint(session, folder.path(), 2);
  checkpoint::audit(Opened(saved));
  Session back = tiny_session(words);
  load_checkpoint(back, saved);
  EXPECT_EQ(back.parameters->hash(), session.parameters->hash());
  Session apart = tiny_session(with(words, {"model.from=" + saved, "tune.adapter=" + saved}));
  EXPECT_EQ(Evaluator(apart).run(2).value(), loss);
  Session merged = tiny_session(with(model, {"model.from=" + saved}));
  EXPECT_NEAR(Evaluator(merged).run(2).value(), loss, 1e-5 * loss);
}

// What the recipe leaves alone is the adapter's; what it says must agree.
TEST(LoraAdapter, SetsItsOwnKeys) {
  const base::TemporaryFolder folder;
  const Words llama = {"model.family=llama", "model.tied=false"};
  const std::string under = base_model(folder, llama);
  const Words words = with(llama, {"tune.method=lora", "model.from=" + under});
  Session session = tiny_session(with(words, {"tune.rank=5", "tune.alpha=7", "tune.scaling=sqrt",
                                              "tune.targets=q_proj,up_proj", "tune.train=lm_head.*"}));
  one_step(session, 0, 0.05f);
  const std::string saved = save_checkpoint(session, folder.path() + "/lora", 1);
  const std::string adapter = "tune.adapter=" + saved;
  const Session same = tiny_session(with(words, {adapter}));
  const recipe::Recipe::Tune& tune = same.plan.recipe().tune;
  EXPECT_EQ(tune.rank, 5);
  EXPECT_EQ(tune.alpha, 7);
  EXPECT_EQ(tune.scaling, "sqrt");
  EXPECT_EQ(model::adapted_maps(*same.plan.model), model::adapted_maps(*session.plan.model));
  EXPECT_EQ(same.parameters->hash(), session.parameters->hash());
  const std::string said = base::refusal(197, [&] { tiny_session(with(words, {adapter, "tune.rank=4"})); });
  EXPECT_NE(said.find("tune.rank"), std::string::npos) << said;
  const std::string fewer = base::refusal(343, [&] {
    tiny_session(with(words, {adapter, "tune.targets=q_proj"}));
  });
  EXPECT_NE(fewer.find("up_proj"), std::string::npos) << fewer;
  const std::string more = base::refusal(343, [&] {
    tiny_session(with(words, {adapter, "tune.targets=all"}));
  });
  EXPECT_NE(more.find("has no"), std::string::npos) << more;
}

TEST(LoraAdapter, IsRefusedWithoutItsConfigOrOnItself) {
  const base::TemporaryFolder folder;
  const std::string under = base_model(folder, {"model.tied=false"});
  const Words words = {"model.tied=false", "tune.method=lora", "model.from=" + under};
  Session session = tiny_session(words);
  const std::string saved = save_checkpoint(session, folder.path() + "/lora", 1);
  const std::string one = folder.path() + "/one", other = folder.path() + "/other";
  for (const std::string& copy : {one, other}) checkpoint::export_adapter(Opened(saved), copy, {});
  const auto name_base = [](const std::string& of, const std::string& base_folder) {
    checkpoint::AdapterConfig config = *Opened(of).adapter();
    config.base = base_folder;
    std::ofstream(of + "/adapter_config.json") << checkpoint::adapter_config_text(config);
  };
  name_base(one, other);
  name_base(other, one);
  EXPECT_NE(base::refusal(341, [&] { Opened(one, Adapters::merged); }).find("on itself"), std::string::npos);
  name_base(one, one);
  EXPECT_NE(base::refusal(341, [&] { Opened(one, Adapters::merged); }).find("itself"), std::string::npos);
  name_base(one, "meta-llama/Llama-3.2-1B");
  base::refusal(341, [&] { Opened(one, Adapters::merged); });
  fs::remove(one + "/adapter_config.json");
  base::refusal(340, [&] { tiny_session(with(words, {"tune.adapter=" + one})); });
}

TEST(LoraWords, AreRefusedWithAWayOut) {
  struct Refused {
    Words words;
    int number;
    const char* says;
  };
  const Refused rows[] = {
      {{"tune.targets=q_proj"}, 195, "c_attn, c_proj, c_fc"},
      {{"tune.targets=c_attn,*.h.7.*"}, 195, "h.7"},
      {{"precision.compute=fp8"}, 185, "lora"},
      {{"tune.freeze=*"}, 191, "nothing is left to train"},
      {{"tune.adapter=/nowhere"}, 306, "/nowhere"},
      {{"model.family=llama", "tune.freeze=*q_proj.lora_A*"}, 192, "k_proj"},
  };
  for (const Refused& row : rows) {
    const std::string said =
        base::refusal(row.number, [&] { make_plan(tiny_recipe(with({"tune.method=lora"}, row.words)), {}); });
    EXPECT_NE(said.find(row.says), std::string::npos) << said;
  }
}

// The first step sees the model as it is, whatever A begins with; and dropout does not reach evaluation.
TEST(LoraStart, IsTheModelItself) {
  Session plain = tiny_session({"model.family=llama"});
  const double loss = Evaluator(plain).run(2).value();
  Session lora = tiny_session({"model.family=llama", "tune.method=lora", "tune.dropout=0.5"});
  EXPECT_EQ(Evaluator(lora).run(2).value(), loss);
  EXPECT_EQ(one_step(lora, 0, 0.0f).loss, one_step(plain, 0, 0.0f).loss);
}

// What tune.base is measured by: each weight of a linear map replaced by the nearest of the paper's levels
// times the largest of its 64, written out once more.
std::vector<float> nearest_nf4(const std::vector<float>& values) {
  std::vector<float> rounded;
  for (size_t i = 0; i < values.size(); ++i) {
    float largest = 0;
    for (size_t k = i / 64 * 64; k < std::min(values.size(), i / 64 * 64 + 64); ++k)
      largest = std::max(largest, std::abs(values[k]));
    double best = 0;
    for (const double level : kernels::testing::kNf4Levels) {
      const double wanted = largest > 0 ? static_cast<double>(values[i]) / largest : 0;
      if (std::abs(level - wanted) < std::abs(best - wanted)) best = level;
    }
    rounded.push_back(static_cast<float>(best) * largest);
  }
  return rounded;
}

// A model whose linear maps hold NF4's values.
std::string rounded_model(const base::TemporaryFolder& folder, const Words& words, const std::string& from) {
  Session session = tiny_session(with(words, {"model.from=" + from}));
  const std::vector<std::string> maps = model::map_weights(*session.plan.model);
  for (const Parameters::Named& one : session.parameters->named()) {
    if (std::find(maps.begin(), maps.end(), one.name) == maps.end()) continue;
    std::vector<float> values(static_cast<size_t>(one.shape.numel()));
    session.parameters->read(one.master.values, values.data());
    session.parameters->write(one.master.values, nearest_nf4(values).data());
  }
  const std::string exported = folder.path() + "/rounded";
  checkpoint::export_model(Opened(save_checkpoint(session, folder.path() + "/rounded_run", 1)), exported, {});
  return exported;
}

// Training beside quantized weights is training beside the values that they stand for: losses, bits, what is
// merged.
TEST_P(Lora, QuantizedWeightsAreTheModelOfTheirValues) {
  const std::string values = rounded_model(folder, GetParam().words, under);
  const Words quantized = lora({"tune.base=nf4"});
  const Words plain = with(lora(), {"model.from=" + values});
  Session one = tiny_session(quantized), other = tiny_session(plain);
  EXPECT_EQ(one.parameters->hash(), other.parameters->hash());
  for (int64_t step = 0; step < 3; ++step)
    EXPECT_EQ(one_step(one, step, 0.05f).loss, one_step(other, step, 0.05f).loss) << "step " << step;
  const std::string end = one.parameters->hash();
  EXPECT_EQ(end, other.parameters->hash());
  const double last = Evaluator(one).run(2).value();
  EXPECT_EQ(last, Evaluator(other).run(2).value());
  // Resumed, merged, and used without it.
  const std::string saved = save_checkpoint(one, folder.path() + "/quantized", 3);
  Session rest = tiny_session(quantized);
  EXPECT_EQ(load_checkpoint(rest, saved), 3);
  EXPECT_EQ(rest.parameters->hash(), end);
  for (const char* other : {"tune.base=compute", "tune.base=fp8"}) {
    Session changed = tiny_session(lora({other}));
    EXPECT_NE(base::refusal(169, [&] { load_checkpoint(changed, saved); }).find("\"nf4\""),
              std::string::npos);
  }
  const auto loss_of = [&](const Words& words) {
    Session session = tiny_session(with(GetParam().words, words));
    return Evaluator(session).run(2).value();
  };
  const std::string merged = folder.path() + "/merged";
  checkpoint::export_model(Opened(saved, Adapters::merged), merged, {});
  for (const std::string& from : {saved, merged})
    EXPECT_NEAR(loss_of({"model.from=" + from}), last, 1e-5 * last) << from;
  EXPECT_NE(loss_of({"tune.method=lora", "model.from=" + under, "tune.adapter=" + saved}), last);
}

// A whole checkpoint, without a model's folder, holds the values in fp32 and gives the same codes again.
TEST(LoraBase, ComesBackFromAWholeCheckpoint) {
  for (const char* base : {"nf4", "fp8"}) {
    const Words words = {"tune.method=lora", std::string("tune.base=") + base, "precision.compute=bf16"};
    const base::TemporaryFolder run;
    Session first = tiny_session(words);
    one_step(first, 0, 0.05f);
    const std::string saved = save_checkpoint(first, run.path(), 1), hash = first.parameters->hash();
    Session rest = tiny_session(with(words, {"run.seed=99"}));
    EXPECT_NE(rest.parameters->hash(), hash);
    EXPECT_EQ(load_checkpoint(rest, saved), 1);
    EXPECT_EQ(rest.parameters->hash(), hash);
    EXPECT_EQ(Opened(saved).manifest()->params_hash, hash);
  }
}

// 4.5 and 8.5 bits a weight, and one segment's weights at a time in the type of products.
TEST(LoraBase, TakesTheMemoryThatItPromises) {
  const auto bytes = [](const std::string& base) {
    const Plan plan =
        make_plan(tiny_recipe({"model.family=llama", "model.hidden=128", "model.ffn=256", "model.layers=8",
                               "tune.method=lora", "precision.compute=bf16", "tune.base=" + base}),
                  {});
    std::map<program::BufferKind, int64_t> by_kind;
    for (const program::Buffer& buffer : plan.program.buffers) {
      if (buffer.persistent) by_kind[buffer.kind] += buffer.bytes();
    }
    return by_kind;
  };
  using enum program::BufferKind;
  auto plain = bytes("compute"), nf4 = bytes("nf4"), fp8 = bytes("fp8");
  EXPECT_EQ(plain[quantized], 0);
  const int64_t weights = (plain[frozen] - nf4[frozen]) / 2;  // of linear maps
  EXPECT_EQ(weights, 8 * (4 * 128 * 128 + 3 * 128 * 256));
  EXPECT_EQ(nf4[quantized], weights * 9 / 16);
  EXPECT_EQ(fp8[quantized], weights * 17 / 16);
  EXPECT_EQ(nf4[frozen], fp8[frozen]);
}

TEST(LoraBase, RefusesWeightsThatAreNotFinite) {
  const base::TemporaryFolder folder;
  Session broken = tiny_session({});
  for (const Parameters::Named& one : broken.parameters->named()) {
    if (one.name.find("c_fc.weight") == std::string::npos) continue;
    std::vector<float> values(static_cast<size_t>(one.shape.numel()), INFINITY);
    broken.parameters->write(one.master.values, values.data());
  }
  const std::string saved = save_checkpoint(broken, folder.path(), 1);
  const std::string said = base::refusal(348, [&] {
    tiny_session({"tune.method=lora", "tune.base=nf4", "model.from=" + saved});
  });
  EXPECT_NE(said.find("c_fc.weight"), std::string::npos) << said;
}

TEST(LoraConfig, IsReadFromPeftsFileAndNothingMore) {
  const auto parse = [](const std::string& text) { return checkpoint::parse_adapter_config(text, "here"); };
  const checkpoint::AdapterConfig config = parse(
      R"({"peft_type": "LORA", "r": 4, "lora_alpha": 6, "use_rslora": true, "target_modules": "all-linear",
          "base_model_name_or_path": "llama", "rank_pattern": {}, "use_dora": false, "bias": "none"})");
  EXPECT_EQ(config.rank, 4);
  EXPECT_EQ(config.scale(), 3);
  EXPECT_EQ(config.base, "llama");
  EXPECT_EQ(parse(adapter_config_text(config)).scale(), 3);
  for (const char* start : {"true", "false", "null", "\"gaussian\"", "\"eva\""})
    EXPECT_EQ(parse(fmt::format(R"({{"r": 2, "init_lora_weights": {}}})", start)).rank, 2) << start;
  for (const char* text :
       {"[]", "{", R"({"peft_type": "IA3"})", R"({"r": 0})", R"({"r": 1.5})", R"({"r": "8"})",
        R"({"r": 1e9})", R"({"use_dora": true})", R"({"rank_pattern": {"q_proj": 4}})", R"({"bias": "all"})",
        R"({"lora_alpha": -1})", R"({"lora_alpha": 0})", R"({"use_rslora": "yes"})",
        R"({"lora_alpha": null, "r": -3})", R"({"init_lora_weights": "pissa_niter_4"})",
        R"({"init_lora_weights": "olora"})"}) {
    base::refusal(340, [&] { parse(text); });
  }
}

}  // namespace
}  // namespace lockstep::run

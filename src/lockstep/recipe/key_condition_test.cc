#include "lockstep/recipe/key_condition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::recipe {
namespace {

// As a plan leaves it: nothing "auto" that a condition asks for.
Resolved resolve_all(Resolved resolved) {
  if (resolved.recipe.data.kind == "auto")
    resolved.recipe.data.kind = resolved.recipe.data.path.empty() ? "grammar" : "text";
  if (resolved.recipe.precision.compute == "auto") resolved.recipe.precision.compute = "fp32";
  return resolved;
}

// The names of the keys that are set in vain.
std::string without_effect(const Resolved& resolved, Circumstances run) {
  std::vector<std::string> names;
  for (const std::string& line : keys_without_effect(resolved, run))
    names.push_back(line.substr(0, line.find(' ')));
  return base::join(names, " ");
}

struct Row {
  std::vector<std::string> words;
  const char* without_effect;
};

TEST(KeysWithoutEffect, NamesKeysThatDoNothing) {
  const std::vector<Row> rows = {
      {{}, ""},
      {{"optim.lr=1e-3", "model.layers=2", "batch.global=32"}, ""},
      {{"data.eval_path=x"}, "data.eval_path"},
      {{"data.path=x", "data.eval_path=y"}, ""},
      {{"data.path=x", "data.eval_path=y", "data.eval_fraction=0.1"}, "data.eval_fraction"},
      {{"data.eval_fraction=0.1"}, "data.eval_fraction"},
      {{"data.path=x", "data.eval_fraction=0.1"}, ""},
      {{"data.field=body"}, "data.field"},
      {{"data.field=body", "data.kind=jsonl", "data.path=x"}, ""},
      {{"data.kind=text", "data.path=x", "data.grammar_seed=3"}, "data.grammar_seed"},
      {{"optim.momentum=0.5"}, "optim.momentum"},
      {{"optim.momentum=0.9"}, "optim.momentum"},  // said, though it is the default
      {{"optim.momentum=0.5", "optim.name=sgd"}, ""},
      {{"optim.beta1=0.8", "optim.beta2=0.9", "optim.epsilon=1e-6", "optim.name=sgd"},
       "optim.beta1 optim.beta2 optim.epsilon"},
      {{"optim.epsilon=1e-6", "optim.beta2=0.9", "optim.name=lion"}, "optim.epsilon"},
      {{"optim.min_lr=0.2", "optim.schedule=constant"}, "optim.min_lr"},
      {{"optim.decay_fraction=0.2"}, "optim.decay_fraction"},
      {{"optim.decay_fraction=0.2", "optim.decay_steps=9", "optim.schedule=wsd"}, ""},
      {{"optim.decay_steps=9", "optim.schedule=inverse_sqrt"}, "optim.decay_steps"},
      {{"optim.decay_all=true", "optim.weight_decay=0"}, "optim.decay_all"},
      {{"optim.base_batch=32"}, "optim.base_batch"},
      {{"optim.base_batch=32", "optim.lr_scale=sqrt"}, ""},
      {{"parallel.schedule=gpipe"}, "parallel.schedule"},
      {{"parallel.stages=2,2"}, "parallel.stages"},
      {{"parallel.chunks=2", "parallel.pipeline=2"}, "parallel.chunks"},
      {{"parallel.chunks=2", "parallel.pipeline=2", "parallel.schedule=interleaved"}, ""},
      {{"parallel.sequence=true"}, "parallel.sequence"},
      {{"parallel.sequence=true", "parallel.tensor=2"}, ""},
      {{"parallel.context_form=heads"}, "parallel.context_form"},
      {{"parallel.zero=3"}, "parallel.zero"},
      {{"parallel.engine=gloo", "parallel.timeout=9", "log.fingerprint_every=5"},
       "parallel.engine parallel.timeout log.fingerprint_every"},
      {{"checkpoint.replicas=1", "checkpoint.snapshot_every=3", "run.hang_timeout=9"},
       "run.hang_timeout checkpoint.snapshot_every checkpoint.replicas"},
      {{"precision.fp8_head=true"}, "precision.fp8_head"},
      {{"precision.fp8_head=true", "precision.compute=fp8"}, ""},
      {{"precision.loss_scale=1024", "precision.tf32=false"}, "precision.tf32 precision.loss_scale"},
      {{"model.rope_theta=5e5"}, "model.rope_theta"},
      {{"model.rope_theta=5e5", "model.family=llama"}, ""},
      {{"model.rope_type=linear", "model.family=llama"}, "model.rope_type"},
      {{"model.rope_type=linear", "model.rope_low_freq=2", "model.rope_scaling=2", "model.family=llama"},
       "model.rope_low_freq"},
      {{"model.heads=8", "model.family=mlp"}, "model.heads"},
      {{"model.kv_heads=2", "model.head_dim=7", "model.family=mlp"}, "model.kv_heads model.head_dim"},
      {{"model.kv_heads=4", "model.family=mlp"}, ""},  // what "auto" comes to: a config.toml says so
      {{"model.init_std=0.1", "model.from=x"}, "model.init_std"},
  };
  for (const Row& row : rows) {
    const Resolved resolved = resolve_all(read_recipe({.overrides = row.words}));
    EXPECT_EQ(without_effect(resolved, {.recipe = resolved.recipe}), row.without_effect)
        << base::join(row.words, " ");
  }
}

TEST(KeysWithoutEffect, SaysWhy) {
  const Resolved resolved = resolve_all(read_recipe({.overrides = {"optim.momentum=0.5"}}));
  EXPECT_EQ(
      keys_without_effect(resolved, {.recipe = resolved.recipe}).at(0),
      "optim.momentum = 0.5 (command line) has no effect: it applies to optim.name = sgd or muon, but that "
      "is adamw");
}

// An optimizer of a parameter group reads its keys as well.
TEST(KeysWithoutEffect, GroupsReadKeysToo) {
  const auto of = [](const std::string& groups) {
    const Resolved resolved =
        resolve_all(read_recipe({.overrides = {"optim.momentum=0.5", "optim.groups=" + groups}}));
    return without_effect(resolved, {.recipe = resolved.recipe});
  };
  EXPECT_EQ(of("a kind=muon,b kind=lion"), "");
  EXPECT_EQ(of("a kind=sgd"), "");
  EXPECT_EQ(of("a kind=lion"), "optim.momentum");
}

TEST(KeysWithoutEffect, DependsOnTheRun) {
  const std::vector<std::string> words = {
      "run.name=a",           "parallel.zero=3",    "checkpoint.replicas=1", "checkpoint.snapshot_every=2",
      "precision.tf32=false", "log.eval_batches=2", "log.folder=x",
  };
  const Resolved resolved = resolve_all(read_recipe({.overrides = words}));
  const Recipe& recipe = resolved.recipe;
  EXPECT_EQ(
      without_effect(resolved, {.recipe = recipe, .ranks = 2, .nodes = 2, .gpu = true, .launched = true}),
      "");
  EXPECT_EQ(without_effect(resolved, {.recipe = recipe, .evaluates = false, .folder_given = true}),
            "run.name precision.tf32 parallel.zero checkpoint.snapshot_every checkpoint.replicas "
            "log.eval_batches log.folder");
}

TEST(KeysWithoutEffect, WhatNobodyChoseIsNotNamed) {
  base::TemporaryFolder folder;
  // The recipe that the program carries, and files that name every key, say much that does not count.
  Resolved resolved = resolve_all(read_recipe({.default_recipe = true, .overrides = {"model.family=mlp"}}));
  EXPECT_EQ(without_effect(resolved, {.recipe = resolved.recipe}), "");
  for (const std::string& text : {commented_recipe(), write_toml(Recipe{})}) {
    resolved = resolve_all(read_recipe({.file = folder.write("all.toml", text)}));
    EXPECT_EQ(without_effect(resolved, {.recipe = resolved.recipe}), "");
  }
  resolved = resolve_all(read_recipe({.file = folder.write("one.toml", "[optim]\nmomentum = 0.5\n")}));
  EXPECT_EQ(without_effect(resolved, {.recipe = resolved.recipe}), "optim.momentum");
}

// A condition asks for keys by name: all of them are there, and each says something when it is broken.
TEST(Conditions, AreSound) {
  const Recipe recipe;
  size_t conditional = 0;
  for (const Key& key : recipe_keys()) {
    EXPECT_EQ(key.counts.when.empty(), key.counts.broken == nullptr) << key.name;
    if (!key.counts.broken) continue;
    ++conditional;
    EXPECT_NO_THROW(static_cast<void>(key.counts.broken({.recipe = recipe}))) << key.name;
  }
  EXPECT_GT(conditional, 40u);
}

}  // namespace
}  // namespace lockstep::recipe

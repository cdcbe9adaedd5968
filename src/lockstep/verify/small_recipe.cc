#include "lockstep/verify/small_recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/kind.h"
#include "lockstep/model/adapters.h"
#include "lockstep/model/families/family.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/segments/rope.h"
#include "lockstep/plan/layout.h"
#include "lockstep/recipe/groups.h"

namespace lockstep::verify {
namespace {

constexpr int64_t kLayers = 6, kMostHeads = 16, kHeadWidth = 16, kSequence = 64, kSamplesPerSlice = 2,
                  kSlices = 8, kMostRanks = 16;

// The smallest size from `least` on that the same numbers of ranks divide as `whole`, into parts that are
// multiples of `unit` or not: what the recipe refuses is refused here, and nothing else.
int64_t divided_like(int64_t whole, int64_t least, int64_t unit) {
  const auto alike = [&](int64_t size) {
    for (int64_t ranks = 1; ranks <= kMostRanks; ++ranks) {
      for (const int64_t each : {ranks, ranks * unit}) {
        if ((size % each == 0) != (whole % each == 0)) return false;
      }
    }
    return true;
  };
  while (least < whole && !alike(least)) ++least;
  return std::min(least, whole);
}

// As many factors as narrower heads have rotations.
void shrink_factors(recipe::Recipe::Model& m) {
  for (std::string* text : {&m.rope_short_factor, &m.rope_long_factor}) {
    std::vector<double> factors = model::rope_factors(*text);
    factors.resize(std::min(factors.size(), static_cast<size_t>(m.head_dim.value / 2)));
    *text = fmt::format("{}", fmt::join(factors, ","));
  }
}

// Sizes that shrink together. The same numbers of ranks divide the heads, and as many stages have a block
// each: `pieces` is the most that a layout cuts the model into.
void shrink_model(recipe::Recipe& recipe, int64_t data_vocab, int64_t pieces) {
  auto& m = recipe.model;
  const int64_t hidden = m.hidden, ffn = m.ffn.value, across = m.heads * m.head_dim.value,
                unit = model::product_unit(recipe);
  int64_t heads = m.heads, kv_heads = std::max<int64_t>(1, m.kv_heads.value);
  m.preset = "";
  m.from = "";
  recipe.tune.adapter = "";  // of the large model
  m.layers = std::min(m.layers, std::max(kLayers, pieces));
  if (heads > kMostHeads) {
    const int64_t group = heads / kv_heads;
    kv_heads = divided_like(kv_heads, group == 1 ? kMostHeads : 1, 1);
    heads = kv_heads * (group == 1 ? 1 : std::clamp<int64_t>(2 * kMostHeads / kv_heads, 2, group));
  }
  const int64_t narrow = heads * (heads > kMostHeads && unit == 1 ? kHeadWidth / 2 : kHeadWidth);
  if (narrow < hidden) {
    m.heads = heads;
    m.kv_heads = kv_heads;
    m.hidden = narrow;
    const int64_t even = std::max<int64_t>(2, unit);  // a rotation turns pairs
    m.head_dim = std::max(even, narrow * across / hidden / heads / even * even);
    m.ffn = divided_like(ffn, std::max<int64_t>(48, ffn * narrow / hidden), unit);
  }
  if (m.rope_type == "longrope") shrink_factors(m);
  m.vocab = divided_like(m.vocab.value, data_vocab, unit);
  m.context = recipe::AutoInt();
}

void shrink_run(recipe::Recipe& recipe, int64_t steps, int64_t ranks) {
  recipe.run.steps = steps;
  recipe.precision.tf32 = false;  // fp32 is compared as fp32
  recipe.run.threads = 1;         // ranks share the cores
  const int64_t alike = divided_like(recipe.data.seq_len, kSequence / 2 + 1, model::product_unit(recipe));
  // In fp8 each piece of a slice has a multiple of tokens, too.
  const int64_t pieces = std::max(recipe.batch.sequence_strands, std::min(ranks, kMostRanks));
  const int64_t least = model::product_unit(recipe) * pieces / kSamplesPerSlice;
  const bool pieces_fit = model::product_unit(recipe) > 1 && recipe.data.seq_len % least == 0;
  recipe.data.seq_len = alike <= 2 * kSequence ? alike : pieces_fit ? std::max(kSequence, least) : kSequence;
  recipe.data.workers = 1;
  int64_t slices = kSlices;
  while (slices < ranks) slices *= 2;
  recipe.batch.global = slices * kSamplesPerSlice;
  recipe.batch.slices = slices;
  recipe.batch.strands = slices;  // "auto" would be other bits on more than eight ranks
  recipe.checkpoint.every = 1;
  if (recipe::find_key("checkpoint.async") != nullptr) recipe::set_value(recipe, "checkpoint.async", "false");
  recipe.checkpoint.keep = steps;
  recipe.log.every = 1;
  recipe.log.eval_every = 0;
  recipe.log.eval_batches = 1;
  recipe.log.fingerprint = true;
}

// The same of maps that have adapters; if none is left, all have.
void drop_targets(recipe::Recipe& recipe) {
  if (recipe.tune.method != "lora") return;
  recipe::Recipe plain = recipe;
  plain.tune.method = "full";
  const model::Model model = model::build_model(plain, device::DType::f32);
  std::vector<std::string> targets = model::adapter_options(recipe.tune).targets;
  std::erase_if(targets, [&](const std::string& target) {
    const model::AdapterOptions one{.targets = {target}};
    for (const model::Block& block : model.blocks) {
      for (const auto& segment : block.segments()) {
        for (const std::string& map : segment->adaptable()) {
          if (one.wants(map)) return false;
        }
      }
    }
    return true;
  });
  recipe.tune.targets = targets.empty() ? "all" : base::join(targets, ",");
}

bool can_be_opened(const recipe::Recipe& recipe) {
  try {
    return data::open_dataset(recipe) != nullptr;
  } catch (const base::DataError&) {
    return false;
  }
}

// Of pairs, at least one is needed: samples are as long as that takes.
void shrink_preferences(recipe::Recipe& recipe, int64_t longest) {
  recipe.data.on_error = "skip";
  while (recipe.data.seq_len < longest && !can_be_opened(recipe))
    recipe.data.seq_len = std::min(2 * recipe.data.seq_len, longest);
}

// What short samples make of conversations: those are left out whose answers lie beyond, and where that is
// all of them, questions are trained on too.
void shrink_conversations(recipe::Recipe& recipe, int64_t longest) {
  if (recipe.data.kind == "preference") return shrink_preferences(recipe, longest);
  if (recipe.data.kind != "chat") return;
  recipe.data.on_error = "skip";
  if (!can_be_opened(recipe)) recipe.data.train_on = "all";
}

// Patterns of names that only the large model has, as those of its tenth layer.
void drop_unmatched(recipe::Recipe& recipe) {
  drop_targets(recipe);
  if (recipe.tune.freeze.empty() && recipe.tune.train.empty() && recipe.optim.groups.empty()) return;
  const model::Model model = model::build_model(recipe, device::DType::f32);
  const auto known = [&](const std::string& pattern) {
    for (const model::Block& block : model.blocks) {
      for (const model::ParamSpec& spec : block.params()) {
        if (recipe::matches(pattern, spec.name)) return true;
      }
    }
    return false;
  };
  for (std::string* list : {&recipe.tune.freeze, &recipe.tune.train}) {
    std::vector<std::string> patterns = recipe::read_patterns(*list);
    std::erase_if(patterns, [&](const std::string& pattern) { return !known(pattern); });
    *list = base::join(patterns, ",");
  }
  std::vector<recipe::ParamGroup> groups = recipe::read_groups(recipe.optim.groups);
  std::erase_if(groups, [&](const recipe::ParamGroup& group) { return !known(group.match); });
  recipe.optim.groups = recipe::write_groups(groups);
}

}  // namespace

Small small_recipe(const recipe::Resolved& resolved, int64_t steps, int64_t ranks, int64_t pieces) {
  recipe::Resolved whole = resolved;
  data::resolve_kind(whole);  // with the tokenizer of model.from, which the small model does not come from
  const std::unique_ptr<data::Dataset> dataset = data::open_dataset(whole.recipe);
  model::resolve_model(whole, dataset->vocab());
  Small small{.recipe = whole.recipe, .changes = {}};
  plan::take_layout_off(small.recipe);
  shrink_model(small.recipe, dataset->vocab(), pieces);
  shrink_run(small.recipe, steps, ranks);
  shrink_conversations(small.recipe, whole.recipe.data.seq_len);
  for (const char* name : {"model.layers", "model.hidden", "model.heads", "model.ffn", "model.vocab",
                           "data.seq_len", "batch.global"}) {
    const recipe::Key& key = *recipe::find_key(name);
    const std::string before = recipe::value_text(key, whole.recipe),
                      after = recipe::value_text(key, small.recipe);
    if (before != after) small.changes.push_back(fmt::format("{} {} -> {}", name, before, after));
  }
  recipe::Resolved again{.recipe = small.recipe, .origin = resolved.origin};
  model::resolve_model(again, dataset->vocab());
  small.recipe = again.recipe;
  drop_unmatched(small.recipe);
  return small;
}

std::vector<BlockNames> blocks_of(const recipe::Recipe& recipe) {
  std::vector<BlockNames> blocks;
  for (const model::Block& block : model::build_model(recipe, device::DType::f32).blocks) {
    BlockNames names{.name = block.name(), .params = {}};
    for (const model::ParamSpec& param : block.params()) {
      if (param.tied_to.empty()) names.params.push_back(param.name);
    }
    blocks.push_back(std::move(names));
  }
  return blocks;
}

}  // namespace lockstep::verify

#include "lockstep/run/session/param_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/model/adapters.h"
#include "lockstep/recipe/groups.h"

namespace lockstep::run {

namespace {

using base::ConfigError;
using model::ParamSpec;
using model::Treatment;

// A tensor with all names that it has, as this rank holds it.
struct Tensor {
  ParamSpec spec;
  size_t block = 0;
  std::vector<std::string> names;  // its own first, then those of what is tied to it
  Treatment train;
  bool matches(const std::string& pattern) const {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return recipe::matches(pattern, name); });
  }
};

std::vector<Tensor> tensors_of(const model::Model& model) {
  std::vector<Tensor> tensors;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    for (const ParamSpec& spec : model.blocks[b].params()) {
      if (spec.holds_values()) tensors.push_back({spec, b, {spec.name}, {}});
    }
  }
  for (const model::Block& block : model.blocks) {
    for (const ParamSpec& spec : block.params()) {
      for (Tensor& one : tensors) {
        if (!spec.holds_values() && one.spec.name == spec.tied_to) one.names.push_back(spec.name);
      }
    }
  }
  return tensors;
}

// The parts of a name or a pattern between points and stars.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(".*?", begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Names with the part that a part of the pattern that none of them has may have been meant to be.
std::string near_names(const std::string& pattern, const std::vector<Tensor>& tensors) {
  std::vector<std::string> names, words, near;
  for (const Tensor& one : tensors) {
    for (const std::string& name : one.names) {
      names.push_back(name);
      for (std::string& part : parts_of(name)) words.push_back(std::move(part));
    }
  }
  for (const std::string& part : parts_of(pattern)) {
    if (std::find(words.begin(), words.end(), part) != words.end()) continue;
    const std::string meant = base::nearest_word(part, words);
    for (const std::string& name : names) {
      const std::vector<std::string> parts = parts_of(name);
      const bool has = std::find(parts.begin(), parts.end(), meant) != parts.end();
      if (near.size() < 3 && !meant.empty() && has) near.push_back(name);
    }
  }
  if (!near.empty()) return "near it: " + base::join(near, ", ");
  names.resize(std::min<size_t>(names.size(), 4));
  return "names are such as " + base::join(names, ", ");
}

// Calls `action` with every tensor that the pattern matches.
template <class Action>
void each(std::vector<Tensor>& tensors, const std::string& key, const std::string& pattern, Action action) {
  bool any = false;
  for (Tensor& one : tensors) {
    if (!one.matches(pattern)) continue;
    action(one);
    any = true;
  }
  if (any) return;
  throw ConfigError(190,
                    fmt::format("{}: the pattern \"{}\" matches no parameter of this model; {}. `lockstep "
                                "explain parameters` lists them all",
                                key, pattern, near_names(pattern, tensors)));
}

void freeze(std::vector<Tensor>& tensors, const recipe::Recipe::Tune& tune) {
  const std::vector<std::string> train = recipe::read_patterns(tune.train);
  const bool adapts = tune.method == "lora";
  if (!train.empty() || adapts) {
    for (Tensor& one : tensors) one.train.frozen = !one.spec.adapter;
  }
  for (const std::string& pattern : train)
    each(tensors, "tune.train", pattern, [](Tensor& one) { one.train.frozen = false; });
  for (const std::string& pattern : recipe::read_patterns(tune.freeze))
    each(tensors, "tune.freeze", pattern, [](Tensor& one) { one.train.frozen = true; });
}

// Elements that a tensor rank holds side by side: a rank's blocks are blocks of the whole if they are whole.
bool cuts_blocks(const ParamSpec& spec) {
  if (!spec.cut.cuts()) return false;
  const device::Shape whole = whole_shape(spec.cut, spec.shape);
  const int64_t unit = spec.cut.dim == 0 ? whole.numel() / whole[0] : 1;
  std::vector<int64_t> sizes = spec.cut.sizes;
  if (sizes.empty())
    sizes.assign(static_cast<size_t>(spec.cut.groups), whole[spec.cut.dim] / spec.cut.groups);
  const auto cut = [](int64_t elements) { return elements % kernels::kQuantizedBlock != 0; };
  if (spec.cut.dim > 0 && cut(whole[whole.rank() - 1])) return true;
  return std::any_of(sizes.begin(), sizes.end(),
                     [&](int64_t size) { return cut(size / spec.cut.parts * unit); });
}

// Frozen weights of linear maps that tune.base keeps in 4 or 8 bits.
void quantize(std::vector<Tensor>& tensors, const recipe::Recipe::Tune& tune, const model::Model& model) {
  const kernels::Quantized format = kernels::quantized_of(tune.base);
  if (tune.method != "lora" || format == kernels::Quantized::none) return;
  const std::vector<std::string> maps = model::map_weights(model);
  const std::set<std::string> weights(maps.begin(), maps.end());
  for (Tensor& one : tensors) {
    if (!one.train.frozen || !weights.contains(one.spec.name)) continue;
    one.train.format = format;
    if (!cuts_blocks(one.spec)) continue;
    throw ConfigError(
        194,
        fmt::format("tune.base = \"{}\" keeps weights in blocks of {}, and {} = {} would cut those of {}, "
                    "which is {}: use fewer {}, or set tune.base=compute",
                    tune.base, kernels::kQuantizedBlock,
                    one.spec.cut.fixed ? "batch.product_strands" : "parallel.tensor", one.spec.cut.parts,
                    one.spec.name, whole_shape(one.spec.cut, one.spec.shape).to_string(),
                    one.spec.cut.fixed ? "strands" : "tensor ranks"));
  }
}

// A rate for each block, one word on each of its parameters from every group that matches, and a rule.
void group(std::vector<Tensor>& tensors, const recipe::Recipe::Optim& o, const optim::Optimizer& optimizer,
           size_t blocks) {
  std::vector<std::string> kinds(tensors.size());
  for (Tensor& one : tensors)
    one.train.rate =
        static_cast<float>(std::pow(o.layer_lr_decay, static_cast<double>(blocks - 1 - one.block)));
  std::vector<double> scales(tensors.size(), 1);
  for (const recipe::ParamGroup& group : recipe::read_groups(o.groups)) {
    each(tensors, "optim.groups", group.match, [&](Tensor& one) {
      const auto k = static_cast<size_t>(&one - tensors.data());
      if (group.lr_scale) scales[k] = *group.lr_scale;
      if (group.weight_decay) one.train.weight_decay = static_cast<float>(*group.weight_decay);
      if (group.frozen) one.train.frozen = *group.frozen;
      if (!group.kind.empty()) kinds[k] = group.kind;
    });
  }
  for (size_t k = 0; k < tensors.size(); ++k) {
    Tensor& one = tensors[k];
    one.train.rate = static_cast<float>(static_cast<double>(one.train.rate) * scales[k]);
    const device::Shape whole = whole_shape(one.spec.cut, one.spec.shape);
    one.train.rule = optimizer.rule_for(kinds[k], {.shape = whole, .table = one.spec.table});
    const optim::OptimizerKind& kind = *optimizer.rules[static_cast<size_t>(one.train.rule)].kind;
    one.train.whole = kind.needs_whole && kind.needs_whole(whole);
  }
}

// Their gradient is one product's, so that all of them have one or none has; and what is updated apart lies
// apart.
void check_joined(const std::vector<Tensor>& tensors) {
  for (size_t k = 1; k < tensors.size(); ++k) {
    const Tensor &one = tensors[k], &before = tensors[k - 1];
    if (!one.spec.joined || one.block != before.block) continue;
    const bool alike =
        one.train.frozen == before.train.frozen &&
        (one.train.frozen || (one.train.rule == before.train.rule && one.train.whole == before.train.whole));
    if (alike) continue;
    throw ConfigError(192,
                      fmt::format("{} and {} are read by one product and must be frozen, or updated by the "
                                  "same optimizer, together: let the pattern match both",
                                  before.spec.name, one.spec.name));
  }
}

void check_whole(const std::vector<Tensor>& tensors, const optim::Optimizer& optimizer) {
  for (const Tensor& one : tensors) {
    if (one.train.frozen || !one.train.whole) continue;
    if (one.spec.cut.fixed) {
      throw ConfigError(
          161, fmt::format("batch.product_strands = {} cuts {}, which the optimizer {} must see whole; set "
                           "batch.product_strands=1",
                           one.spec.cut.parts, one.spec.name,
                           optimizer.rules[static_cast<size_t>(one.train.rule)].kind->name));
    }
    if (!one.spec.cut.pads()) continue;
    throw ConfigError(
        193,
        fmt::format("the optimizer {} must see {} whole, but parallel.tensor = {} does not divide its rows: "
                    "share the work with parallel.zero, parallel.pipeline or parallel.context instead",
                    optimizer.rules[static_cast<size_t>(one.train.rule)].kind->name, one.spec.name,
                    one.spec.cut.parts));
  }
}

}  // namespace

void assign_groups(model::Model& model, const recipe::Recipe& recipe, const optim::Optimizer& optimizer) {
  std::vector<Tensor> tensors = tensors_of(model);
  if (tensors.empty()) return;
  freeze(tensors, recipe.tune);
  group(tensors, recipe.optim, optimizer, model.blocks.size());
  quantize(tensors, recipe.tune, model);
  check_joined(tensors);
  check_whole(tensors, optimizer);
  if (std::all_of(tensors.begin(), tensors.end(), [](const Tensor& one) { return one.train.frozen; })) {
    throw ConfigError(
        191,
        "every parameter is frozen and nothing is left to train: see tune.train, tune.freeze and "
        "`frozen` of optim.groups");
  }
  for (const Tensor& one : tensors) {
    if (one.train == model::Treatment{}) continue;  // as every block treats them
    for (const std::string& name : one.names) {
      for (model::Block& block : model.blocks) block.treat(name, one.train);
    }
  }
}

std::vector<program::StateRule> state_rules(const optim::Optimizer& optimizer, device::DType moments,
                                            const kernels::Kernels& kernels) {
  std::vector<program::StateRule> rules;
  for (const optim::Rule& rule : optimizer.rules) {
    const optim::OptimizerKind* kind = rule.kind;
    program::StateRule made;
    made.state = [kind, moments](const device::Shape& parameter) {
      std::vector<program::StateRule::State> state;
      for (const optim::StateTensor& one : kind->state(parameter)) {
        const bool fp32 = one.type == optim::StateTensor::Type::f32;
        state.push_back({one.name, fp32 ? device::DType::f32 : moments, one.shape});
      }
      return state;
    };
    if (kind->scratch)
      made.scratch = [kind, &kernels](const device::Shape& of) { return kind->scratch(of, kernels); };
    rules.push_back(std::move(made));
  }
  return rules;
}

}  // namespace lockstep::run

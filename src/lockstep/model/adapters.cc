#include "lockstep/model/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/recipe/groups.h"

namespace lockstep::model {

namespace {

// As PEFT reads target_modules: a whole name, or what a name ends with behind a point.
bool means(const std::string& target, const std::string& map) {
  return recipe::matches(target, map) || recipe::matches("*." + target, map);
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::vector<std::string> adaptable_maps(const Model& model) {
  std::vector<std::string> maps;
  for (const Block& block : model.blocks) {
    for (const auto& segment : block.segments()) {
      for (std::string& name : segment->adaptable()) maps.push_back(std::move(name));
    }
  }
  return maps;
}

std::string last_parts(const std::vector<std::string>& maps) {
  std::vector<std::string> parts;
  for (const std::string& map : maps) {
    if (std::find(parts.begin(), parts.end(), last_part(map)) == parts.end()) parts.push_back(last_part(map));
  }
  return base::join(parts, ", ");
}

}  // namespace

bool AdapterOptions::wants(const std::string& map) const {
  return targets.empty() || std::any_of(targets.begin(), targets.end(),
                                        [&](const std::string& target) { return means(target, map); });
}

double adapter_scale(const recipe::Recipe::Tune& tune) {
  const auto rank = static_cast<double>(tune.rank);
  return tune.alpha / (tune.scaling == "sqrt" ? std::sqrt(rank) : rank);
}

AdapterOptions adapter_options(const recipe::Recipe::Tune& tune) {
  AdapterOptions options{.rank = tune.rank,
                         .scale = static_cast<float>(adapter_scale(tune)),
                         .dropout = static_cast<float>(tune.dropout)};
  options.targets = recipe::read_patterns(tune.targets);
  const bool all = std::any_of(options.targets.begin(), options.targets.end(), [](const std::string& target) {
    return target == "all" || target == "all-linear";
  });
  if (all) options.targets.clear();
  return options;
}

void add_adapters(Model& model, const AdapterOptions& options) {
  const std::vector<std::string> maps = adaptable_maps(model);
  if (maps.empty()) {
    throw base::ConfigError(
        196,
        "tune.method = \"lora\" adds products to linear maps, and this model has none that "
        "Lockstep knows; set tune.method=full");
  }
  for (const std::string& target : options.targets) {
    if (std::any_of(maps.begin(), maps.end(), [&](const std::string& map) { return means(target, map); }))
      continue;
    throw TargetError(
        target,
        fmt::format("tune.targets: {} names no linear map of this model's layers; there are {}, such as "
                    "{}, and \"all\" means every one",
                    base::quoted(target), last_parts(maps), maps.front()));
  }
  for (const Block& block : model.blocks) {
    for (const auto& segment : block.segments()) segment->adapt(options);
  }
}

std::vector<std::string> map_weights(const Model& model) {
  std::vector<std::string> names;
  for (const std::string& map : adaptable_maps(model)) names.push_back(map + ".weight");
  return names;
}

std::vector<std::string> adapted_maps(const Model& model) {
  std::vector<std::string> maps;
  for (const Block& block : model.blocks) {
    for (const ParamSpec& spec : block.params()) {
      if (spec.adapter && spec.name.ends_with(kAdapterA))
        maps.push_back(spec.name.substr(0, spec.name.size() - std::string_view(kAdapterA).size()));
    }
  }
  return maps;
}

std::vector<std::string> target_names(const Model& model) {
  const std::vector<std::string> adapted = adapted_maps(model);
  const std::set<std::string> with(adapted.begin(), adapted.end());
  std::set<std::string> partly;  // last parts of maps that have none
  for (const std::string& map : adaptable_maps(model)) {
    if (!with.contains(map)) partly.insert(last_part(map));
  }
  std::vector<std::string> names;
  for (const std::string& map : adapted) {
    const std::string name = partly.contains(last_part(map)) ? map : last_part(map);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

}  // namespace lockstep::model

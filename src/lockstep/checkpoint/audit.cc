#include "lockstep/checkpoint/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/safe_path.h"
#include "lockstep/checkpoint/formats/shards.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kElements = int64_t{1} << 20;  // at a time

[[noreturn]] void refuse_missing(const Opened& opened, const std::string& what) {
  throw CheckpointError(
      305, fmt::format("{} is incomplete: {}; use another checkpoint of the run, or copy this one again",
                       opened.folder(), what));
}

// model-00001-of-00003.safetensors stands for three; moments are there if the optimizer keeps any.
void check_sets(const Opened& opened) {
  std::map<std::string, std::pair<int, std::set<int>>>
      sets;  // by kind: how many there are, and which are here
  for (const FileSummary& file : opened.manifest()->files) {
    char kind[16] = "";
    int number = 0, count = 0;
    if (std::sscanf(file.name.c_str(), "%15[a-z]-%d-of-%d.safetensors", kind, &number, &count) != 3) continue;
    sets[kind].first = std::max(sets[kind].first, count);
    sets[kind].second.insert(number);
  }
  const bool adapter = !opened.manifest()->own_hash.empty();
  if (!sets.contains("model") && !adapter) refuse_missing(opened, "its manifest lists no weight files");
  for (const auto& [kind, set] : sets) {
    if (static_cast<int>(set.second.size()) != set.first)
      refuse_missing(opened, fmt::format("its manifest lists {} of {} files {}-*.safetensors",
                                         set.second.size(), set.first, kind));
  }
  if (sets.contains("optimizer")) return;
  try {
    recipe::RecipeSource source;
    source.text = opened.manifest()->recipe_toml;
    if (source.text.empty() ||
        !optim::make_optimizer(recipe::read_recipe(source).recipe, false).keeps_state())
      return;
  } catch (const base::ConfigError&) {
    return;  // another version's recipe: what it kept is not known
  }
  refuse_missing(opened, "its manifest lists no optimizer files, but its recipe has an optimizer");
}

void check_index(const Opened& opened) {
  if (!opened.manifest()->own_hash.empty()) return;  // an adapter is one file
  const std::string path = opened.folder() + "/" + kIndexName;
  std::error_code error;
  if (!fs::exists(path, error)) refuse_missing(opened, fmt::format("{} is missing", kIndexName));
  for (const auto& [tensor, file] : read_index(file_inside(opened.folder(), kIndexName, opened.folder()))) {
    if (opened.has(tensor)) continue;
    throw CheckpointError(303, fmt::format("{} says that tensor {} is in {}, but that file does not contain "
                                           "it; use another checkpoint of the run",
                                           path, base::quoted(tensor), file));
  }
}

// In the model's order, which is the files': names of files are sorted by number, tensors by where they lie.
// Statistics are stored beside the weights and are no part of the hash; the optimizer keeps nothing of them.
std::vector<Whole> weights_of(const Opened& opened) {
  std::vector<Whole> weights;
  bool any_moments = false;
  for (const TensorFile* file : opened.files()) {
    if (fs::path(file->path()).filename().string().starts_with("optimizer-")) {
      any_moments |= !file->entries().empty();
      continue;
    }
    std::vector<std::pair<int64_t, std::string>> by_place;
    for (const auto& [name, entry] : file->entries()) by_place.emplace_back(entry.begin, name);
    std::sort(by_place.begin(), by_place.end());
    for (const auto& [begin, name] : by_place) weights.push_back(opened.find(plain_name(name)));
  }
  const std::optional<std::vector<std::string>>& statistics = opened.manifest()->statistics;
  const auto is_statistic = [&](const Whole& one) {
    if (!statistics) return any_moments && !opened.has(one.name + ".m");
    return std::find(statistics->begin(), statistics->end(), one.name) != statistics->end();
  };
  std::erase_if(weights, is_statistic);
  for (size_t k = 0; k < weights.size(); ++k) weights[k].order = static_cast<int64_t>(k);
  return weights;
}

void check_hash(const Opened& opened) {
  const Manifest& manifest = *opened.manifest();
  const std::string& said = manifest.own_hash.empty() ? manifest.params_hash : manifest.own_hash;
  if (said.empty()) return;
  const std::vector<Whole> weights = weights_of(opened);
  std::vector<float> values(static_cast<size_t>(kElements));
  HashSums hashes;
  for (Whole weight : weights) {
    weight.dtype = device::DType::f32;
    const Piece whole = whole_piece(weight);
    for (int64_t at = 0; at < whole.count; at += kElements) {
      opened.read({{.piece = part_of(whole, at, std::min(kElements, whole.count - at)),
                    .to = values.data(),
                    .hashed = true}},
                  &hashes);
    }
  }
  const std::string found = hashes.finish(weights);
  if (found == said) return;
  throw CheckpointError(
      322,
      fmt::format(
          "{}: the weights have params_hash {}, but the manifest says {}; use another checkpoint of the run",
          opened.folder(), found, base::quoted(said, 40)));
}

}  // namespace

void audit(const Opened& opened) {
  if (opened.manifest()) {
    check_sets(opened);
    check_index(opened);
  }
  opened.check_all();
  if (opened.manifest()) check_hash(opened);
}

}  // namespace lockstep::checkpoint

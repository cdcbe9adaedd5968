#include "lockstep/checkpoint/companions.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/usable.h"
#include "lockstep/recipe/schema.h"
#include "lockstep/store/local.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizers[] = {"tokenizer.json", "tokenizer.model", "tekken.json",
                                       "vocab.json",     "vocab.txt",       "spiece.model"};
constexpr const char* kBesideTokenizers[] = {"tokenizer_config.json", "special_tokens_map.json",
                                             "added_tokens.json",     "merges.txt",
                                             "chat_template.jinja",   "chat_template.json"};
constexpr const char* kTemplate = "chat_template.jinja";
constexpr const char* kGeneration = "generation_config.json";

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// What lies in a store and cannot be had is left out, as what is gone from a disk.
std::string here(const std::string& path) {
  try {
    return store::local_small_files(path);
  } catch (const base::Error&) {
    return "";
  }
}

void add(std::vector<Companion>& all, const fs::path& folder, const char* name) {
  if (is_file(folder / name)) all.push_back({(folder / name).string(), name});
}

// Of a tokenizer that is named by its folder or by one of its files.
std::vector<Companion> tokenizer_files(const std::string& path) {
  std::vector<Companion> all;
  std::error_code error;
  const fs::path folder = fs::is_directory(path, error) ? fs::path(path) : fs::path(path).parent_path();
  for (const char* name : kTokenizers) {
    if (folder == fs::path(path) || fs::path(path).filename() == name) add(all, folder, name);
  }
  if (all.empty()) return all;
  for (const char* name : kBesideTokenizers) add(all, folder, name);
  return all;
}

constexpr const char* kTokenIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

void add_tokens(Companions& all, const std::string& config_json) {
  const nlohmann::json config = nlohmann::json::parse(config_json, nullptr, false);
  if (!config.is_object()) return;
  for (const char* key : kTokenIds) {
    const auto found = config.find(key);
    const bool known = found != config.end() && (found->is_number_integer() || found->is_array());
    if (known) all.tokens.try_emplace(key, found->dump());
  }
}

bool has_tokenizer(const Companions& all) {
  return std::any_of(all.files.begin(), all.files.end(),
                     [](const Companion& one) { return one.name != kGeneration && one.name != kTemplate; });
}

void add_generation(Companions& all, const std::string& folder) {
  const bool there = std::any_of(all.files.begin(), all.files.end(),
                                 [](const Companion& one) { return one.name == kGeneration; });
  if (!there) add(all.files, folder, kGeneration);
}

void add_tokenizer(Companions& all, const std::string& path) {
  if (path.empty() || has_tokenizer(all)) return;
  std::vector<Companion> found = tokenizer_files(path);
  const bool has_template = !all.files.empty() && all.files.front().name == kTemplate;
  if (has_template) std::erase_if(found, [](const Companion& one) { return one.name == kTemplate; });
  all.files.insert(all.files.end(), found.begin(), found.end());
}

// A model that trained weights came from: a folder of somebody else's, or a run.
void add_origin(Companions& all, const Opened& source, int runs_left);

void add_origin(Companions& all, const std::string& folder, int runs_left) {
  if (folder.empty() || runs_left == 0) return;
  if (const std::string local = here(folder); !local.empty()) {
    add_tokenizer(all, local);
    add_generation(all, local);
  }
  try {
    for_first_usable(model_folders(folder),
                     [&](const std::string& one) { add_origin(all, Opened(one), runs_left - 1); });
  } catch (const base::Error&) {
    // It is gone, or damaged: weights can be exported all the same.
  }
}

void add_origin(Companions& all, const Opened& source, int runs_left) {
  add_tokens(all, source.config_json());
  if (!source.manifest()) return;
  recipe::RecipeSource from;
  from.text = source.manifest()->recipe_toml;
  recipe::Recipe recipe;
  try {
    recipe = recipe::read_recipe(from).recipe;
  } catch (const base::ConfigError&) {
    return;  // of another version, or with rows of a program's own
  }
  const std::string& written = recipe.data.chat_template;
  if (all.files.empty() && is_file(written) && fs::path(written).extension() != ".json")
    all.files.push_back({written, kTemplate});
  if (recipe.data.tokenizer != "bytes") add_tokenizer(all, here(recipe.data.tokenizer));
  add_origin(all, recipe.model.from, runs_left);
}

}  // namespace

Companions companions_of(const Opened& source) {
  Companions all;
  constexpr int kRuns = 16;  // one after another; runs that name each other end here
  if (!source.manifest()) {
    add_tokenizer(all, source.folder());
    add_generation(all, source.folder());
  }
  add_origin(all, source, kRuns);
  return all;
}

}  // namespace lockstep::checkpoint

#include "lockstep/checkpoint/companions.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizers[] = {"tokenizer.json", "tokenizer.model", "tekken.json",
                                       "vocab.json",     "vocab.txt",       "spiece.model"};
constexpr const char* kBesideTokenizers[] = {"tokenizer_config.json", "special_tokens_map.json",
                                             "added_tokens.json",     "merges.txt",
                                             "chat_template.jinja",   "chat_template.json"};
constexpr const char* kTemplate = "chat_template.jinja";

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
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

std::vector<Companion> companions(const std::vector<std::string>& tokenizers, const std::string& model,
                                  const std::string& chat_template) {
  std::vector<Companion> all;
  for (const std::string& path : tokenizers) {
    if (all.empty() && !path.empty()) all = tokenizer_files(path);
  }
  if (!chat_template.empty() && is_file(chat_template) && fs::path(chat_template).extension() != ".json") {
    std::erase_if(all, [](const Companion& one) { return one.name == kTemplate; });
    all.push_back({chat_template, kTemplate});
  }
  if (!model.empty()) add(all, model, "generation_config.json");
  return all;
}

}  // namespace

std::vector<Companion> companions_of(const Opened& source) {
  if (!source.manifest()) return companions({source.folder()}, source.folder(), "");
  recipe::RecipeSource from;
  from.text = source.manifest()->recipe_toml;
  recipe::Recipe recipe;
  try {
    recipe = recipe::read_recipe(from).recipe;
  } catch (const base::ConfigError&) {
    return {};  // of another version, or with rows of a program's own: weights can be exported all the same
  }
  const std::string& tokenizer = recipe.data.tokenizer;
  return companions({tokenizer == "bytes" ? "" : tokenizer, recipe.model.from}, recipe.model.from,
                    recipe.data.chat_template);
}

}  // namespace lockstep::checkpoint

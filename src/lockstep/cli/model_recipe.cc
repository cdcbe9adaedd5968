#include "lockstep/cli/model_recipe.h"

#include <nlohmann/json.hpp>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::cli {

namespace {

int64_t first_token_of(const std::string& config_json) {
  const nlohmann::json config = nlohmann::json::parse(config_json, nullptr, false);
  if (!config.is_object() || !config.contains("bos_token_id")) return -1;
  const nlohmann::json& first = config["bos_token_id"];
  return first.is_number_integer() ? first.get<int64_t>() : -1;
}

}  // namespace

void adopt_tokenizer(FolderModel& model) {
  recipe::Recipe& recipe = model.resolved.recipe;
  const bool reads =
      recipe.data.kind == "tokens" || !recipe.data.path.empty() || !recipe.data.mix.empty();
  if (model.said("data.tokenizer") || recipe.data.tokenizer != "bytes" || model.trained_here || !reads)
    return;
  if (!text::find_tokenizer(recipe.model.from).empty()) recipe.data.tokenizer = recipe.model.from;
}

FolderModel folder_model(const std::string& folder, const std::vector<std::string>& words) {
  const checkpoint::Opened opened(folder);
  recipe::RecipeSource source;
  if (opened.manifest()) source.text = opened.manifest()->recipe_toml;
  source.overrides = words;
  FolderModel model{.resolved = recipe::read_recipe(source)};
  model.trained_here = opened.manifest().has_value();
  model.first_token = first_token_of(opened.config_json());
  recipe::Recipe& recipe = model.resolved.recipe;
  recipe.model.from = folder;
  recipe.parallel = {};
  recipe.optim.name = "sgd";  // the least to keep beside the weights
  return model;
}

}  // namespace lockstep::cli

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

// A folder that is an adapter is used as one, on the model that it names.
void take_adapter(const checkpoint::Opened& opened, recipe::Recipe::Tune& tune, recipe::Recipe::Model& model,
                  bool method_said) {
  tune.adapter.clear();
  if (!opened.manifest() && opened.adapter() && !method_said) tune.method = "lora";
  if (tune.method != "lora") return;
  tune.adapter = opened.folder();
  const bool apart = opened.manifest() ? opened.manifest()->base.has_value() : opened.adapter().has_value();
  if (!apart) return;
  static_cast<void>(checkpoint::Opened(opened.folder(), checkpoint::Adapters::apart));  // it is still there
  model.from = opened.manifest() ? opened.manifest()->base->folder : opened.adapter()->base;
}

}  // namespace

std::vector<std::string> with_adapter(const std::string& adapter, std::vector<std::string> words) {
  if (adapter.empty()) return words;
  words.insert(words.begin(), {"tune.method=lora", "tune.adapter=" + adapter});
  return words;
}

void adopt_tokenizer(FolderModel& model) {
  recipe::Recipe& recipe = model.resolved.recipe;
  const bool reads = recipe.data.kind == "tokens" || !recipe.data.path.empty();
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
  if (!model.said("tune.adapter")) take_adapter(opened, recipe.tune, recipe.model, model.said("tune.method"));
  recipe.parallel = {};
  recipe.optim.name = "sgd";  // the least to keep beside the weights
  return model;
}

}  // namespace lockstep::cli

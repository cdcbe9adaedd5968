#include "lockstep/cli/model_recipe.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::cli {

namespace {

// A number, or a list of them; others are left out.
std::vector<int64_t> tokens_of(const nlohmann::json& config, const char* key) {
  std::vector<int64_t> tokens;
  if (!config.is_object() || !config.contains(key)) return tokens;
  const nlohmann::json list = config[key].is_array() ? config[key] : nlohmann::json::array({config[key]});
  for (const nlohmann::json& token : list) {
    if (token.is_number_integer()) tokens.push_back(token.get<int64_t>());
  }
  return tokens;
}

void read_first_and_last(const checkpoint::Opened& opened, FolderModel& model) {
  const nlohmann::json config = nlohmann::json::parse(opened.config_json(), nullptr, false);
  const std::vector<int64_t> first = tokens_of(config, "bos_token_id");
  if (first.size() == 1) model.first_token = first[0];
  constexpr int64_t kMost = 1 << 20;
  const base::ReadResult file = base::try_read_file(opened.folder() + "/generation_config.json", kMost);
  if (file.problem.empty())
    model.end_tokens = tokens_of(nlohmann::json::parse(file.text, nullptr, false), "eos_token_id");
  model.generation_config = !model.end_tokens.empty();
  if (model.end_tokens.empty()) model.end_tokens = tokens_of(config, "eos_token_id");
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
  const bool reads = recipe.data.kind == "tokens" || !recipe.data.path.empty() || !recipe.data.mix.empty();
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
  model.folder = folder;
  read_first_and_last(opened, model);
  recipe::Recipe& recipe = model.resolved.recipe;
  model.seq_len = recipe.data.seq_len;
  recipe.model.from = folder;
  if (!model.said("tune.adapter")) take_adapter(opened, recipe.tune, recipe.model, model.said("tune.method"));
  if (!model.said("tune.loss"))
    recipe.tune.loss = "cross_entropy";  // how it was tuned says nothing of its use
  recipe.parallel = {};
  recipe.batch.product_strands = recipe.batch.sequence_strands = 1;  // for training's sums alone
  recipe.optim.name = "sgd";                                         // the least to keep beside the weights
  return model;
}

}  // namespace lockstep::cli

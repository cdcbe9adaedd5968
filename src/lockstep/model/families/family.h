// Families: how a recipe's [model] section becomes a Model. One file and one row a family.
//
// A row holds all that is particular to its family: how it is built, the keys that it reads, what "auto"
// means, what it refuses, its name and its files in transformers. Nothing outside asks for a family by name:
//
//     if (find_family(recipe.model.family).attends()) ...
//
// A program adds its own family before it reads a recipe: register_family(row). Validation, `explain`, the
// JSON Schema, presets, Hugging Face folders and every layout then know it as they know gpt2.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/block.h"
#include "lockstep/model/segments/activation.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::model {

class ConfigReader;  // families/huggingface_config.h: config.json on its way in
class ConfigWriter;  // and on its way out

using KeyValues = std::vector<std::pair<std::string, std::string>>;  // {"model.layers", "12"}, as TOML

struct Preset {
  std::string name;  // "124m"
  KeyValues keys;    // what it sets
};

// What keys of [model] come to where the user leaves them alone.
struct FamilyDefaults {
  std::function<int64_t(const recipe::Recipe::Model&)> ffn;       // model.ffn = "auto"
  std::function<int64_t(const recipe::Recipe::Model&)> head_dim;  // null: model.hidden / model.heads
  std::string activation = "gelu_new";                            // model.activation = "auto"
  KeyValues keys = {};  // other defaults than the recipe's own, such as model.tied = false
};

// How a family attends.
struct Heads {
  bool grouped = false;  // fewer heads of keys and values than of queries: model.kv_heads
  bool own_width =
      false;  // a head's width is its own affair: model.head_dim x heads need not be model.hidden
  bool any_number = false;  // with a width of its own, model.heads need not divide model.hidden
  // `generate`: a text that grows beyond model.rope_original_context is read again from its beginning, by the
  // table for its new length, as transformers does with this family and with no other.
  bool reads_grown_text_again = false;
};

// One value that config.json sets.
struct ConfigSetting {
  std::string key, value;  // of the recipe, as TOML
  bool free = false;       // the weights do not depend on it: the recipe may say otherwise
};
using ConfigSettings = std::vector<ConfigSetting>;

// The model as transformers knows it. Parameters bear transformers' names already (ParamSpec::name), so that
// weights are plain copies; this is what else a folder says.
struct HuggingFace {
  std::vector<std::string>
      model_types;           // config.json's "model_type": all that are read; the first is written
  std::string architecture;  // "LlamaForCausalLM"
  std::string tokens;        // the table of tokens, which in a tied model is the head as well
  std::string head = "lm_head";
  bool weights_by_input = false;  // linear maps are kept as [in, out]: transformers' Conv1D
  // Names that some versions give to weights, and ours: {"lm_head.weight", "embed_out.weight"}.
  std::vector<std::pair<std::string, std::string>> other_names = {};
  std::function<ConfigSettings(const ConfigReader&)> read;
  // Its own values; what all models share is written around it (huggingface.cc).
  std::function<void(const recipe::Recipe::Model&, ConfigWriter&)> write;
};

// A size that a matrix product has, for formats that cannot multiply every size.
struct ProductSize {
  std::string what;  // "model.ffn"
  int64_t size = 0;
  std::string remedy;  // "set it to a multiple"
  bool cut = false;    // tensor ranks, or product strands, have equal parts of it
};

struct Family {
  std::string name;
  std::string describe;  // one line
  // The keys of [model] that count for this family and not for all: those of heads, of rotary positions, ...
  // A key that some family names here has no effect with a family that does not.
  std::vector<std::string> reads = {};
  FamilyDefaults defaults;
  std::vector<Preset> presets = {};
  std::optional<Heads> heads = {};  // none: it does not attend, and tokens do not look at each other
  // ConfigError for sizes that this family refuses and others do not; everything resolved. May be null.
  std::function<void(const recipe::Recipe&)> check = {};
  // Everything resolved: no "auto" left in recipe.model.
  std::function<Model(const recipe::Recipe& recipe, DType compute, const Parts& parts)> build;
  // The sizes of the layers' products that precision.compute = "fp8" casts. Null: the family has none, and
  // fp8 is refused.
  std::function<std::vector<ProductSize>(const recipe::Recipe::Model&)> fp8_products = {};
  std::optional<HuggingFace> huggingface = {};  // none: transformers does not know it

  bool attends() const { return heads.has_value(); }
};

const std::vector<Family>& families();
const Family& find_family(const std::string& name);  // ConfigError 120
// Before the first recipe is read (base/registry.h).
void register_family(Family family);

// Sets the keys of model.preset that the user left alone. ConfigError 121 for one that the family has not.
void apply_preset(recipe::Resolved& resolved);
// Applies the preset and the family's defaults, resolves every "auto" of [model] and checks that the sizes
// fit each other. `data_vocab` is what the dataset needs.
void resolve_model(recipe::Resolved& resolved, int64_t data_vocab);

// `parts`: what this rank works on; by default everything.
Model build_model(const recipe::Recipe& recipe, DType compute, const Parts& parts = {});

// Of model.activation; "auto" is the family's usual one.
kernels::ActivationKind activation_of(const recipe::Recipe::Model& model);
std::string activation_name(const recipe::Recipe::Model& model);  // as transformers reads it: never "auto"

// For Family::reads of those that attend.
std::vector<std::string> attention_keys();

// The families' own files.
Family gpt2_family();
Family llama_family();
Family mlp_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family gemma2_family();
Family gemma3_family();
Family phi_family();
Family phi3_family();
Family olmo2_family();
Family smollm3_family();
Family gpt_neox_family();

}  // namespace lockstep::model

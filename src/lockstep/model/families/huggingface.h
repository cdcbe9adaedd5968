// Hugging Face's config.json and the recipe's [model] section: each from the other.
//
// A folder that training starts from says itself what model it holds. Its config.json fills the keys that the
// recipe leaves alone; a key that says something else is refused by name, and so is a model that would
// compute something else than transformers does.
#pragma once

#include <string>

#include "lockstep/recipe/schema.h"

namespace lockstep::model {

// config.json of the recipe's model; empty where transformers does not know the family. Everything resolved.
std::string huggingface_config(const recipe::Recipe& recipe);

// Sets keys of [model] from the text of `path`. ConfigError 177: a model that cannot be read; 178: the recipe
// contradicts it.
void adopt_config(recipe::Resolved& resolved, const std::string& text, const std::string& path);

// Whether tokens of the data can be the model's, when its vocabulary came from a config.json: ConfigError
// 179.
struct DataTokens {
  int64_t vocab = 0;
  std::string describe;
  bool of_any_tokenizer = false;  // numbers that do not say whose they are: they fit when none is too large
};
void check_vocabulary(const recipe::Resolved& resolved, const DataTokens& data);

}  // namespace lockstep::model

// Hugging Face's config.json and the recipe's [model] section: each from the other.
//
// A folder that training starts from says itself what model it holds. Its config.json fills the keys that the
// recipe leaves alone; a key that says something else is refused by name, and so is a model that would
// compute something else than transformers does.
#pragma once

#include <string>

#include "lockstep/recipe/schema.h"

namespace lockstep::model {

// config.json for gpt2 and llama; empty for other families. Everything resolved.
std::string huggingface_config(const recipe::Recipe& recipe);

// What transformers calls the table of tokens, which of a tied model is the head as well, and the head.
constexpr const char* kGpt2Tokens = "transformer.wte";
constexpr const char* kLlamaTokens = "model.embed_tokens";
constexpr const char* kHead = "lm_head";
std::string embedding_name(const std::string& family);  // "transformer.wte.weight"; empty for other families

// Sets keys of [model] from the text of `path`. ConfigError 177: a model that cannot be read; 178: the recipe
// contradicts it.
void adopt_config(recipe::Resolved& resolved, const std::string& text, const std::string& path);

// Whether tokens of the data can be the model's, when its vocabulary came from a config.json: ConfigError
// 179.
void check_vocabulary(const recipe::Resolved& resolved, int64_t data_vocab, const std::string& data);

}  // namespace lockstep::model

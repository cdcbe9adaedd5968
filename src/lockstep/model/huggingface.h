// Hugging Face's config.json and the recipe's [model] section: each from the other.
#pragma once

#include <string>

#include "lockstep/base/schema.h"

namespace lockstep::model {

// config.json for gpt2 and llama; empty for other families. Everything resolved.
std::string huggingface_config(const base::Recipe& recipe);

}  // namespace lockstep::model

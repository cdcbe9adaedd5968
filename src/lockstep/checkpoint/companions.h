// What a Hugging Face folder holds beside weights and config.json: the tokenizer, its chat template, and how
// the model is to generate. A run keeps none of them; whoever opens an exported model expects them there.
#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {

struct Companion {
  std::string from;  // a file
  std::string name;  // in the folder that is written
};

// Of a checkpoint: those of its recipe's data.tokenizer, data.chat_template and model.from, as far as they
// are there; of any other folder: its own. All files of a tokenizer come from one folder.
std::vector<Companion> companions_of(const Opened& source);

}  // namespace lockstep::checkpoint

// What a Hugging Face folder holds beside weights and config.json: the tokenizer, its chat template, and how
// the model is to generate. A run keeps none of them; whoever opens an exported model expects them there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {

struct Companion {
  std::string from;  // a file
  std::string name;  // in the folder that is written
};

struct Companions {
  std::vector<Companion> files;
  // "eos_token_id", "bos_token_id" and "pad_token_id", each a number or a list as JSON, where they are known.
  // A run's own config.json has none: they belong to the tokenizer, and to the model that the run began from.
  std::map<std::string, std::string> tokens;
};

// Of a checkpoint: those of its recipe's data.tokenizer, data.chat_template and model.from, as far as they
// are there; where model.from is a run itself, what that one began from counts too. Of any other folder: its
// own. All files of a tokenizer come from one folder.
Companions companions_of(const Opened& source);

}  // namespace lockstep::checkpoint

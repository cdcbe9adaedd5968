// The recipe of a model that lies in a folder: what its checkpoint was trained with, changed by the user's
// words. For commands that use a model and train nothing: eval, generate.
#pragma once

#include <string>
#include <vector>

#include "lockstep/recipe/schema.h"

namespace lockstep::cli {

struct FolderModel {
  recipe::Resolved resolved;  // model.from names the folder; one rank, the smallest optimizer
  bool trained_here = false;  // the folder is a checkpoint, which says with which recipe
  int64_t first_token = -1;   // what config.json says a text begins with; -1: nothing
  // What generation_config.json says a text ends with, or else config.json; and which of them said it.
  std::vector<int64_t> end_tokens;
  bool generation_config = false;
  std::string folder;
  int64_t seq_len = 0;  // data.seq_len as the recipe has it

  // Whether the user has named the key for this command.
  bool said(const std::string& key) const { return resolved.origin.at(key) == "command line"; }
};
// Text goes through the tokenizer that lies in the model's folder, unless the recipe or the user names
// another.
void adopt_tokenizer(FolderModel& model);
// Of a checkpoint with adapters, the model under them and the adapters as they were trained; with
// tune.method=full among the words, the weights with the adapters merged into them.
FolderModel folder_model(const std::string& folder, const std::vector<std::string>& words);

// --adapter DIR as words of a recipe, before the user's own.
std::vector<std::string> with_adapter(const std::string& adapter, std::vector<std::string> words);

}  // namespace lockstep::cli

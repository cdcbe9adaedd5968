// Text of a model: prompts to tokens, tokens to text, and where a text begins and ends. By the tokenizer that
// the recipe or the model's folder names; without one, as the data has it (words, bytes, numbers).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/cli/model_recipe.h"
#include "lockstep/data/tokens/tokenized.h"
#include "lockstep/run/session/session.h"

namespace lockstep::cli {

// A language model for commands that read no data and train nothing, with as little as that takes. fp8 models
// are computed in bf16. Of a run, the newest checkpoint that can be used. ConfigError 163: it predicts no
// tokens.
struct OpenedModel {
  FolderModel model;
  std::unique_ptr<run::Session> session;
};
OpenedModel open_for_decoding(const std::string& folder, const std::vector<std::string>& words);

class ModelText {
 public:
  ModelText(const run::Plan& plan, const FolderModel& model);

  struct Prompt {
    std::vector<int32_t> tokens;
    size_t hidden = 0;  // tokens at the beginning that nobody wrote
  };
  // `where` begins the message of ConfigError 198: text that is not UTF-8, tokens that the model does not
  // have, or more of them than its context. Nothing: what a text begins with that nobody begins.
  Prompt prompt(const std::string& text, const std::string& where) const;
  // Text that holds its own special tokens, such as a rendered chat template.
  Prompt rendered(const std::string& text, const std::string& where) const;
  // What the tokenizer makes of it, with or without the tokens that it puts around.
  std::vector<int32_t> encode(const std::string& text, bool add_special = true) const;
  std::string decode(std::span<const int32_t> tokens) const;
  bool ends(int32_t token) const;
  const text::Tokenizer* tokenizer() const { return tokenizer_.get(); }  // null: there is none
  // What the tokenizer puts before a text, or the model's first token where it puts none and has one.
  std::vector<int32_t> beginning() const;
  // ConfigError 198: a token that the model does not have.
  void check_tokens(const std::vector<int32_t>& tokens, const std::string& where) const;

 private:
  void check_prompt(const std::vector<int32_t>& tokens, const std::string& where) const;
  const run::Plan& plan_;
  data::SharedTokenizer tokenizer_;
  int64_t first_token_;
  std::vector<int64_t> ends_;
};

}  // namespace lockstep::cli

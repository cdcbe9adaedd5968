// The chat template of a model: found in its folder, rendered with its special tokens, as transformers'
// apply_chat_template does it.
//
//     if (const auto found = ModelTemplate::find("llama-1b-instruct"))
//       found->render({.messages = messages, .add_generation_prompt = true});
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/chat/jinja/template.h"

namespace lockstep::chat {

struct Conversation {
  nlohmann::ordered_json messages;     // [{"role": ..., "content": ...}, ...]
  bool add_generation_prompt = false;  // end with what an answer begins with
};

class ModelTemplate {
 public:
  // chat_template.jinja, or "chat_template" of chat_template.json or tokenizer_config.json; of several named
  // ones "default". Nothing: the folder has none. ConfigError 197: it has one that cannot be read.
  static std::optional<ModelTemplate> find(const std::string& folder);
  // ConfigError 197 with what the template says, such as an unknown role.
  jinja::Output render(const Conversation& conversation) const;
  const std::string& file() const { return file_; }
  // bos_token, eos_token, ...: names and texts, as the template sees them.
  const std::vector<std::pair<std::string, std::string>>& special_tokens() const { return special_; }

 private:
  ModelTemplate(const std::string& file, const std::string& source);
  void read_special_tokens(const std::string& folder);
  std::string file_;
  jinja::Template template_;
  std::vector<std::pair<std::string, std::string>> special_;
};

}  // namespace lockstep::chat

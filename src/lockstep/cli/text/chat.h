// Conversations with a model: messages become a prompt by its chat template, and its answer the next message.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/chat/chat_template.h"
#include "lockstep/cli/text/model_text.h"
#include "lockstep/run/session/session.h"
#include "lockstep/run/tools/sampler.h"

namespace lockstep::cli {

class ChatFormat {
 public:
  // Of data.chat_template, the model's folder, its tokenizer's or that of the model it was made from.
  // ConfigError 199: the model has no tokenizer to read it with; 267: there is no chat template.
  ChatFormat(const recipe::Recipe& recipe, const std::string& folder, const ModelText& text);
  // With what the model's answer begins with. `where` begins the message of an error.
  std::string render(const nlohmann::ordered_json& messages, const std::string& where) const;

 private:
  chat::ChatTemplate template_;
};

// [{"role": "system", ...}, {"role": "user", ...}]; an empty system message is left out.
nlohmann::ordered_json conversation(const std::string& system, const std::string& user);

struct ConverseOptions {
  std::string folder;
  const ModelText& text;
  run::SamplingOptions sampling;
  std::vector<std::string> stops;
  std::string system;
};
// Reads what the user says line by line and prints answers, until the input ends. The first Ctrl-C ends an
// answer, one at the prompt the conversation.
int converse(run::Session& session, const ConverseOptions& options);

}  // namespace lockstep::cli

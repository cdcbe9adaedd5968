// A model's chat template with the names that Hugging Face gives it: how a conversation becomes one text.
//
//     const ChatTemplate spoken = open_template({.folders = {"Qwen3-8B/"}});
//     spoken.render(conversation, conversation.messages.size(), Prompt::none).text
//
// Equal byte for byte to apply_chat_template(messages, tools=..., tokenize=False), with one exception on
// purpose: strftime_now() always tells the same day, so that a run gives the same tokens tomorrow.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/chat/conversation.h"
#include "lockstep/chat/jinja/template.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::chat {

enum class Prompt : uint8_t { none, generation };  // generation: and the words that begin an assistant's turn

// Messages as a template sees them. Values share what they hold: a part of a conversation costs little.
struct Names {
  std::vector<jinja::Value> messages;
  std::vector<std::pair<std::string, jinja::Value>> others;
  bool tools = false;
};

class ChatTemplate {
 public:
  // `names`: bos_token and the like. Fault 268: the text is no template.
  ChatTemplate(const std::string& source, std::vector<std::pair<std::string, jinja::Value>> names);
  void add_for_tools(const std::string& source);  // another template for conversations with tools

  // Whether lists of texts as content are understood; where not, texts are put together first.
  Names names_of(const Conversation& conversation) const;
  // The first `count` messages. jinja::Failure: what the template says against them.
  jinja::Output render(const Names& names, size_t count, Prompt prompt) const;
  bool marks_generation(const Names& names) const;

 private:
  const jinja::Template& chosen(bool tools) const { return tools && for_tools_ ? *for_tools_ : template_; }
  bool understands_parts() const;

  jinja::Template template_;
  std::optional<jinja::Template> for_tools_;
  std::vector<std::pair<std::string, jinja::Value>> names_;
  bool takes_parts_ = false;
};

struct TemplateQuery {
  std::string file;  // data.chat_template: wins over what folders hold
  std::vector<std::string>
      folders;  // of the tokenizer and of the model, in this order; files count as their folders
  const text::Tokenizer* tokenizer = nullptr;  // tells special tokens where no file names them
};
// No folder has a template: LS0267.
struct NoTemplateError : base::ConfigError {
  using ConfigError::ConfigError;
};
// chat_template.jinja, chat_template.json or tokenizer_config.json. NoTemplateError; ConfigError 267: the
// file that was named is none; DataError 268: it cannot be read.
ChatTemplate open_template(const TemplateQuery& query);

}  // namespace lockstep::chat

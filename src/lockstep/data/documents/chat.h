// Conversations to fine-tune on: a model's chat template makes a text of each, its tokenizer makes tokens of
// that, and labels are ignored where the assistant does not speak (chat/trained.h).
//
// Everything is encoded when the data is opened, by all cores, and kept as one 32-bit word a token. A
// conversation that cannot be used stops the run before it starts, with file, line and reason, or is left out
// and counted (data.on_error).
#pragma once

#include <string>

#include "lockstep/chat/encode.h"
#include "lockstep/data/corpus/tokenize.h"
#include "lockstep/data/documents/document_store.h"
#include "lockstep/data/tokens/tokenized.h"
#include "lockstep/recipe/recipe.h"

namespace lockstep::data {

// data.tokenizer, or model.from where that is "bytes": conversations are made of special tokens.
std::string conversation_tokenizer(const recipe::Recipe& recipe);

struct Speech {
  SharedTokenizer tokenizer;
  chat::ChatTemplate spoken;
  chat::TrainOn train_on;
};
Speech open_speech(const recipe::Recipe& recipe);  // ConfigError 270: no tokenizer; 267: no template
SharedTokenizer open_conversation_tokenizer(const recipe::Recipe& recipe);  // ConfigError 270
chat::ChatTemplate open_template_of(const recipe::Recipe& recipe,
                                    const text::Tokenizer& tokenizer);  // 267, 268

struct ChatOptions {
  size_t longest = 0;  // tokens of a conversation; the rest is truncated
  OnError on_error = OnError::stop;
};
DocumentStore encode_chats(const std::vector<std::string>& files, const Speech& speech,
                           const ChatOptions& options);

}  // namespace lockstep::data

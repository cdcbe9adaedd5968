#include "lockstep/data/documents/chat.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/documents/document_samples.h"
#include "lockstep/data/documents/encoded_records.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/tokens/tokens.h"
#include "lockstep/store/local.h"

namespace lockstep::data {
namespace {

std::unique_ptr<Dataset> open_chat(const recipe::Recipe& recipe, Use use) {
  const Speech speech = open_speech(recipe);
  const ChatOptions options{.longest = static_cast<size_t>(recipe.data.seq_len) + 1,
                            .on_error = recipe.data.on_error == "skip" ? OnError::skip : OnError::stop};
  const text::Tokenizer& tokenizer = *speech.tokenizer;
  const DocumentKind kind{.unit = "conversation",
                          .extensions = record_endings(),
                          .vocab = tokenizer.vocab(),
                          .padding = tokenizer.pad_token().value_or(tokenizer.end_token().value_or(0))};
  return with_tokenizer(open_document_samples(recipe, use, kind,
                                              [&](const std::vector<std::string>& files) {
                                                return encode_chats(files, speech, options);
                                              }),
                        speech.tokenizer);
}

// Objects with the field that jsonl reads are documents, whatever else they hold.
bool holds_conversations(const std::vector<std::string>& keys) {
  return std::find(keys.begin(), keys.end(), "text") == keys.end() && chat::form_of(keys) != nullptr;
}

}  // namespace

std::string conversation_tokenizer(const recipe::Recipe& recipe) {
  const bool own = recipe.data.tokenizer != "bytes" && !recipe.data.tokenizer.empty();
  if (own || recipe.model.from.empty() ||
      text::find_tokenizer(store::local_small_files(recipe.model.from)).empty())
    return recipe.data.tokenizer;
  return recipe.model.from;
}

SharedTokenizer open_conversation_tokenizer(const recipe::Recipe& recipe) {
  recipe::Recipe::Data data = recipe.data;
  data.tokenizer = conversation_tokenizer(recipe);
  if (SharedTokenizer tokenizer = tokenizer_of(data)) return tokenizer;
  throw base::ConfigError(270,
                          "conversations need the tokenizer of the model: set data.tokenizer to a folder "
                          "with tokenizer.json and a chat "
                          "template, or model.from to a model's folder that has them");
}

chat::ChatTemplate open_template_of(const recipe::Recipe& recipe, const text::Tokenizer& tokenizer) {
  return chat::open_template({.file = store::local_path(recipe.data.chat_template),
                              .folders = {store::local_small_files(conversation_tokenizer(recipe)),
                                          store::local_small_files(recipe.model.from)},
                              .tokenizer = &tokenizer});
}

Speech open_speech(const recipe::Recipe& recipe) {
  SharedTokenizer tokenizer = open_conversation_tokenizer(recipe);
  chat::ChatTemplate spoken = open_template_of(recipe, *tokenizer);
  return {.tokenizer = std::move(tokenizer),
          .spoken = std::move(spoken),
          .train_on = chat::train_on_of(recipe.data.train_on)};
}

DocumentStore encode_chats(const std::vector<std::string>& files, const Speech& speech,
                           const ChatOptions& options) {
  const auto make_encoder = [&]() -> RecordEncoder {
    const auto encoder =
        std::make_shared<chat::ChatEncoder>(speech.spoken, *speech.tokenizer, speech.train_on);
    return [encoder, &options](const chat::Json& row, DocumentStore& store) {
      const chat::EncodedChat encoded = encoder->encode(row);
      const std::vector<uint32_t> words = words_of(encoded, options.longest);
      store.add(words);
      if (words.size() < encoded.ids.size()) ++store.counts.truncated;
    };
  };
  return encode_records(files, {.unit = "conversation", .on_error = options.on_error}, make_encoder);
}

DatasetKind chat_kind() {
  return {.name = "chat",
          .describe = "conversations, through the model's chat template",
          .reads = {"data.path", "data.eval_path", "data.eval_fraction", "data.tokenizer",
                    "data.chat_template", "data.train_on", "data.on_error", "data.pack"},
          .files = {.claims = holds_conversations},
          .words = Words{.vocab = 0,
                         .start = 0,
                         .decode = tokens_to_numbers,
                         .encode = [](const std::string& text,
                                      int64_t vocab) { return numbers_to_tokens(text, vocab); }},
          .open = open_chat};
}

}  // namespace lockstep::data

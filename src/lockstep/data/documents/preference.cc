#include "lockstep/data/documents/preference.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/chat/fault.h"
#include "lockstep/data/documents/document_samples.h"
#include "lockstep/data/documents/encoded_records.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/tokens/tokens.h"

namespace lockstep::data {
namespace {

using chat::EncodedChat;
using chat::Fault;

struct EncodedPair {
  EncodedChat chosen, rejected;
};

// One thread's.
class PairEncoder {
 public:
  explicit PairEncoder(const PreferenceSpeech& speech)
      : speech_(speech), encoder_(speech.tokenizer->encoder()) {
    if (speech.spoken) chats_.emplace(*speech.spoken, *speech.tokenizer, chat::TrainOn::assistant);
  }

  EncodedPair encode(const chat::Json& row) {
    const chat::Preference read = chat::read_preference(row);
    if (const auto* texts = std::get_if<chat::TextPreference>(&read)) return of_texts(*texts);
    const auto& chats = std::get<chat::ChatPreference>(read);
    return {.chosen = of_chat(chats.chosen), .rejected = of_chat(chats.rejected)};
  }

 private:
  // Ids of the whole text, as TRL has them: many tokenizers begin a text with a token of its own, which an
  // answer must not begin with. Answers begin where the tokens of either leave those of the prompt.
  EncodedPair of_texts(const chat::TextPreference& texts) {
    const std::vector<int32_t> prompt = ids_of(texts.prompt);
    EncodedPair pair{.chosen = {.ids = ids_of(texts.prompt + texts.chosen), .trained = {}},
                     .rejected = {.ids = ids_of(texts.prompt + texts.rejected), .trained = {}}};
    size_t shared = prompt.size();
    for (const EncodedChat* one : {&pair.chosen, &pair.rejected}) {
      const auto [left, right] =
          std::mismatch(prompt.begin(), prompt.end(), one->ids.begin(), one->ids.end());
      shared = std::min(shared, static_cast<size_t>(left - prompt.begin()));
    }
    for (EncodedChat* one : {&pair.chosen, &pair.rejected}) {
      if (const std::optional<int32_t> end = speech_.tokenizer->end_token()) one->ids.push_back(*end);
      one->trained.assign(shared, false);
      one->trained.resize(one->ids.size(), true);
    }
    return pair;
  }

  // As a model is given a text that it continues: without the token that ends one.
  std::vector<int32_t> ids_of(const std::string& text) {
    std::vector<int32_t> ids;
    encoder_->encode(text, ids, {});
    while (!ids.empty() && ids.back() == speech_.tokenizer->end_token()) ids.pop_back();
    return ids;
  }

  EncodedChat of_chat(const chat::Conversation& conversation) {
    if (!chats_)
      throw Fault{
          267,
          "has messages, but neither the tokenizer's folder nor data.chat_template has a chat template "
          "for them"};
    return chats_->encode(chat::render(*speech_.spoken, conversation, chat::TrainOn::assistant,
                                       speech_.tokenizer->special_tokens()));
  }

  const PreferenceSpeech& speech_;
  std::unique_ptr<text::Encoder> encoder_;
  std::optional<chat::ChatEncoder> chats_;
};

// Both or none; what both lose counts once.
void add(const EncodedPair& pair, size_t longest, DocumentStore& store) {
  const std::vector<uint32_t> chosen = words_of(pair.chosen, longest),
                              rejected = words_of(pair.rejected, longest);
  if (chosen == rejected)
    throw Fault{
        392, "has answers that are the same in data.seq_len tokens, which says nothing; raise data.seq_len"};
  store.add(chosen);
  store.add(rejected);
  if (chosen.size() < pair.chosen.ids.size() || rejected.size() < pair.rejected.ids.size())
    ++store.counts.truncated;
}

std::unique_ptr<Dataset> open_preference(const recipe::Recipe& recipe, Use use) {
  const PreferenceSpeech speech = open_preference_speech(recipe);
  const ChatOptions options{.longest = static_cast<size_t>(recipe.data.seq_len) + 1,
                            .on_error = recipe.data.on_error == "skip" ? OnError::skip : OnError::stop};
  const text::Tokenizer& tokenizer = *speech.tokenizer;
  const DocumentKind kind{.unit = "pair",
                          .extensions = record_endings(),
                          .vocab = tokenizer.vocab(),
                          .padding = tokenizer.pad_token().value_or(tokenizer.end_token().value_or(0)),
                          .pairs = true};
  return with_tokenizer(open_document_samples(recipe, use, kind,
                                              [&](const std::vector<std::string>& files) {
                                                return encode_preferences(files, speech, options);
                                              }),
                        speech.tokenizer);
}

}  // namespace

// Texts need no template: whether one is needed shows when a row has messages.
PreferenceSpeech open_preference_speech(const recipe::Recipe& recipe) {
  PreferenceSpeech speech{.tokenizer = open_conversation_tokenizer(recipe), .spoken = std::nullopt};
  try {
    speech.spoken = open_template_of(recipe, *speech.tokenizer);
  } catch (const chat::NoTemplateError&) {
    speech.spoken.reset();
  }
  return speech;
}

DocumentStore encode_preferences(const std::vector<std::string>& files, const PreferenceSpeech& speech,
                                 const ChatOptions& options) {
  const auto make_encoder = [&]() -> RecordEncoder {
    const auto encoder = std::make_shared<PairEncoder>(speech);
    return [encoder, &options](const chat::Json& row, DocumentStore& store) {
      add(encoder->encode(row), options.longest, store);
    };
  };
  return encode_records(files, {.unit = "pair", .on_error = options.on_error}, make_encoder);
}

DatasetKind preference_kind() {
  return {.name = "preference",
          .describe = "pairs of a chosen and a rejected answer, for tune.loss = dpo",
          .reads = {"data.path", "data.eval_path", "data.eval_fraction", "data.tokenizer",
                    "data.chat_template", "data.on_error"},
          .files = {.claims = chat::is_preference},
          .words = Words{.vocab = 0,
                         .start = 0,
                         .decode = tokens_to_numbers,
                         .encode = [](const std::string& text,
                                      int64_t vocab) { return numbers_to_tokens(text, vocab); }},
          .open = open_preference};
}

}  // namespace lockstep::data

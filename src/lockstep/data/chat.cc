#include "lockstep/data/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/chat/fault.h"
#include "lockstep/data/document_samples.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/parallel.h"
#include "lockstep/data/records.h"
#include "lockstep/data/tokens.h"
#include "lockstep/store/local.h"

namespace lockstep::data {
namespace {

using chat::Fault;

constexpr size_t kLongestRecord = size_t{64} << 20;
const std::vector<std::string> kChatFiles = {".jsonl", ".ndjson", ".json"};

chat::Json parsed(std::string_view text) {
  if (text.size() > kLongestRecord) throw Fault{214, "is longer than 64 MiB"};
  try {
    return chat::Json::parse(text);
  } catch (const chat::Json::exception& error) {
    std::string why = error.what();  // "[json...] parse error at line 1, column 5: syntax error ..."
    if (const size_t tag = why.find("] "); tag != std::string::npos) why = why.substr(tag + 2);
    if (const size_t colon = why.find(": "); colon != std::string::npos) why = why.substr(colon + 2);
    why.resize(std::min({why.size(), why.find("; last read"), size_t{120}}));
    throw Fault{210, "is not JSON: " + why};
  }
}

// Truncated where it is too long, as long as something is left to train on.
void add(const chat::EncodedChat& encoded, size_t longest, DocumentStore& store) {
  const auto begin =
      encoded.trained.begin() + (encoded.trained.empty() ? 0 : 1);  // the first token is never predicted
  const auto first = std::find(begin, encoded.trained.end(), true);
  if (first == encoded.trained.end()) throw Fault{263, "has no token to train on behind its first"};
  const size_t size = std::min(encoded.ids.size(), longest);
  if (static_cast<size_t>(first - encoded.trained.begin()) >= size) {
    throw Fault{
        269,
        fmt::format("has {} tokens before the first that is trained on, which is beyond data.seq_len = {}; "
                    "raise data.seq_len, or shorten it",
                    first - encoded.trained.begin(), longest - 1)};
  }
  std::vector<uint32_t> words(size);
  for (size_t i = 0; i < size; ++i)
    words[i] = static_cast<uint32_t>(encoded.ids[i]) | (encoded.trained[i] ? DocumentStore::kTrained : 0);
  store.add(words);
  if (size < encoded.ids.size()) ++store.counts.truncated;
}

struct Reader {
  const RecordFile& file;
  const Speech& speech;
  const ChatOptions& options;

  DocumentStore read(size_t first, size_t last) const {
    DocumentStore store;
    chat::ChatEncoder encoder(speech.spoken, *speech.tokenizer, speech.train_on);
    for (size_t i = first; i < last; ++i) {
      const Record& record = file.records()[i];
      try {
        add(encoder.encode(parsed(file.text(record))), options.longest, store);
      } catch (const Fault& fault) {
        const std::string sentence = fmt::format("{} {}", file.where(record), fault.sentence);
        if (options.on_error == OnError::stop)
          throw base::DataError(fault.number,
                                sentence + "; data.on_error=skip leaves such conversations out");
        store.add_fault(fmt::format("{} [{}]", sentence, base::code_name(fault.number)));
      }
    }
    return store;
  }
};

std::unique_ptr<Dataset> open_chat(const recipe::Recipe& recipe, Use use) {
  const Speech speech = open_speech(recipe);
  const ChatOptions options{.longest = static_cast<size_t>(recipe.data.seq_len) + 1,
                            .on_error = recipe.data.on_error == "skip" ? OnError::skip : OnError::stop};
  const text::Tokenizer& tokenizer = *speech.tokenizer;
  const DocumentKind kind{.unit = "conversation",
                          .extensions = kChatFiles,
                          .vocab = tokenizer.vocab(),
                          .padding = tokenizer.pad_token().value_or(tokenizer.end_token().value_or(0))};
  return with_tokenizer(open_document_samples(recipe, use, kind,
                                              [&](const std::vector<std::string>& files) {
                                                return encode_chats(files, speech, options);
                                              }),
                        speech.tokenizer);
}

// Objects with the field that jsonl reads are documents, whatever else they hold.
bool holds_conversations(std::string_view ending, const std::string& file) {
  if (std::find(kChatFiles.begin(), kChatFiles.end(), ending) == kChatFiles.end()) return false;
  const std::vector<std::string> keys = first_keys(file);
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

Speech open_speech(const recipe::Recipe& recipe) {
  recipe::Recipe::Data data = recipe.data;
  data.tokenizer = conversation_tokenizer(recipe);
  SharedTokenizer tokenizer = tokenizer_of(data);
  if (!tokenizer) {
    throw base::ConfigError(270,
                            "conversations need the tokenizer of the model: set data.tokenizer to a folder "
                            "with tokenizer.json and a chat "
                            "template, or model.from to a model's folder that has them");
  }
  chat::ChatTemplate spoken = chat::open_template(
      {.file = store::local_path(recipe.data.chat_template),
       .folders = {store::local_small_files(data.tokenizer), store::local_small_files(recipe.model.from)},
       .tokenizer = tokenizer.get()});
  return {.tokenizer = std::move(tokenizer),
          .spoken = std::move(spoken),
          .train_on = chat::train_on_of(recipe.data.train_on)};
}

DocumentStore encode_chats(const std::vector<std::string>& files, const Speech& speech,
                           const ChatOptions& options) {
  DocumentStore all;
  for (const std::string& path : files) {
    const RecordFile file(path);
    const auto pieces = file.pieces();
    std::vector<DocumentStore> stores(pieces.size());
    const Reader reader{file, speech, options};
    parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
      const auto& [first, last] = pieces[static_cast<size_t>(i)];
      stores[static_cast<size_t>(i)] = reader.read(first, last);
    });
    for (DocumentStore& store : stores) {
      all.append(store);
      store = {};
    }
  }
  all.shrink();
  return all;
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

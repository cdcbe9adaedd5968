#include "lockstep/data/documents/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/documents/packed_stream.h"
#include "lockstep/data/formats/files.h"
#include "lockstep/data/formats/kept.h"
#include "lockstep/data/formats/parallel.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/tokens/text.h"
#include "lockstep/data/tokens/tokenized.h"
#include "lockstep/data/tokens/tokens.h"
#include "lockstep/data/tokens/windows.h"

namespace lockstep::data {
namespace {

// Documents are valid UTF-8 (others are refused), and no UTF-8 text holds the byte 255: it can stand for the
// end of a document, and a document costs one byte a byte.
constexpr int32_t kStoredEnd = 255;
constexpr size_t kPieceBytes = size_t{16} << 20;  // read by one thread at a time
constexpr size_t kMostSkips = 20;                 // that are told

const char* remedy_of(int number) {
  switch (number) {
    case 212:
    case 213:
      return "set data.field to a string field";
    case 214:
      return "split the document into several";
    case 275:
      return "convert the file to UTF-8 (iconv), or set data.on_error=skip";
    default:
      return "fix or remove it, or set data.on_error=skip";
  }
}

struct Read {
  std::vector<std::byte> bytes;
  Skipped skipped;
};

void skip_or_stop(const BadDocument& document, bool skip, Skipped& skipped) {
  if (!skip)
    throw base::DataError(document.number,
                          fmt::format("{}; {}", document.sentence, remedy_of(document.number)));
  ++skipped.documents;
  if (skipped.first.size() < kMostSkips) skipped.first.push_back(document.sentence);
}

void add_skipped(const Skipped& one, Skipped& sum) {
  sum.documents += one.documents;
  for (const std::string& sentence : one.first) {
    if (sum.first.size() < kMostSkips) sum.first.push_back(sentence);
  }
}

Read read_part(const CorpusReader& reader, const CorpusPart& part, bool skip) {
  Read read;
  const auto use = [&](const Document& document) {
    const auto bytes =
        reader.holds_tokens() ? std::as_bytes(document.tokens) : std::as_bytes(std::span(document.text));
    read.bytes.insert(read.bytes.end(), bytes.begin(), bytes.end());
    if (!reader.holds_tokens()) read.bytes.push_back(std::byte{kStoredEnd});
  };
  reader.each_document(part, use,
                       [&](const BadDocument& document) { skip_or_stop(document, skip, read.skipped); });
  read.bytes.shrink_to_fit();
  return read;
}

// A file's documents, piece by piece.
struct Opener {
  const recipe::Recipe::Data& data;
  bool tokens;
  KeptInMemory kept = {};
  Skipped skipped = {};

  void read_file(const std::string& file, const std::function<void(std::vector<std::byte>)>& use) {
    const auto reader = open_corpus(file, {.field = data.field, .part = kPieceBytes});
    if (reader->holds_tokens() != tokens) {
      throw base::DataError(213, fmt::format("{} holds {} in its column \"{}\", unlike the files before it; "
                                             "train on one kind at a time",
                                             file, tokens ? "text" : "tokens", data.field));
    }
    const size_t at_once = 2 * std::max<size_t>(1, std::thread::hardware_concurrency());
    for (std::vector<CorpusPart> parts;; parts.clear()) {
      while (parts.size() < at_once) {
        std::optional<CorpusPart> part = reader->next_part();
        if (!part) break;
        parts.push_back(std::move(*part));
        if (parts.back().bytes.size() > kLongestDocument)
          break;  // most likely refused: nothing more is read for it
      }
      if (parts.empty()) return;
      std::vector<Read> pieces(parts.size());
      parallel_for(static_cast<int64_t>(parts.size()), [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        pieces[at] = read_part(*reader, parts[at], data.on_error == "skip");
      });
      for (Read& piece : pieces) {
        kept.add(piece.bytes.size(), file);
        add_skipped(piece.skipped, skipped);
        use(std::move(piece.bytes));
      }
    }
  }

  TokenStream stream(const std::vector<std::string>& files) {
    TokenStream stream;
    for (const std::string& file : files)
      read_file(file, [&](std::vector<std::byte> bytes) { stream.append(buffer_segment(std::move(bytes))); });
    return stream;
  }

  TokenSegment segment(const std::string& file) {
    std::vector<std::byte> all;
    read_file(file, [&](const std::vector<std::byte>& bytes) {
      all.insert(all.end(), bytes.begin(), bytes.end());
    });
    TokenSegment segment = buffer_segment(std::move(all), sizeof(int32_t));
    segment.name = file;
    return segment;
  }
};

class Documents final : public WindowedDataset {
 public:
  Documents(const recipe::Recipe::Data& recipe, Streams streams)
      : WindowedDataset(recipe, kEndOfDocument + 1, std::move(streams)) {}

  void read(Split split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    WindowedDataset::read(split, index, inputs, labels);
    std::replace(inputs.begin(), inputs.end(), kStoredEnd, kEndOfDocument);
    std::replace(labels.begin(), labels.end(), kStoredEnd, kEndOfDocument);
  }

  std::vector<int32_t> start() const override { return {kEndOfDocument}; }
  std::string decode(std::span<const int32_t> tokens) const override { return tokens_to_documents(tokens); }
  std::vector<int32_t> encode(const std::string& text) const override { return bytes_to_tokens(text); }
};

// Asked of the first file that is no empty one.
bool holds_tokens(const recipe::Recipe::Data& data, Use use, const std::vector<std::string>& endings) {
  const bool eval = use == Use::evaluate && !data.eval_path.empty();
  const FoundFiles found = find_files({.key = eval ? "data.eval_path" : "data.path",
                                       .path = eval ? data.eval_path : data.path,
                                       .extensions = endings});
  for (const std::string& file : found.files) {
    if (corpus_bytes(file) > 0) return open_corpus(file, {.field = data.field})->holds_tokens();
  }
  return false;
}

}  // namespace

std::string tokens_to_documents(std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) {
    text += token == kEndOfDocument ? "<end>" : tokens_to_bytes(std::span(&token, 1));
  }
  return text;
}

std::unique_ptr<Dataset> open_documents(const recipe::Recipe& recipe, Use use,
                                        const std::vector<std::string>& endings) {
  Opener opener{.data = recipe.data, .tokens = holds_tokens(recipe.data, use, endings)};
  if (opener.tokens)
    return open_token_segments(
        recipe, use, endings, [&](const std::string& file) { return opener.segment(file); }, &opener.skipped);
  if (SharedTokenizer tokenizer = tokenizer_of(recipe.data))
    return open_tokenized(recipe, use, endings, std::move(tokenizer));
  const auto open = [&](const std::vector<std::string>& files) { return opener.stream(files); };
  if (recipe.data.pack) return open_packed(recipe, use, {.open = open});  // which says why not
  Streams streams = open_streams(recipe.data, use, endings, open);
  streams.skipped = std::move(opener.skipped);
  return std::make_unique<Documents>(recipe.data, std::move(streams));
}

}  // namespace lockstep::data

#include "lockstep/data/tokens/text.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/data/documents/packed_stream.h"
#include "lockstep/data/formats/kept.h"
#include "lockstep/data/formats/unpack.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/tokens/tokenized.h"
#include "lockstep/data/tokens/windows.h"

namespace lockstep::data {
namespace {

// Compressed text is kept in memory as it unpacks.
TokenSegment unpacked_segment(const std::string& file, KeptInMemory& kept) {
  constexpr size_t kPiece = size_t{1} << 20;
  std::vector<std::byte> bytes;
  std::vector<char> piece(kPiece);
  const auto source = open_packed(file);
  while (const size_t count = source->read(piece)) {
    kept.add(count, file);
    const auto more = std::as_bytes(std::span(piece).first(count));
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  bytes.shrink_to_fit();
  return buffer_segment(std::move(bytes));
}

TokenStream open_stream(const std::vector<std::string>& files) {
  TokenStream stream;
  KeptInMemory kept;
  for (const std::string& file : files) {
    stream.append(is_packed(file) ? unpacked_segment(file, kept)
                                  : file_segment(base::MappedFile::open(file), 0, 1));
  }
  return stream;
}

class Text final : public WindowedDataset {
 public:
  Text(const recipe::Recipe::Data& recipe, Streams streams)
      : WindowedDataset(recipe, kTextVocab, std::move(streams)) {}
  std::vector<int32_t> start() const override { return {'\n'}; }
  std::string decode(std::span<const int32_t> tokens) const override { return tokens_to_bytes(tokens); }
  std::vector<int32_t> encode(const std::string& text) const override { return bytes_to_tokens(text); }
};

}  // namespace

std::vector<int32_t> bytes_to_tokens(const std::string& text) {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string tokens_to_bytes(std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < kTextVocab) {
      text += static_cast<char>(token);
    } else {
      text += fmt::format("<{}>", token);
    }
  }
  return text;
}

namespace {

std::unique_ptr<Dataset> open_text(const recipe::Recipe& recipe, Use use) {
  if (SharedTokenizer tokenizer = tokenizer_of(recipe.data))
    return open_tokenized(recipe, use, {}, std::move(tokenizer));
  if (recipe.data.pack) return open_packed(recipe, use, {.open = open_stream});  // which says why not
  return std::make_unique<Text>(recipe.data, open_streams(recipe.data, use, {}, open_stream));
}

}  // namespace

DatasetKind text_kind() {
  return {.name = "text",
          .describe = "any files, as bytes",
          .reads = {"data.path", "data.eval_path", "data.eval_fraction", "data.tokenizer", "data.pack"},
          .files = {.looks_like =
                        [](std::string_view ending, std::string_view bytes) {
                          return ending != ".json" && bytes.find('\0') == std::string_view::npos;
                        }},
          .plain = true,
          .words = Words{kTextVocab, '\n', tokens_to_bytes,
                         [](const std::string& text, int64_t) { return bytes_to_tokens(text); }},
          .open = open_text};
}

}  // namespace lockstep::data

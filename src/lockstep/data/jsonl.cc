#include "lockstep/data/jsonl.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/jsonl_field.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/packed_stream.h"
#include "lockstep/data/parallel.h"
#include "lockstep/data/text.h"
#include "lockstep/data/tokenized.h"
#include "lockstep/data/windows.h"

namespace lockstep::data {
namespace {

// JSON strings are valid UTF-8 (the parser refuses others), and no UTF-8 text holds the byte 255: it can
// stand for the end of a document, and a document costs one byte a byte.
constexpr int32_t kStoredEnd = 255;
const std::vector<std::string> kJsonlFiles = {".jsonl", ".ndjson"};
constexpr size_t kPieceBytes = size_t{16} << 20;  // lines parsed by one thread at a time

constexpr size_t kLongestLine = size_t{64} << 20;  // parsing takes four times as much memory

// Where each piece starts: about kPieceBytes apart, always at the start of a line.
std::vector<size_t> cut_at_lines(std::string_view text) {
  std::vector<size_t> starts{0};
  while (text.size() - starts.back() > kPieceBytes) {
    const size_t newline = text.find('\n', starts.back() + kPieceBytes);
    if (newline == std::string_view::npos) break;
    starts.push_back(newline + 1);
  }
  return starts;
}

[[noreturn]] void refuse(const base::MappedFile& file, size_t line_start, const FieldFault& fault) {
  const std::string_view before = file.text().substr(0, line_start);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const char* remedy = fault.number == 212 || fault.number == 213 ? "set data.field to a string field"
                       : fault.number == 214                      ? "split the document into several lines"
                                                                  : "fix or remove the line";
  throw base::DataError(fault.number, fmt::format("{} line {} (byte {}) {}; {}", file.path(), line,
                                                  line_start + fault.offset, fault.reason, remedy));
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

std::vector<std::byte> read_lines(const base::MappedFile& file, size_t from, size_t to,
                                  const std::string& field) {
  std::vector<std::byte> documents;
  std::string value;
  FieldFault fault;
  for (size_t start = from; start < to;) {
    const size_t end = std::min(file.text().find('\n', start), to);
    const std::string_view line = file.text().substr(start, end - start);
    if (line.size() > kLongestLine) refuse(file, start, {214, 0, "is longer than 64 MiB"});
    if (!is_blank(line)) {
      if (!read_field(line, field, value, fault)) refuse(file, start, fault);
      const auto bytes = std::as_bytes(std::span(value));
      documents.insert(documents.end(), bytes.begin(), bytes.end());
      documents.push_back(std::byte{kStoredEnd});
    }
    start = end + 1;
  }
  documents.shrink_to_fit();
  return documents;
}

TokenStream open_stream(const std::vector<std::string>& files, const std::string& field) {
  TokenStream stream;
  for (const std::string& path : files) {
    const base::MappedFile file = base::MappedFile::open(path);
    std::vector<size_t> cuts = cut_at_lines(file.text());
    std::vector<std::vector<std::byte>> pieces(cuts.size());
    cuts.push_back(file.text().size());
    parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      pieces[at] = read_lines(file, cuts[at], cuts[at + 1], field);
    });
    for (auto& piece : pieces) stream.append(buffer_segment(std::move(piece)));
  }
  return stream;
}

class Jsonl final : public WindowedDataset {
 public:
  Jsonl(const recipe::Recipe::Data& recipe, Streams streams)
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

}  // namespace

std::string tokens_to_documents(std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) {
    text += token == kEndOfDocument ? "<end>" : tokens_to_bytes(std::span(&token, 1));
  }
  return text;
}

namespace {

// One object a line: the first line is a whole object, and not the beginning of a document over many lines.
bool is_jsonl(std::string_view bytes) {
  const std::string_view line = base::trimmed(bytes.substr(0, bytes.find('\n')));
  return line.size() > 1 && line.front() == '{' && line.back() == '}';
}

std::unique_ptr<Dataset> open_jsonl(const recipe::Recipe& recipe, Use use) {
  if (SharedTokenizer tokenizer = tokenizer_of(recipe.data))
    return open_tokenized(recipe, use, kJsonlFiles, std::move(tokenizer));
  const auto open = [&](const std::vector<std::string>& files) {
    return open_stream(files, recipe.data.field);
  };
  if (recipe.data.pack) return open_packed(recipe, use, {.open = open});  // which says why not
  return std::make_unique<Jsonl>(recipe.data, open_streams(recipe.data, use, kJsonlFiles, open));
}

}  // namespace

DatasetKind jsonl_kind() {
  return {
      .name = "jsonl",
      .describe = "one JSON object per line",
      .reads = {"data.path", "data.eval_path", "data.eval_fraction", "data.tokenizer", "data.field", "data.pack"},
      .files = {.endings = kJsonlFiles,
                .looks_like = [](std::string_view ending,
                                 std::string_view bytes) { return ending == ".json" && is_jsonl(bytes); }},
      .words = Words{kEndOfDocument + 1, kEndOfDocument, tokens_to_documents,
                     [](const std::string& text, int64_t) { return bytes_to_tokens(text); }},
      .open = open_jsonl};
}

}  // namespace lockstep::data

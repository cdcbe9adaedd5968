#include "lockstep/data/tokens/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/number.h"
#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/data/documents/packed_stream.h"
#include "lockstep/data/formats/megatron.h"
#include "lockstep/data/formats/npy.h"
#include "lockstep/data/formats/parallel.h"
#include "lockstep/data/formats/token_header.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/tokens/tokenized.h"
#include "lockstep/data/tokens/windows.h"

namespace lockstep::data {
namespace {

const std::vector<std::string> kTokenFiles = {".bin", ".npy"};
constexpr int kRawWidth = 2;  // nanoGPT
constexpr int64_t kLargestVocab = int64_t{1}
                                  << 20;  // without model.vocab: more means that these are no tokens
// Larger data is not read as a whole before a run: its tokens are checked as samples are read.
constexpr int64_t kScannedBytes = int64_t{4} << 30;
// The largest whose vocabulary is found by reading all of it.
constexpr int64_t kSearchedBytes = int64_t{64} << 30;
constexpr int64_t kLookedAt = int64_t{1} << 17;  // bytes of an object before it is opened
constexpr int64_t kPieceTokens = int64_t{1} << 22;

// The beginning of a file, wherever it lies: what its header says is held against its size.
struct Beginning {
  std::string path;
  int64_t size;
  std::span<const std::byte> bytes;
};
Beginning beginning_of(const base::MappedFile& file) { return {file.path(), file.size(), file.bytes()}; }

int32_t int_at(const Beginning& file, size_t offset) {
  int32_t value = 0;
  if (file.bytes.size() >= offset + 4) std::memcpy(&value, file.bytes.data() + offset, sizeof value);
  return value;
}

// Tokens of 32 or 64 bits without a header: each second word of 16 bits is the upper half of one, 0 or 1, and
// a model would learn to predict those.
bool looks_wider(const Beginning& file) {
  constexpr int64_t kLeast = 256, kMost = 1 << 16;  // words that are looked at
  constexpr uint16_t kLargestHalf = 1;              // of vocabularies to 131,072
  const int64_t there = static_cast<int64_t>(file.bytes.size()) / kRawWidth;
  const int64_t words = std::min<int64_t>(there, kMost) / 2 * 2;
  uint16_t lower = 0, upper = 0;
  for (int64_t i = 0; i < words; i += 2) {
    uint16_t pair[2];
    std::memcpy(pair, file.bytes.data() + i * kRawWidth, sizeof pair);
    lower = std::max(lower, pair[0]), upper = std::max(upper, pair[1]);
  }
  return words >= kLeast && upper <= kLargestHalf && lower >= 256;
}

void check_raw(const Beginning& file) {
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  if (const std::string_view format = foreign_format(text); !format.empty()) {
    throw base::DataError(236,
                          fmt::format("{} is {}, not a token file; unpack or convert it", file.path, format));
  }
  if (file.size % kRawWidth != 0) {
    throw base::DataError(233,
                          fmt::format("{} ends in the middle of a token at byte {}; expected 16-bit tokens "
                                      "without a header (nanoGPT), so it is truncated or in another format",
                                      file.path, file.size - 1));
  }
  if (looks_wider(file)) {
    throw base::DataError(
        234, fmt::format("{} contains tokens of 32 or 64 bits, but files without a header (nanoGPT) are read "
                         "as 16 bits; write it with llm.c's Llama-3 header for 32 bits, or with its GPT-2 "
                         "header if every second token really is 0 or 1",
                         file.path));
  }
}

void check_header(const Beginning& file, const TokenFormat& format) {
  const int32_t version = int_at(file, 4);
  const int64_t count = int_at(file, 8);
  if (file.size >= kTokenHeaderBytes && version != format.version) {
    throw base::DataError(
        231, fmt::format("{} has version {} at byte 4; supported is version {} of the {} format", file.path,
                         version, format.version, format.name));
  }
  const int64_t expected = kTokenHeaderBytes + count * format.width;
  if (file.size < kTokenHeaderBytes || count < 0 || file.size != expected) {
    throw base::DataError(
        230,
        fmt::format("{} ends at byte {}, its {} header of {} bytes promises {} tokens, that is {} bytes; it "
                    "was truncated or changed: fetch it again",
                    file.path, file.size, format.name, kTokenHeaderBytes, count, expected));
  }
}

// Bytes before the tokens, and how wide these are.
struct Shape {
  int64_t skipped;
  int width;
};
Shape checked_shape(const Beginning& file) {
  for (const TokenFormat& format : kTokenFormats) {
    if (int_at(file, 0) != format.magic) continue;
    check_header(file, format);
    return {kTokenHeaderBytes, format.width};
  }
  check_raw(file);
  return {0, kRawWidth};
}

TokenSegment open_file(const std::string& path) {
  if (const std::string index = megatron_index_of(path); !index.empty()) return open_megatron(path, index);
  base::MappedFile file = base::MappedFile::open(path);
  if (is_npy(file)) return open_npy(std::move(file));
  const Shape shape = checked_shape(beginning_of(file));
  return file_segment(std::move(file), shape.skipped, shape.width);
}

template <class Word>
int64_t largest_of(std::span<const std::byte> bytes) {
  Word largest = 0;
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    largest = std::max(largest, word);
  }
  return static_cast<int64_t>(std::min<uint64_t>(largest, INT64_MAX));
}

int64_t largest(std::span<const std::byte> bytes, int width) {
  switch (width) {
    case 1:
      return largest_of<uint8_t>(bytes);
    case 2:
      return largest_of<uint16_t>(bytes);
    case 4:
      return largest_of<uint32_t>(bytes);
    default:
      return largest_of<uint64_t>(bytes);
  }
}

[[noreturn]] void refuse_token(const TokenSegment& segment, int64_t index, int64_t token,
                               const recipe::AutoInt& vocab) {
  const auto* file = std::get_if<base::MappedFile>(&segment.storage);
  const std::string where =
      file != nullptr ? fmt::format("{} contains token {} at byte {}", file->path(), token,
                                    segment.bytes.data() - file->bytes().data() + index * segment.width)
                      : fmt::format("{} contains token {}", segment.name, token);
  const std::string limit =
      vocab.is_auto
          ? fmt::format(
                "no vocabulary is larger than {}; this is not a token file, or model.vocab must be set",
                kLargestVocab)
          : fmt::format("model.vocab = {} allows tokens up to {}; raise it or prepare the data again",
                        vocab.value, vocab.value - 1);
  throw base::DataError(232, fmt::format("{}: {}", where, limit));
}

// One pass over all tokens, in parallel: the vocabulary they need, or an error for the first that is too
// large.
int64_t scan(const TokenStream& stream, const recipe::AutoInt& vocab) {
  const int64_t limit = vocab.is_auto ? kLargestVocab : vocab.value;
  int64_t needed = 1;
  for (const TokenSegment& segment : stream.segments()) {
    std::vector<int64_t> maxima(static_cast<size_t>(base::divide_up(segment.tokens(), kPieceTokens)));
    parallel_for(static_cast<int64_t>(maxima.size()), [&](int64_t piece) {
      const int64_t first = piece * kPieceTokens, last = std::min(first + kPieceTokens, segment.tokens());
      std::vector<std::byte> bytes(static_cast<size_t>((last - first) * segment.width));
      segment.read(first * segment.width, bytes);
      const int64_t found = largest(bytes, segment.width);
      maxima[static_cast<size_t>(piece)] = found;
      for (int64_t i = first; found >= limit && i < last; ++i) {
        const auto one = std::span(bytes).subspan(static_cast<size_t>((i - first) * segment.width),
                                                  static_cast<size_t>(segment.width));
        const int64_t token = largest(one, segment.width);
        if (token >= limit) refuse_token(segment, i, token, vocab);
      }
    });
    for (const int64_t found : maxima) needed = std::max(needed, found + 1);
  }
  return needed;
}

class Tokens final : public WindowedDataset {
 public:
  Tokens(const recipe::Recipe::Data& recipe, int64_t vocab, Streams streams, bool scanned)
      : WindowedDataset(recipe, vocab, std::move(streams)), scanned_(scanned) {}

  // Whatever was checked when the files were opened, and whoever wrote into one since: no token reaches the
  // embedding that has no row there.
  void read(Split split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    WindowedDataset::read(split, index, inputs, labels);
    for (const std::span<int32_t> tokens : {inputs, labels}) {
      const auto wrong = std::find_if(tokens.begin(), tokens.end(),
                                      [&](int32_t token) { return token < 0 || token >= vocab(); });
      if (wrong != tokens.end()) {
        refuse_sample(index, static_cast<uint32_t>(*wrong));
      }
    }
  }

  std::string decode(std::span<const int32_t> tokens) const override { return tokens_to_numbers(tokens); }
  std::vector<int32_t> encode(const std::string& text) const override {
    return numbers_to_tokens(text, vocab());
  }

 private:
  [[noreturn]] void refuse_sample(int64_t index, uint32_t token) const {
    if (!scanned_) {
      throw base::DataError(232, fmt::format("sample {} contains token {}, but model.vocab = {} has no row "
                                             "for it; raise model.vocab or prepare the data again",
                                             index, token, vocab()));
    }
    throw base::DataError(
        232,
        fmt::format("sample {} now contains token {}, beyond the {} present when the data was opened: its "
                    "files were modified during the run; restore them and run the same command again",
                    index, token, vocab()));
  }
  bool scanned_;
};

}  // namespace

std::string tokens_to_numbers(std::span<const int32_t> tokens) {
  return fmt::format("{}", fmt::join(tokens, " "));
}

std::vector<int32_t> numbers_to_tokens(const std::string& text, int64_t vocab) {
  std::vector<int32_t> tokens;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    const int32_t token = base::parse_number<int32_t>(word).value_or(-1);
    if (token < 0 || token >= vocab) {
      throw base::ConfigError(221, fmt::format("{} is not a token number; there is no tokenizer for this "
                                               "data, so write numbers from 0 to {}, as in --prompt \"17 4\"",
                                               base::quoted(word, 40), vocab - 1));
    }
    tokens.push_back(token);
  }
  return tokens;
}

namespace {

// Whose tokens these are: the tokenizer that the recipe names, or the file that said it first.
struct Maker {
  std::string path;
  std::optional<uint64_t> hash;
};

// Files that do not say who made them are believed.
void check_maker(const std::string& file, std::span<const std::byte> begin, Maker& maker, bool is_tokenizer) {
  const std::optional<uint64_t> hash = tokenizer_of(begin);
  if (!hash) return;
  if (!maker.hash) maker = {file, hash};
  if (*hash == *maker.hash) return;
  throw base::DataError(
      237, fmt::format("{} was made by the tokenizer {}, but {} {} {}: {}", file, base::hex64(*hash),
                       maker.path, is_tokenizer ? "is" : "by", base::hex64(*maker.hash),
                       is_tokenizer ? "set data.tokenizer to the one that made it, or make it again with "
                                      "`lockstep tokenize`"
                                    : "train on files of one tokenizer"));
}

std::unique_ptr<Dataset> open_tokens(const recipe::Recipe& recipe, Use use) {
  const SharedTokenizer tokenizer = tokenizer_of(recipe.data);
  Maker maker{.path = {}, .hash = {}};
  if (tokenizer) maker = {.path = recipe.data.tokenizer, .hash = tokenizer->hash()};
  std::map<std::string, std::shared_ptr<store::Store>> stores;  // one of a bucket is enough for its objects
  return open_token_segments(recipe, use, kTokenFiles, [&](const std::string& file) {
    if (!store::is_uri(file)) {
      check_maker(file, base::MappedFile::open(file).bytes(), maker, tokenizer != nullptr);
      return open_file(file);
    }
    const store::Uri uri = store::parse_uri(file);
    std::shared_ptr<store::Store>& there = stores[uri.shown(uri.bucket()) + uri.query];
    if (!there) there = store::open_store(uri);
    auto remote = store::RemoteFile::open(there, uri);
    std::vector<std::byte> begin(static_cast<size_t>(std::min(remote->size(), kLookedAt)));
    remote->read(0, begin);
    check_maker(uri.shown(), begin, maker, tokenizer != nullptr);
    const Shape shape = checked_shape({uri.shown(), remote->size(), begin});
    return remote_segment(std::move(remote), shape.skipped, shape.width);
  });
}

}  // namespace

std::unique_ptr<Dataset> open_token_segments(const recipe::Recipe& recipe, Use use,
                                             const std::vector<std::string>& endings,
                                             const std::function<TokenSegment(const std::string&)>& open_one,
                                             Skipped* skipped) {
  SharedTokenizer tokenizer = tokenizer_of(recipe.data);
  recipe::AutoInt said = recipe.model.vocab;
  if (said.is_auto && tokenizer) said = tokenizer->vocab();
  int64_t needed = 1;
  bool scanned = true;
  const auto open = [&](const std::vector<std::string>& files) {
    TokenStream stream;
    int64_t bytes = 0;
    for (const std::string& file : files) {
      TokenSegment segment = open_one(file);
      bytes += segment.size();
      stream.append(std::move(segment));  // which leaves empty ones out
    }
    if (said.is_auto && (bytes > kSearchedBytes || stream.is_remote())) {
      throw base::ConfigError(
          232, fmt::format("model.vocab is auto, and finding it would mean reading all {} of {}: set "
                           "model.vocab to the tokenizer's vocabulary size, or data.tokenizer",
                           base::human_bytes(static_cast<double>(bytes)), recipe.data.path));
    }
    const bool whole = said.is_auto || (bytes <= kScannedBytes && !stream.is_remote());
    if (whole) needed = std::max(needed, scan(stream, said));
    scanned = scanned && whole;
    return stream;
  };
  if (recipe.data.pack) {
    const StreamDocuments documents{.extensions = endings,
                                    .vocab = said.is_auto ? 1 : said.value,
                                    .end = tokenizer ? tokenizer->end_token() : std::nullopt,
                                    .open = open,
                                    .skipped = skipped};
    auto packed = open_packed(recipe, use, documents);
    return with_tokenizer(std::move(packed), std::move(tokenizer));
  }
  Streams streams = open_streams(recipe.data, use, endings, open);
  if (skipped != nullptr) streams.skipped = std::move(*skipped);
  const int64_t vocab = said.is_auto ? needed : said.value;
  return with_tokenizer(std::make_unique<Tokens>(recipe.data, vocab, std::move(streams), scanned),
                        std::move(tokenizer));
}

DatasetKind tokens_kind() {
  return {.name = "tokens",
          .describe = "files of token numbers",
          .reads = {"data.path", "data.eval_path", "data.eval_fraction", "data.tokenizer", "data.pack"},
          .files = {.begins = {"\x93NUMPY"}, .endings = {".bin", ".npy"}},
          .of_any_tokenizer = true,
          .words = Words{0, 0, tokens_to_numbers, numbers_to_tokens},
          .open = open_tokens};
}

}  // namespace lockstep::data

#include "lockstep/data/tokens/tokenized.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/corpus/tokenize.h"
#include "lockstep/data/documents/packed_stream.h"
#include "lockstep/data/formats/kept.h"
#include "lockstep/data/tokens/windows.h"
#include "lockstep/store/local.h"

namespace lockstep::data {
namespace {

constexpr size_t kMostSkips = 20;  // that are told

// All that a dataset says, but text by the tokenizer.
class Spoken final : public Dataset, public Announced {
 public:
  Spoken(std::unique_ptr<Dataset> data, SharedTokenizer tokenizer)
      : data_(std::move(data)), tokenizer_(std::move(tokenizer)) {}
  int64_t vocab() const override { return std::max(data_->vocab(), tokenizer_->vocab()); }
  int64_t samples(Split split) const override { return data_->samples(split); }
  int64_t inputs_per_sample(int64_t seq_len) const override { return data_->inputs_per_sample(seq_len); }
  int64_t labels_per_sample(int64_t seq_len) const override { return data_->labels_per_sample(seq_len); }
  void read(Split split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    data_->read(split, index, inputs, labels);
  }
  void announce(Split split, std::span<const int64_t> samples) const override {
    if (const auto* told = dynamic_cast<const Announced*>(data_.get())) told->announce(split, samples);
  }
  bool has_documents() const override { return data_->has_documents(); }
  bool has_pairs() const override { return data_->has_pairs(); }
  void read_documents(Split split, int64_t index, std::span<int32_t> begins) const override {
    data_->read_documents(split, index, begins);
  }
  std::string describe() const override { return data_->describe(); }
  std::string describe_eval() const override { return data_->describe_eval(); }
  std::vector<std::string> remarks() const override { return data_->remarks(); }
  uint64_t content_hash() const override { return data_->content_hash(); }
  std::vector<int32_t> start() const override {
    return {tokenizer_->begin_token().value_or(tokenizer_->end_token().value_or(0))};
  }
  std::string decode(std::span<const int32_t> tokens) const override { return tokenizer_->decode(tokens); }
  std::vector<int32_t> encode(const std::string& text) const override {
    std::vector<int32_t> tokens;
    if (!text.empty()) tokenizer_->encoder()->encode(text, tokens);
    return tokens;
  }

 private:
  std::unique_ptr<Dataset> data_;
  SharedTokenizer tokenizer_;
};

class Encoded final : public WindowedDataset {
 public:
  Encoded(const recipe::Recipe::Data& recipe, int64_t vocab, Streams streams)
      : WindowedDataset(recipe, vocab, std::move(streams)) {}
};

struct Encoding {
  const text::Tokenizer& tokenizer;
  const recipe::Recipe::Data& data;
  KeptInMemory kept = {};
  Skipped skipped = {};
};

TokenStream encode_files(const std::vector<std::string>& files, Encoding& encoding) {
  TokenStream stream;
  const TokenizeOptions options{
      .corpus = {.field = encoding.data.field, .as_text = encoding.data.kind == "text"},
      .encoding = {},
      .on_error = encoding.data.on_error == "skip" ? OnError::skip : OnError::stop};
  for (const std::string& file : files) {
    std::vector<std::byte> bytes;
    const TokenizeCounts counts =
        tokenize_file(file, encoding.tokenizer, options, [&](std::span<const int32_t> tokens) {
          const auto more = std::as_bytes(tokens);
          encoding.kept.add(more.size(), file);
          bytes.insert(bytes.end(), more.begin(), more.end());
        });
    encoding.skipped.documents += counts.skipped;
    for (const std::string& fault : counts.faults) {
      if (encoding.skipped.first.size() < kMostSkips) encoding.skipped.first.push_back(fault);
    }
    bytes.shrink_to_fit();
    stream.append(buffer_segment(std::move(bytes), sizeof(int32_t)));
  }
  return stream;
}

}  // namespace

SharedTokenizer tokenizer_of(const recipe::Recipe::Data& data) {
  if (data.tokenizer == "bytes" || data.tokenizer.empty()) return nullptr;
  const std::string path = store::local_small_files(data.tokenizer);
  if (text::find_tokenizer(path).empty()) {
    throw base::ConfigError(
        207, fmt::format("data.tokenizer = {} is neither \"bytes\" nor a tokenizer: name a tokenizer.json, a "
                         "*.tiktoken, a tokenizer.model, a tekken.json, or a folder that holds one",
                         base::quoted(data.tokenizer, 200)));
  }
  return text::open_tokenizer(path);
}

std::unique_ptr<Dataset> open_tokenized(const recipe::Recipe& recipe, Use use,
                                        const std::vector<std::string>& extensions,
                                        SharedTokenizer tokenizer) {
  Encoding encoding{.tokenizer = *tokenizer, .data = recipe.data};
  const auto open = [&](const std::vector<std::string>& files) { return encode_files(files, encoding); };
  if (recipe.data.pack) {
    const StreamDocuments documents{.extensions = extensions,
                                    .vocab = tokenizer->vocab(),
                                    .end = tokenizer->end_token(),
                                    .open = open,
                                    .skipped = &encoding.skipped};
    auto packed = open_packed(recipe, use, documents);
    return with_tokenizer(std::move(packed), std::move(tokenizer));
  }
  Streams streams = open_streams(recipe.data, use, extensions, open);
  streams.skipped = std::move(encoding.skipped);
  auto data = std::make_unique<Encoded>(recipe.data, tokenizer->vocab(), std::move(streams));
  return with_tokenizer(std::move(data), std::move(tokenizer));
}

std::unique_ptr<Dataset> with_tokenizer(std::unique_ptr<Dataset> dataset, SharedTokenizer tokenizer) {
  if (!tokenizer || !dataset) return dataset;
  return std::make_unique<Spoken>(std::move(dataset), std::move(tokenizer));
}

}  // namespace lockstep::data

#include "lockstep/data/dataset.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/grammar.h"
#include "lockstep/data/jsonl.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/text.h"
#include "lockstep/data/tokens.h"

namespace lockstep::data {
namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Dataset> (*open)(const recipe::Recipe&, Use);
};
// A new kind of dataset is one file and one line here.
constexpr Kind kKinds[] = {
    {"grammar", open_grammar},
    {"text", open_text},
    {"jsonl", open_jsonl},
    {"tokens", open_tokens},
};

constexpr int64_t kLongestSample = int64_t{1} << 24;

// With data.kind = "auto" settled by what the files are.
recipe::Recipe with_kind(const recipe::Recipe& recipe, bool must_exist) {
  recipe::Recipe settled = recipe;
  if (recipe.data.kind == "auto") settled.data.kind = infer_kind(recipe.data.path, must_exist);
  return settled;
}

const Kind& find_kind(const std::string& name) {
  std::string known;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  }
  throw base::ConfigError(200, fmt::format("data.kind = \"{}\" is not known; choose one of {}", name, known));
}

// How the tokens of files read as text; the files themselves are not needed for that.
struct Words {
  const char* kind;
  int64_t vocab;  // 0: only model.vocab says it
  int32_t start;
  std::string (*decode)(std::span<const int32_t>);
  std::vector<int32_t> (*encode)(const std::string&, int64_t vocab);
};
constexpr auto kBytes = [](const std::string& text, int64_t) { return bytes_to_tokens(text); };
constexpr Words kWords[] = {
    {"text", kTextVocab, '\n', tokens_to_bytes, kBytes},
    {"jsonl", kEndOfDocument + 1, kEndOfDocument, tokens_to_documents, kBytes},
    {"tokens", 0, 0, tokens_to_numbers, numbers_to_tokens},
};

class StandIn final : public Dataset {
 public:
  StandIn(const Words& words, int64_t vocab) : words_(words), vocab_(vocab) {}
  int64_t vocab() const override { return vocab_; }
  int64_t samples(Split split) const override { return split == Split::train ? 1 : 0; }
  void read(Split, int64_t, std::span<int32_t>, std::span<int32_t>) const override {
    LS_ASSERT(false, "this dataset stands for one that is not read");
  }
  std::string describe() const override { return std::string(words_.kind) + ", not looked at"; }
  uint64_t content_hash() const override { return 0; }
  std::vector<int32_t> start() const override { return {words_.start}; }
  std::string decode(std::span<const int32_t> tokens) const override { return words_.decode(tokens); }
  std::vector<int32_t> encode(const std::string& text) const override { return words_.encode(text, vocab_); }

 private:
  const Words& words_;
  int64_t vocab_;
};

}  // namespace

std::unique_ptr<Dataset> stand_in_dataset(const recipe::Recipe& given) {
  const recipe::Recipe recipe = with_kind(given, false);
  for (const Words& words : kWords) {
    if (recipe.data.kind != words.kind) continue;
    const recipe::AutoInt& said = recipe.model.vocab;
    const int64_t vocab = words.vocab > 0 ? words.vocab : said.is_auto ? 0 : said.value;
    if (vocab > 0) return std::make_unique<StandIn>(words, vocab);
  }
  return nullptr;
}

std::unique_ptr<Dataset> open_dataset(const recipe::Recipe& given, Use use) {
  const recipe::Recipe recipe = with_kind(given, true);
  const Kind& kind = find_kind(recipe.data.kind);
  if (recipe.data.seq_len < 1 || recipe.data.seq_len > kLongestSample) {
    throw base::ConfigError(
        204, fmt::format("data.seq_len = {} is not between 1 and {}", recipe.data.seq_len, kLongestSample));
  }
  if (recipe.data.tokenizer != "bytes") {
    throw base::ConfigError(207,
                            fmt::format("data.tokenizer = \"{}\" is not known; use \"bytes\", or token files "
                                        "(data.kind = \"tokens\")",
                                        recipe.data.tokenizer));
  }
  std::unique_ptr<Dataset> dataset = kind.open(recipe, use);
  if (!recipe.model.vocab.is_auto && recipe.model.vocab.value < dataset->vocab()) {
    throw base::ConfigError(206,
                            fmt::format("model.vocab = {} is smaller than the {} tokens of the data ({}); "
                                        "raise it or set it to \"auto\"",
                                        recipe.model.vocab.value, dataset->vocab(), kind.name));
  }
  return dataset;
}

}  // namespace lockstep::data

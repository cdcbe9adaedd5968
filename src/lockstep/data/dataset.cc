#include "lockstep/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/registry.h"
#include "lockstep/base/text.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/mix.h"
#include "lockstep/data/permutation.h"
#include "lockstep/data/tokens/tokenized.h"

namespace lockstep::data {
namespace {

base::Registry<DatasetKind>& registry() {
  static base::Registry<DatasetKind> all(
      "dataset", {grammar_kind(), text_kind(), jsonl_kind(), preference_kind(), chat_kind(), csv_kind(),
                  parquet_kind(), arrow_kind(), mds_kind(), tokens_kind(), arrays_kind(), mix_kind()});
  return all;
}

constexpr int64_t kLongestSample = int64_t{1} << 24;

// With data.kind = "auto" resolved by what the files are.
recipe::Recipe with_kind(const recipe::Recipe& recipe, bool must_exist) {
  recipe::Recipe resolved = recipe;
  if (recipe.data.kind == "auto")
    resolved.data.kind =
        recipe.data.mix.empty() ? infer_kind(recipe.data.path, must_exist, recipe.data.field) : kMix;
  return resolved;
}

// Stands for data that is not read.
class StandIn final : public Dataset {
 public:
  StandIn(const DatasetKind& kind, int64_t vocab) : kind_(kind), words_(*kind.words), vocab_(vocab) {}
  int64_t vocab() const override { return vocab_; }
  int64_t samples(Split split) const override { return split == Split::train ? 1 : 0; }
  void read(Split, int64_t, std::span<int32_t>, std::span<int32_t>) const override {
    LS_ASSERT(false, "this dataset stands for one that is not read");
  }
  std::string describe() const override { return kind_.name + ", not inspected"; }
  uint64_t content_hash() const override { return 0; }
  std::vector<int32_t> start() const override { return {words_.start}; }
  std::string decode(std::span<const int32_t> tokens) const override { return words_.decode(tokens); }
  std::vector<int32_t> encode(const std::string& text) const override { return words_.encode(text, vocab_); }

 private:
  const DatasetKind& kind_;
  const Words& words_;
  int64_t vocab_;
};

}  // namespace

int64_t Dataset::sample_at(uint64_t seed, int64_t position) const {
  if (has_pairs()) {  // the permutation is of pairs
    const int64_t pairs = samples(Split::train) / 2;
    const KeyedPermutation permute(static_cast<uint64_t>(pairs), seed,
                                   static_cast<uint64_t>(position / (2 * pairs)));
    const auto pair = static_cast<int64_t>(permute(static_cast<uint64_t>(position / 2 % pairs)));
    return 2 * pair + position % 2;
  }
  const int64_t count = samples(Split::train);
  const KeyedPermutation permute(static_cast<uint64_t>(count), seed, static_cast<uint64_t>(position / count));
  return static_cast<int64_t>(permute(static_cast<uint64_t>(position % count)));
}

const std::vector<DatasetKind>& dataset_kinds() { return registry().rows(); }

const DatasetKind& find_kind(const std::string& name) {
  if (const DatasetKind* kind = registry().find(name)) return *kind;
  throw base::ConfigError(200, fmt::format("unknown data.kind = \"{}\"; choose one of {}", name,
                                           base::join(base::names_of(dataset_kinds()), ", ")));
}

bool is_of_any_tokenizer(const recipe::Recipe::Data& data) {
  if (!data.mix.empty()) {
    const std::vector<recipe::Recipe::Data> sources = data_of_sources(data);
    return std::all_of(sources.begin(), sources.end(),
                       [](const recipe::Recipe::Data& source) { return is_of_any_tokenizer(source); });
  }
  const DatasetKind* kind = registry().find(data.kind);
  return kind != nullptr && kind->of_any_tokenizer;
}

void register_dataset(DatasetKind kind) {
  LS_ASSERT(static_cast<bool>(kind.open), "dataset " + kind.name + " lacks open");
  registry().add(std::move(kind));
}

std::unique_ptr<Dataset> stand_in_dataset(const recipe::Recipe& given) {
  const recipe::Recipe recipe = with_kind(given, false);
  if (!recipe.data.mix.empty()) return stand_in_of_mix(recipe);
  const DatasetKind& kind = find_kind(recipe.data.kind);
  if (!kind.words) return nullptr;
  SharedTokenizer tokenizer = kind.makes.empty() ? tokenizer_of(recipe.data) : nullptr;
  const recipe::AutoInt& said = recipe.model.vocab;
  const int64_t own = tokenizer ? tokenizer->vocab() : kind.words->vocab;
  const int64_t vocab = own > 0 ? own : said.is_auto ? 0 : said.value;
  if (vocab == 0) return nullptr;
  return with_tokenizer(std::make_unique<StandIn>(kind, vocab), std::move(tokenizer));
}

std::unique_ptr<Dataset> open_dataset(const recipe::Recipe& given, Use use) {
  const recipe::Recipe recipe = with_kind(given, true);
  const DatasetKind& kind = find_kind(recipe.data.kind);
  if (recipe.data.seq_len < 1 || recipe.data.seq_len > kLongestSample) {
    throw base::ConfigError(
        204, fmt::format("data.seq_len = {} is not between 1 and {}", recipe.data.seq_len, kLongestSample));
  }
  if (!kind.makes.empty())
    static_cast<void>(tokenizer_of(recipe.data));  // of no use there, but none that is not there
  std::unique_ptr<Dataset> dataset = (recipe.data.mix.empty() ? kind : find_kind(kMix)).open(recipe, use);
  if (!recipe.model.vocab.is_auto && recipe.model.vocab.value < dataset->vocab()) {
    throw base::ConfigError(
        206, fmt::format(
                 "model.vocab = {} is smaller than the data's {} tokens ({}); raise it or set it to \"auto\"",
                 recipe.model.vocab.value, dataset->vocab(), kind.name));
  }
  return dataset;
}

}  // namespace lockstep::data

#include "lockstep/data/mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/philox.h"
#include "lockstep/base/text.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/mix_schedule.h"
#include "lockstep/data/permutation.h"
#include "lockstep/recipe/mix.h"

namespace lockstep::data {
namespace {

using recipe::MixSource;

struct Source {
  MixSource said;
  std::unique_ptr<Dataset> data;
  int64_t first = 0;  // of its training samples among those of all sources
};

// Numbers alone, without words for them.
bool reads_text(const Dataset& data) {
  try {
    return !data.encode("a").empty();
  } catch (const base::ConfigError&) {
    return false;
  }
}

MixSchedule train_schedule(const std::vector<Source>& sources, double temperature) {
  std::vector<MixShare> shares;
  for (const Source& source : sources) {
    const int64_t samples = source.data->samples(Split::train);
    const double by_size = std::pow(static_cast<double>(samples), 1 / temperature);
    shares.push_back({.weight = source.said.weight.value_or(by_size),
                      .most = source.said.epochs ? *source.said.epochs * samples : -1});
  }
  return MixSchedule(shares);
}

// Each sample once, in proportion.
std::optional<MixSchedule> eval_schedule(const std::vector<Source>& sources) {
  std::vector<MixShare> shares;
  int64_t all = 0;
  for (const Source& source : sources) {
    const int64_t samples = source.data->samples(Split::eval);
    shares.push_back({.weight = static_cast<double>(std::max<int64_t>(1, samples)), .most = samples});
    all += samples;
  }
  if (all == 0) return std::nullopt;
  return MixSchedule(shares);
}

class Mix final : public Dataset {
 public:
  Mix(std::vector<Source> sources, double temperature, Use use)
      : sources_(std::move(sources)), eval_(eval_schedule(sources_)) {
    for (Source& source : sources_) {
      source.first = train_samples_;
      train_samples_ += source.data->samples(Split::train);
      eval_samples_ += source.data->samples(Split::eval);
      if (source.data->vocab() > speaker().vocab()) speaker_ = static_cast<size_t>(&source - sources_.data());
    }
    if (use == Use::train) train_.emplace(train_schedule(sources_, temperature));
  }

  int64_t vocab() const override { return speaker().vocab(); }
  int64_t samples(Split split) const override {
    return split == Split::train ? train_samples_ : eval_samples_;
  }
  int64_t inputs_per_sample(int64_t seq_len) const override { return speaker().inputs_per_sample(seq_len); }
  int64_t labels_per_sample(int64_t seq_len) const override { return speaker().labels_per_sample(seq_len); }

  void read(Split split, int64_t index, std::span<int32_t> inputs, std::span<int32_t> labels) const override {
    LS_ASSERT(index >= 0 && index < samples(split));
    if (split == Split::eval) {
      const MixSchedule::Place place = eval_->at(index);
      return sources_[place.source].data->read(split, place.before, inputs, labels);
    }
    const Source& source = source_of(index);
    source.data->read(split, index - source.first, inputs, labels);
  }

  bool has_documents() const override {
    return std::any_of(sources_.begin(), sources_.end(),
                       [](const Source& source) { return source.data->has_documents(); });
  }
  void read_documents(Split split, int64_t index, std::span<int32_t> begins) const override {
    if (split == Split::eval) {
      const MixSchedule::Place place = eval_->at(index);
      return documents_of(*sources_[place.source].data, split, place.before, begins);
    }
    const Source& source = source_of(index);
    documents_of(*source.data, split, index - source.first, begins);
  }

  // Each source has its own epochs, and its own key.
  int64_t sample_at(uint64_t seed, int64_t position) const override {
    const MixSchedule::Place place = train_->at(position);
    const Source& source = sources_[place.source];
    const uint64_t key = place.source == 0 ? seed : base::mix64(seed + base::mix64(place.source));
    const auto count = static_cast<uint64_t>(source.data->samples(Split::train)),
               before = static_cast<uint64_t>(place.before);
    const KeyedPermutation permute(count, key, before / count);
    return source.first + static_cast<int64_t>(permute(before % count));
  }

  std::vector<SourceCount> sources(int64_t positions) const override {
    std::vector<SourceCount> counts;
    if (!train_) return counts;
    const std::vector<int64_t> seen = train_->counts(positions);
    for (size_t i = 0; i < sources_.size(); ++i) {
      counts.push_back({.name = sources_[i].said.name,
                        .share = train_->share(i),
                        .samples = sources_[i].data->samples(Split::train),
                        .seen = seen[i]});
    }
    return counts;
  }
  int64_t length() const { return train_ ? train_->length() : INT64_MAX; }

  std::string describe() const override {
    std::vector<std::string> names;
    for (const Source& source : sources_) names.push_back(source.said.name);
    return fmt::format("mix of {}: vocabulary {}; {} samples to train on, {} to evaluate",
                       base::cut_to_width(base::listed(names, "and"), 100), vocab(), train_samples_,
                       eval_samples_);
  }
  std::vector<std::string> remarks() const override {
    std::vector<std::string> lines;
    for (const Source& source : sources_) {
      for (const std::string& line : source.data->remarks()) lines.push_back(source.said.name + ": " + line);
    }
    return lines;
  }
  uint64_t content_hash() const override {
    uint64_t hash = sources_.size();
    for (const Source& source : sources_) hash = base::hash_combine(hash, source.data->content_hash());
    return hash;
  }
  std::vector<int32_t> start() const override { return speaker().start(); }
  std::string decode(std::span<const int32_t> tokens) const override { return speaker().decode(tokens); }
  std::vector<int32_t> encode(const std::string& text) const override { return speaker().encode(text); }

 private:
  const Source& source_of(int64_t index) const {  // of a training sample
    const auto behind = std::upper_bound(sources_.begin(), sources_.end(), index,
                                         [](int64_t at, const Source& source) { return at < source.first; });
    return *(behind - 1);
  }
  // Of a source that packs nothing, a sample is one document.
  static void documents_of(const Dataset& data, Split split, int64_t index, std::span<int32_t> begins) {
    if (data.has_documents()) return data.read_documents(split, index, begins);
    std::fill(begins.begin(), begins.end(), 0);
  }
  // The source with the most tokens: what holds of it holds of the others.
  const Dataset& speaker() const { return *sources_[speaker_].data; }

  std::vector<Source> sources_;
  size_t speaker_ = 0;
  std::optional<MixSchedule> train_, eval_;
  int64_t train_samples_ = 0, eval_samples_ = 0;
};

void check_alike(const std::vector<Source>& sources) {
  const bool text = reads_text(*sources.front().data);
  for (const Source& source : sources) {
    if (source.data->has_pairs()) {
      throw base::ConfigError(
          284, fmt::format("data.mix has pairs of answers ({}), which are not mixed with anything; give them "
                           "alone: data.path, with several files where there are",
                           source.said.name));
    }
    if (reads_text(*source.data) == text) continue;
    throw base::ConfigError(
        284, fmt::format("data.mix has text as bytes ({}) and token files ({}), whose tokens mean different "
                         "things; set data.tokenizer to the tokenizer of the token files",
                         (text ? sources.front() : source).said.name,
                         (text ? source : sources.front()).said.name));
  }
}

void check_length(const recipe::Recipe& recipe, const Mix& mix) {
  const int64_t needed = recipe.run.steps * recipe.batch.global;
  if (mix.length() >= needed) return;
  throw base::ConfigError(
      285, fmt::format("data.mix: with epochs on every source there are {} samples, but run.steps = {} of "
                       "batch.global = {} need {}; raise epochs, leave it out of one source, or lower "
                       "run.steps",
                       mix.length(), recipe.run.steps, recipe.batch.global, needed));
}

// Whatever is wrong with a source, the sentence begins with its name.
template <class Work>
auto of_source(const MixSource& source, const Work& work) {
  const auto named = [&](const base::Error& error) {
    std::string sentence = error.what();
    const std::string code = fmt::format(" [{}]", base::code_name(error.number()));
    if (sentence.ends_with(code)) sentence.resize(sentence.size() - code.size());  // it is put behind again
    return fmt::format("data.mix, source {}: {}", base::quoted(source.name, 40), sentence);
  };
  try {
    return work();
  } catch (const base::DataError& error) {
    throw base::DataError(error.number(), named(error));
  } catch (const base::ConfigError& error) {
    throw base::ConfigError(error.number(), named(error));
  }
}

std::unique_ptr<Dataset> open_mix(const recipe::Recipe& recipe, Use use) {
  check_mix(recipe.data);
  const std::vector<MixSource> said = recipe::read_mix(recipe.data.mix);
  const std::vector<recipe::Recipe::Data> of_sources = data_of_sources(recipe.data);
  std::vector<Source> sources;
  for (size_t i = 0; i < said.size(); ++i) {
    recipe::Recipe one = recipe;
    one.data = of_sources[i];
    // Held out of training, a source's evaluation is a part of it, so that it is opened as for training.
    const Use as = use == Use::evaluate && !one.data.eval_path.empty() ? use : Use::train;
    sources.push_back({said[i], of_source(said[i], [&] { return open_dataset(one, as); })});
  }
  check_alike(sources);
  auto mix = std::make_unique<Mix>(std::move(sources), recipe.data.mix_temperature, use);
  if (use == Use::train) check_length(recipe, *mix);
  return mix;
}

}  // namespace

void check_mix(const recipe::Recipe::Data& data) {
  const auto refuse = [](const std::string& why) { throw base::ConfigError(283, why); };
  if (data.mix.empty())
    refuse("data.kind = \"mix\" needs sources: set data.mix, as in data.mix=\"web/=0.7, code/=0.3\"");
  if (!data.path.empty())
    refuse("data.mix and data.path are both set; write the path as one more source, or remove one of them");
  if (!data.eval_path.empty())
    refuse("data.eval_path is set beside data.mix; write eval=PATH into the source it belongs to");
  if (data.kind != "auto" && data.kind != kMix)
    refuse(
        fmt::format("data.kind = \"{0}\" is set beside data.mix; write kind={0} into the sources it is meant "
                    "for, or leave it out: each source's files tell",
                    data.kind));
}

std::vector<recipe::Recipe::Data> data_of_sources(const recipe::Recipe::Data& data, bool must_exist) {
  std::vector<recipe::Recipe::Data> all;
  for (const MixSource& source : recipe::read_mix(data.mix)) {
    recipe::Recipe::Data one = data;
    one.mix.clear();
    one.path = source.path;
    one.eval_path = source.eval;
    if (!source.field.empty()) one.field = source.field;
    one.kind = source.kind.empty() ? "auto" : source.kind;
    if (one.kind == "auto")
      one.kind = of_source(source, [&] { return infer_kind(one.path, must_exist, one.field); });
    if (one.kind == kMix)
      throw base::ConfigError(
          283, fmt::format("data.mix: the source {} cannot be of kind mix itself", source.name));
    all.push_back(std::move(one));
  }
  return all;
}

std::unique_ptr<Dataset> stand_in_of_mix(const recipe::Recipe& recipe) {
  std::unique_ptr<Dataset> widest;
  for (const recipe::Recipe::Data& source : data_of_sources(recipe.data, false)) {
    recipe::Recipe one = recipe;
    one.data = source;
    std::unique_ptr<Dataset> stand_in = stand_in_dataset(one);
    if (!stand_in) return nullptr;
    if (!widest || stand_in->vocab() > widest->vocab()) widest = std::move(stand_in);
  }
  return widest;
}

DatasetKind mix_kind() {
  return {.name = kMix,
          .describe = "the sources of data.mix",
          .reads = {"data.mix", "data.mix_temperature", "data.eval_fraction", "data.tokenizer", "data.field",
                    "data.on_error", "data.pack", "data.chat_template", "data.train_on"},
          .open = open_mix};
}

}  // namespace lockstep::data

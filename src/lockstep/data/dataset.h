// A dataset: samples of one size, any of them reachable in O(1).
//
// Of tokens: sample i holds seq_len + 1 of them; the model reads the first seq_len and predicts the last
// seq_len. Of anything else: a sample is so many 32-bit words of inputs (tokens, or floats as bits) and so
// many of labels. Datasets are immutable after opening and safe to read from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/recipe/recipe.h"

namespace lockstep::data {

enum class Split : uint8_t { train, eval };

// What a dataset is opened for. To be evaluated on alone: all of data.eval_path, or of data.path where there
// is none, is the eval split, and there is nothing to train on.
enum class Use : uint8_t { train, evaluate };

// One source of data.mix over a run.
struct SourceCount {
  std::string name;
  double share = 0;     // of the samples, as asked for
  int64_t samples = 0;  // of the source, to train on
  int64_t seen = 0;     // of them, repetitions too
  double epochs() const { return samples > 0 ? static_cast<double>(seen) / static_cast<double>(samples) : 0; }
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t vocab() const = 0;               // tokens are in [0, vocab)
  virtual int64_t samples(Split split) const = 0;  // at least 1 for train, where it is opened for that
  // Words of one sample.
  virtual int64_t inputs_per_sample(int64_t seq_len) const { return seq_len; }
  virtual int64_t labels_per_sample(int64_t seq_len) const { return seq_len; }
  // Fills that many inputs and labels (kIgnoredLabel, -1, where nothing is to be predicted).
  virtual void read(Split split, int64_t index, std::span<int32_t> inputs,
                    std::span<int32_t> labels) const = 0;
  // Whether samples hold several documents that know nothing of each other (data.pack). If so, for each input
  // the place in the sample where its document begins.
  virtual bool has_documents() const { return false; }
  virtual void read_documents(Split split, int64_t index, std::span<int32_t> begins) const {
    (void)split, (void)index, (void)begins;
  }
  // Whether samples come in pairs, of which 2i is preferred to 2i + 1: sample_at() keeps them side by side,
  // where positions are counted from an even one.
  virtual bool has_pairs() const { return false; }
  // Nats per token of the true source, when it is known: no model can do better on average.
  virtual std::optional<double> entropy_floor() const { return std::nullopt; }
  // Share of the complete sentences in `tokens` that the source could have said; null where the source
  // is not known, or where no sentence is complete. The text starts at a sentence's start.
  virtual std::optional<double> acceptance(std::span<const int32_t> tokens) const {
    (void)tokens;
    return std::nullopt;
  }
  virtual std::string describe() const = 0;  // one line: "grammar 7: 137 words, floor 1.973 nats/token"
  virtual std::string describe_eval() const { return describe(); }  // the same of the eval split alone
  virtual std::vector<std::string> remarks() const { return {}; }   // lines below it: what was skipped
  virtual uint64_t content_hash() const = 0;                        // for record.json; reads all of the data
  // Which training sample stands at a position of the endless order: epoch by epoch, each a keyed permutation
  // of the samples. A function of its arguments alone.
  virtual int64_t sample_at(uint64_t seed, int64_t position) const;
  // What the first positions hold, source by source; empty: there is but one.
  virtual std::vector<SourceCount> sources(int64_t positions) const {
    return (void)positions, std::vector<SourceCount>();
  }
  // Token to text, for `generate`; and text to tokens for its prompt.
  // What `generate` begins with when it is given no prompt: a boundary, so that a new text follows.
  virtual std::vector<int32_t> start() const { return {0}; }
  virtual std::string decode(std::span<const int32_t> tokens) const { return (void)tokens, std::string(); }
  virtual std::vector<int32_t> encode(const std::string& text) const {
    return (void)text, std::vector<int32_t>();
  }
};

// Opens what the recipe asks for. DataError (LS02xx) names file and offset.
std::unique_ptr<Dataset> open_dataset(const recipe::Recipe& recipe, Use use = Use::train);

// For plans, measurements and generation, which need no sample, only the number of kinds of tokens and how
// they read as text: files need not be there. Null where only the data says that.
std::unique_ptr<Dataset> stand_in_dataset(const recipe::Recipe& recipe);

}  // namespace lockstep::data

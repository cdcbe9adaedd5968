// Reads the batches of coming steps in background threads, a bounded number ahead.
//
// Batch `step` is a function of (seed, step) alone: sample j of step s is position s * global + j of an
// endless sequence of epochs, each a keyed permutation of the training samples; at an epoch's end the
// sequence wraps into the next epoch within a batch, so no sample is lost or repeated within an epoch.
// (With 10 samples and batches of 4, step 2 holds the last 2 of epoch 0 and the first 2 of epoch 1.)
// A rank reads only the slices it was given. The number of threads changes nothing but the speed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/documents/references.h"

namespace lockstep::data {

struct LoaderOptions {
  uint64_t seed = 1;
  int64_t global = 64;                // samples a step
  int64_t slices = 1;                 // the batch is cut into this many
  std::vector<int64_t> own_slices{};  // which of them to read; empty: all
  int64_t seq_len = 64;
  int64_t first_step = 0;
  int64_t prefetch = 4;
  int64_t workers = 1;
  const References* references = nullptr;  // of a dataset of pairs; null, or empty: zeros
};

struct Batch {
  int64_t step = 0;
  std::vector<int32_t> inputs;  // [own slices, samples of a slice, inputs per sample]
  std::vector<int32_t> labels;  // [own slices, samples of a slice, labels per sample]
  std::vector<int32_t>
      documents;  // [own slices, samples, inputs]: Dataset::read_documents; empty: it has none
  std::vector<double> references;  // [own slices, samples of a slice]: of a dataset of pairs; else empty
  int64_t valid_labels = 0;        // in the own slices; of a dataset of pairs, those
};

class Loader {
 public:
  Loader(const Dataset& dataset, LoaderOptions options);
  ~Loader();
  // The batch of the next step, in order. Waits if it is not read yet; rethrows a reader's error, and
  // does so again when called again. Call it from one thread.
  std::shared_ptr<const Batch> next();
  double waited_ms() const;  // how long the last next() waited

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same batch without threads: what the loader computes for one step.
Batch read_batch(const Dataset& dataset, const LoaderOptions& options, int64_t step);
// Evaluation batch k: samples k * count .. in order, of the eval split. Past the last sample, labels are
// all kIgnoredLabel, so that every sample counts once.
Batch read_eval_batch(const Dataset& dataset, int64_t batch, int64_t count, int64_t seq_len,
                      const References* references = nullptr);
// The same of either split.
struct InOrder {
  Split split = Split::eval;
  int64_t batch = 0, count = 1, seq_len = 1;
};
Batch read_in_order(const Dataset& dataset, const InOrder& which, const References* references = nullptr);

}  // namespace lockstep::data

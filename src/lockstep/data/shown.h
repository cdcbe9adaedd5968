// What a model sees of a dataset: samples with their tokens, which of them are trained on, and how long
// documents are. For `lockstep data show`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Tokens in a row that are treated alike.
struct ShownPart {
  std::string text;
  bool trained = false;
  int64_t document = 0;  // of the sample, from 0
};

struct ShownSample {
  std::vector<int32_t> tokens;
  std::vector<bool> trained;       // one for each token
  std::vector<int64_t> documents;  // where each begins among the tokens
  std::vector<ShownPart> parts;
  int64_t trained_count = 0;
};
ShownSample show_sample(const Dataset& dataset, int64_t index, int64_t seq_len);

// Of documents, in tokens.
struct LengthStatistics {
  int64_t documents = 0, tokens = 0, trained = 0;
  int64_t least = 0, median = 0, p95 = 0, most = 0;
  int64_t too_long = 0;  // more than a sample reads
  int64_t skipped = 0;
  std::vector<std::string> faults = {};
};
// Reads all of the data. Documents are conversations, or what ends with the tokenizer's end token; without
// either, none.
LengthStatistics measure_documents(const recipe::Recipe& recipe, const Dataset& dataset);

}  // namespace lockstep::data

// Data of documents with a text each: lines of JSONL, rows of CSV, Parquet and Arrow, samples of MDS.
//
// With a tokenizer they are encoded when the run starts; without one their bytes are the tokens, and each
// document ends with token 256. Columns of whole numbers are tokens already and taken as they are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

constexpr int32_t kEndOfDocument = 256;

std::string tokens_to_documents(std::span<const int32_t> tokens);  // the end of one is written as <end>

// `endings`: see FileQuery.
std::unique_ptr<Dataset> open_documents(const recipe::Recipe& recipe, Use use,
                                        const std::vector<std::string>& endings);

}  // namespace lockstep::data

// JSONL files: one JSON object a line, whose field `data.field` is a document.
//
// Documents follow each other as bytes, each ended by the token 256, so a model learns where one ends.
// A line that is not an object with that field as a string stops the run before it starts, naming file,
// line and byte offset. Empty lines are skipped. Decoded documents are kept in memory.
#pragma once

#include <memory>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

constexpr int32_t kEndOfDocument = 256;

std::string tokens_to_documents(std::span<const int32_t> tokens);  // the end of one is written as <end>

}  // namespace lockstep::data

// Plain text files as bytes: 256 tokens, no tokenizer, nothing to prepare.
//
// A folder's files follow each other in the order of their names. Any bytes will do: text need not be
// UTF-8. Sample windows are described in windows.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

constexpr int64_t kTextVocab = 256;

// Bytes to tokens and back, shared with jsonl; a token that is no byte is written as <300>.
std::vector<int32_t> bytes_to_tokens(const std::string& text);
std::string tokens_to_bytes(std::span<const int32_t> tokens);

}  // namespace lockstep::data

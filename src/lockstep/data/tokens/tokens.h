// Files of tokens that other tools wrote: llm.c's .bin (GPT-2 and Llama-3), nanoGPT's, Megatron's .bin with
// its .idx, and NumPy's .npy.
//
// llm.c's files start with 256 int32: a magic number, a version and the count of tokens, which must match
// the file's size. A file without the magic number is nanoGPT's: 16-bit tokens and nothing else. Every
// token is checked once, when the file is opened.
//
// Shards follow each other as one stream; of a folder, its *.bin and *.npy in the order of their names.
#pragma once

#include <functional>
#include <memory>

#include "lockstep/data/dataset.h"
#include "lockstep/data/tokens/token_stream.h"
#include "lockstep/data/tokens/windows.h"

namespace lockstep::data {

// No tokenizer comes with these files: text is numbers with spaces between them. ConfigError 221.
std::string tokens_to_numbers(std::span<const int32_t> tokens);
std::vector<int32_t> numbers_to_tokens(const std::string& text, int64_t vocab);

// Data that is tokens already, file by file: checked against model.vocab or data.tokenizer. `endings`: see
// FileQuery. `skipped`: where `open` counts what it leaves out.
std::unique_ptr<Dataset> open_token_segments(const recipe::Recipe& recipe, Use use,
                                             const std::vector<std::string>& endings,
                                             const std::function<TokenSegment(const std::string& file)>& open,
                                             Skipped* skipped = nullptr);

}  // namespace lockstep::data

// The header of token files: llm.c's 256 words, with the tokenizer's hash where llm.c leaves zeros.
//
// So llm.c and whoever reads its files read ours, and we know whose tokens they are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace lockstep::data {

using TokenHeader = std::array<int32_t, 256>;

struct TokenFormat {
  const char* name;
  int32_t magic, version;
  int width;  // bytes a token
};
constexpr TokenFormat kTokenFormats[] = {
    {"llm.c GPT-2", 20240520, 1, 2},
    {"llm.c Llama-3", 20240801, 7, 4},
};
constexpr int64_t kTokenHeaderBytes = sizeof(TokenHeader);
constexpr int64_t kMostTokensAFile = INT32_MAX;  // its count is a word

TokenHeader make_token_header(const TokenFormat& format, int32_t count, uint64_t tokenizer);
std::optional<uint64_t> tokenizer_of(std::span<const std::byte> file);  // nothing: it does not say

}  // namespace lockstep::data

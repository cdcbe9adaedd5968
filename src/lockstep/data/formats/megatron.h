// Megatron-LM's indexed datasets: NAME.bin holds the tokens, NAME.idx says how wide they are and where each
// sequence lies.
//
// Sequences follow each other without gaps, as Megatron's builder writes them, so the tokens are one stream.
// The index is held against both files' sizes before anything is taken from it. DataError 280.
#pragma once

#include <string>

#include "lockstep/data/tokens/token_stream.h"

namespace lockstep::data {

// "NAME.idx" for the .bin (or the .idx) of such a pair; empty: it is none.
std::string megatron_index_of(const std::string& bin);
TokenSegment open_megatron(const std::string& bin, const std::string& index);

}  // namespace lockstep::data

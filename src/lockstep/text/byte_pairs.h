// Tokenizers that are a list of byte strings in the order of their ranks, as tiktoken's are: two tokens join
// where what they are together is a token, the lowest rank first; a piece that is a token is that token.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/text/pipeline.h"

namespace lockstep::text {

struct ByteToken {
  std::string bytes;
  int32_t rank;
};

struct ByteTokenizer {
  std::string source;
  std::vector<ByteToken> tokens;
  std::string pattern;  // how text is cut
  bool nfc = false;     // text is normalized first
  std::vector<AddedToken> added = {};
  bool added_in_text = true;  // they are looked for in texts
  int32_t first_id = 0;       // ids are ranks and this
  std::string begin = {}, end = {}, pad = {};
};

// Throws Fault.
std::unique_ptr<Tokenizer> make_byte_tokenizer(ByteTokenizer parts);

}  // namespace lockstep::text

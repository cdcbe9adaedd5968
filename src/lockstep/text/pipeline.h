// The way from text to tokens, step by step, that tokenizer.json describes and the other files fit into.
//
//     text ─ added tokens ─ normalizer ─ added tokens ─ pre-tokenizer ─ model ─ what stands around a text
//
// Most tokenizers cut by a pattern that a scanner is written for and join bytes: for them all but the
// normalizer is one loop over the text, without a copy and without memory for each piece. Others go step by
// step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/text/added_tokens.h"
#include "lockstep/text/model.h"
#include "lockstep/text/steps.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::text {

class BpeModel;

enum class DecodeBy : unsigned char {
  steps,   // the decoder; without one, tokens with spaces between them
  letters  // bytes behind GPT-2's alphabet, as they are
};

struct PipelineParts {
  std::string source;  // "tokenizer.json"
  std::vector<AddedToken> added = {};
  bool added_in_text = true;  // false: they are known, and never looked for in a text
  std::unique_ptr<Normalizer> normalizer = {};
  std::unique_ptr<PreTokenizer> pre_tokenizer = {};
  std::unique_ptr<Model> model;
  std::vector<int32_t> before = {}, after = {};  // what stands around a text
  DecodeBy decode_by = DecodeBy::steps;
  std::unique_ptr<DecodeStep> decoder = {};
  std::string begin = {}, end = {}, pad = {};  // tokens by these names; empty: the usual names are tried
  uint64_t steps_hash = 0;                     // of what is neither vocabulary nor model
};

std::unique_ptr<Tokenizer> make_pipeline(PipelineParts parts);

}  // namespace lockstep::text

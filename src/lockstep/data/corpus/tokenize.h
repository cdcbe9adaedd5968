// Tokenizes files of text into files of tokens: all cores, constant memory, and never half a file.
//
// Each input becomes a token file of its own in the folder. What is finished is written down in
// .tokenize.jsonl there, so the same command goes on after whatever stopped it: inputs that are done and have
// not changed are not read again, and not fetched where they lie in a store.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/corpus/corpus.h"
#include "lockstep/store/store.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep::data {

enum class OnError : uint8_t { stop, skip };

struct TokenizeOptions {
  CorpusOptions corpus;
  text::EncodeOptions encoding;
  bool end_documents = true;  // the tokenizer's end token after each, where it puts none itself
  OnError on_error = OnError::stop;
};

struct TokenizeCounts {
  int64_t bytes = 0;  // of the files
  int64_t text_bytes = 0, documents = 0, tokens = 0, skipped = 0;
  std::vector<std::string> faults = {};  // the first skipped documents, a sentence each
};

// The tokens of one file, in its order. `tokens` gets them as they come; `progress` the bytes done.
TokenizeCounts tokenize_file(const std::string& file, const text::Tokenizer& tokenizer,
                             const TokenizeOptions& options,
                             const std::function<void(std::span<const int32_t>)>& tokens,
                             const std::function<void(int64_t bytes)>& progress = {});

struct TokenizeJob {
  std::vector<std::string> inputs;  // files, and URIs that are fetched when their turn comes,
  std::map<std::string, store::Object> objects = {};  // of these objects
  std::string folder;                                 // for the token files
  TokenizeOptions options;
};
struct TokenizeResult {
  TokenizeCounts counts;                // of this time
  int64_t done_before = 0;              // inputs
  std::vector<std::string> files = {};  // made this time
};
struct TokenizeProgress {
  std::string file;
  int64_t files_done, files, bytes_done, bytes;
  int64_t tokens;
};
// ConfigError 247: the folder holds tokens of another tokenizer.
TokenizeResult tokenize_files(const TokenizeJob& job, const text::Tokenizer& tokenizer,
                              const std::function<void(const TokenizeProgress&)>& progress);

}  // namespace lockstep::data

// Rows of JSON that become documents of tokens, by all cores: what conversations and preferences have in
// common.
//
// A row that cannot be used stops the run before it starts, with file, line and reason, or is left out and
// counted (data.on_error).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/chat/encode.h"
#include "lockstep/data/corpus/tokenize.h"
#include "lockstep/data/documents/document_store.h"

namespace lockstep::data {

struct RecordOptions {
  std::string unit;  // "conversation"
  OnError on_error = OnError::stop;
};
// Puts one row's documents into the store, all or none: chat::Fault. One thread at a time has each of them.
using RecordEncoder = std::function<void(const chat::Json& row, DocumentStore& store)>;

DocumentStore encode_records(const std::vector<std::string>& files, const RecordOptions& options,
                             const std::function<RecordEncoder()>& make_encoder);

// A document as the store keeps it. The rest of what is longer than `longest` tokens is left out, as long as
// something to train on stays: Fault 263, 269.
std::vector<uint32_t> words_of(const chat::EncodedChat& encoded, size_t longest);

const std::vector<std::string>& record_endings();  // of files with such rows: ".jsonl", ".jsonl.gz", ...
// Top-level keys of the first row; none: it is no such file.
std::vector<std::string> keys_of_records(std::string_view ending, const std::string& file);

}  // namespace lockstep::data

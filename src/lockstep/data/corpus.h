// Text that is to be tokenized, by the format it lies in: one file and one row each.
//
// A reader cuts its file into parts that are looked at by several threads, and knows the documents of each
// part. A document may reach over several parts, where the tokenizer allows that
// (text::Tokenizer::cuts_between_words).
//
//     const auto reader = open_corpus(file, {.field = "text"});
//     while (const auto part = reader->next_part()) reader->each_document(*part, use);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

struct CorpusOptions {
  std::string field = "text";  // of formats with fields
  bool may_cut = false;        // a document may be cut between words
  bool by_lines = false;       // plain text: each line with its end is a document
};

struct CorpusPart {
  std::string_view bytes;           // of the file
  int64_t offset = 0;               // where they stand in it
  bool begins = true, ends = true;  // its first document begins here, its last one ends here
};

struct Document {
  std::string_view text;
  bool begins, ends;  // a part of a document need not
};

// A document that cannot be used. number: LSxxxx.
struct BadDocument {
  int number;
  std::string sentence;  // with file and place
};

class CorpusReader {
 public:
  virtual ~CorpusReader() = default;
  virtual std::optional<CorpusPart> next_part() = 0;  // in the file's order; one thread
  // Any thread.
  virtual void each_document(const CorpusPart& part, const std::function<void(const Document&)>& use,
                             const std::function<void(const BadDocument&)>& bad) const = 0;
  virtual int64_t size() const = 0;  // bytes of the file
};

struct CorpusFormat {
  const char* name;
  std::vector<std::string> endings;  // ".jsonl"; empty: what no other row claims
  std::unique_ptr<CorpusReader> (*open)(const std::string& file, const CorpusOptions& options);
};
const std::vector<CorpusFormat>& corpus_formats();

// By the file's ending. DataError 236: an archive, or another format that is not read.
std::unique_ptr<CorpusReader> open_corpus(const std::string& file, const CorpusOptions& options);

// The formats' own files.
CorpusFormat text_corpus();
CorpusFormat jsonl_corpus();

}  // namespace lockstep::data

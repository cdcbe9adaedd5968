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
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

struct CorpusOptions {
  std::string field = "text";     // of formats with fields
  bool may_cut = false;           // a document may be cut between words
  bool as_text = false;           // data.kind = "text": a file's bytes, whatever its name ends with
  bool by_lines = false;          // plain text: each line with its end is a document
  size_t part = size_t{1} << 20;  // bytes of a part, about
};

struct CorpusPart {
  std::string_view bytes = {};             // of the file, unpacked
  int64_t offset = 0;                      // where they stand in it
  int64_t first_line = 1;                  // or row
  int64_t taken = 0;                       // bytes of the file itself, for those who wait
  bool begins = true, ends = true;         // its first document begins here, its last one ends here
  std::shared_ptr<const void> keeps = {};  // where the bytes lie, if not in the file
};

struct Document {
  std::string_view text;
  bool begins, ends;                     // a part of a document need not
  std::span<const int32_t> tokens = {};  // instead of text, where holds_tokens()
};

// A document that cannot be used. number: LSxxxx.
struct BadDocument {
  int number;
  std::string sentence;  // with file and place
};

class CorpusReader {
 public:
  virtual ~CorpusReader() = default;
  // In the file's order; one thread.
  virtual std::optional<CorpusPart> next_part() = 0;
  // Any thread, while another reads on.
  virtual void each_document(const CorpusPart& part, const std::function<void(const Document&)>& use,
                             const std::function<void(const BadDocument&)>& bad) const = 0;
  virtual int64_t size() const = 0;                    // bytes of the file
  virtual bool holds_tokens() const { return false; }  // documents are tokens that somebody made before
};

struct CorpusFormat {
  const char* name;
  std::vector<std::string> endings;  // ".jsonl"; empty: what no other row claims
  std::string begins = {};           // the file's first bytes, which count more than its name; empty: any
  bool packed = false;               // its files may be compressed
  std::unique_ptr<CorpusReader> (*open)(const std::string& file, const CorpusOptions& options);
};
const std::vector<CorpusFormat>& corpus_formats();

// One object a line: the first line is a whole object, and not the beginning of a document over many lines.
bool is_jsonl(std::string_view first_bytes);

// By the file's first bytes and its ending. DataError 236: an archive, a single JSON document, or another
// format that is not read.
std::unique_ptr<CorpusReader> open_corpus(const std::string& file, const CorpusOptions& options);
// Bytes that will be read for it, all of its files together.
int64_t corpus_bytes(const std::string& file);

// A document of a format with rows that cannot be used as it is: too long, or not UTF-8. `what`: "FILE row
// 7", "FILE line 7 (byte 312)". Nothing: it can.
std::optional<BadDocument> unusable(std::string_view text, const std::string& what);

// DataError 212 with the columns that there are.
[[noreturn]] void refuse_column(const std::string& file, const std::string& field,
                                const std::vector<std::string>& columns);

constexpr size_t kLongestDocument = size_t{64} << 20;  // of formats with rows

// The formats' own files.
CorpusFormat text_corpus();
CorpusFormat jsonl_corpus();
CorpusFormat csv_corpus();
CorpusFormat tsv_corpus();
CorpusFormat parquet_corpus();
CorpusFormat arrow_corpus();
CorpusFormat arrow_stream_corpus();
CorpusFormat mds_corpus();

}  // namespace lockstep::data

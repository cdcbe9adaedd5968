// The rows of tables and columns: CSV and TSV, Parquet, Arrow, MDS. They differ in how their files are known;
// corpus_*.cc reads them.
#include "lockstep/data/documents/documents.h"
#include "lockstep/data/formats/unpack.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/tokens/text.h"

namespace lockstep::data {
namespace {

DatasetKind kind_of(const char* name, const char* describe, FileSigns files,
                    std::vector<std::string> endings) {
  return {.name = name,
          .describe = describe,
          .reads = document_keys(),
          .files = std::move(files),
          .words = document_words(),
          .open = [endings = std::move(endings)](const recipe::Recipe& recipe, Use use) {
            return open_documents(recipe, use, endings);
          }};
}

}  // namespace

std::vector<std::string> document_keys() {
  return {"data.path",  "data.eval_path", "data.eval_fraction", "data.tokenizer",
          "data.field", "data.on_error",  "data.pack"};
}

Words document_words() {
  return {kEndOfDocument + 1, kEndOfDocument, tokens_to_documents,
          [](const std::string& text, int64_t) { return bytes_to_tokens(text); }};
}

DatasetKind csv_kind() {
  const std::vector<std::string> endings = {".csv", ".tsv", ".tab"};
  return kind_of("csv", "CSV and TSV, the first line with the columns' names", {.endings = endings},
                 with_packing(endings));
}

DatasetKind parquet_kind() {
  return kind_of("parquet", "Parquet files", {.tables = true, .begins = {"PAR1"}, .endings = {".parquet"}},
                 {".parquet"});
}

DatasetKind arrow_kind() {
  const std::vector<std::string> endings = {".arrow", ".feather", ".arrows"};
  return kind_of("arrow", "Arrow files and streams, and what datasets.save_to_disk makes",
                 {.tables = true,
                  .begins = {"ARROW1"},
                  .endings = endings,
                  .looks_like = [](std::string_view,
                                   std::string_view bytes) { return bytes.starts_with("\xff\xff\xff\xff"); }},
                 endings);
}

DatasetKind mds_kind() { return kind_of("mds", "MosaicML's MDS folders", {}, {"index.json"}); }

}  // namespace lockstep::data

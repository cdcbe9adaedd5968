// JSONL files: one JSON object a line, whose field `data.field` is a document.
//
// A line that is not an object with that field as a string stops the run before it starts, naming file,
// line and byte offset, or is left out (data.on_error). Empty lines are skipped.
#include "lockstep/data/corpus/corpus.h"
#include "lockstep/data/documents/documents.h"
#include "lockstep/data/formats/unpack.h"
#include "lockstep/data/kind.h"
#include "lockstep/data/tokens/text.h"

namespace lockstep::data {
namespace {

const std::vector<std::string> kEndings = {".jsonl", ".ndjson"};

}  // namespace

DatasetKind jsonl_kind() {
  return {
      .name = "jsonl",
      .describe = "one JSON object per line",
      .reads = document_keys(),
      .files = {.endings = kEndings,
                .looks_like = [](std::string_view ending,
                                 std::string_view bytes) { return ending == ".json" && is_jsonl(bytes); }},
      .words = document_words(),
      .open = [](const recipe::Recipe& recipe, Use use) {
        return open_documents(recipe, use, with_packing(kEndings));
      }};
}

}  // namespace lockstep::data

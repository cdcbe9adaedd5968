// Samples of whole documents: one each, padded, or several packed one behind the other (data.pack).
//
// A document of n tokens is read as its first n - 1 and predicts its last n - 1; labels are ignored where it
// is not trained on, and behind it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/documents/document_store.h"

namespace lockstep::data {

struct DocumentKind {
  std::string unit;                          // "conversation"
  std::vector<std::string> extensions = {};  // see FileQuery
  int64_t vocab = 0;
  int32_t padding = 0;  // a token for what is left of a sample
  bool pairs = false;   // two documents belong together, the preferred one first; they are counted as one
};

// Opens data.path and data.eval_path by `open`, or holds out a share of the documents. DataError 205: nothing
// to train on.
std::unique_ptr<Dataset> open_document_samples(
    const recipe::Recipe& recipe, Use use, const DocumentKind& kind,
    const std::function<DocumentStore(const std::vector<std::string>& files)>& open);

}  // namespace lockstep::data

// Documents of a stream of tokens, which end where a token says so, packed into samples (data.pack).
//
// A document that is longer than a sample is split: its parts share one token, so that every token but the
// first is predicted once.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "lockstep/data/dataset.h"
#include "lockstep/data/documents/document_store.h"
#include "lockstep/data/tokens/token_stream.h"
#include "lockstep/data/tokens/windows.h"

namespace lockstep::data {

struct StreamDocuments {
  std::vector<std::string> extensions = {};  // see FileQuery
  int64_t vocab = 0;
  std::optional<int32_t> end = {};  // the token behind a document; none: ConfigError 271
  std::function<TokenStream(const std::vector<std::string>& files)> open;
  Skipped* skipped = nullptr;  // where `open` counts what it leaves out; none: nowhere
};
std::unique_ptr<Dataset> open_packed(const recipe::Recipe& recipe, Use use, const StreamDocuments& documents);

DocumentStore split_documents(const TokenStream& stream, const StreamDocuments& documents, int64_t seq_len);

}  // namespace lockstep::data

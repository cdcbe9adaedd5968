#include "lockstep/data/documents/packed_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/documents/document_samples.h"

namespace lockstep::data {
namespace {

constexpr int64_t kRead = int64_t{1} << 16;  // tokens at a time

class Splitter {
 public:
  Splitter(int64_t seq_len, DocumentStore& store)
      : longest_(static_cast<size_t>(seq_len) + 1), store_(store) {}
  void add(uint32_t word, bool ends) {
    if (words_.size() == longest_) {
      store_.counts.split += !split_;
      split_ = true;
      store_.add(words_);
      words_ = {words_.back()};  // predicted there, read here
    }
    words_.push_back(word);
    if (ends) finish();
  }
  void finish() {
    if (words_.size() > 1) store_.add(words_);
    words_.clear();
    split_ = false;
  }

 private:
  size_t longest_;
  DocumentStore& store_;
  std::vector<uint32_t> words_;
  bool split_ = false;
};

void count_skipped(const Skipped& skipped, DocumentStore::Counts& counts) {
  counts.skipped += skipped.documents;
  for (const std::string& sentence : skipped.first) {
    if (counts.faults.size() < DocumentStore::kFaultsKept) counts.faults.push_back(sentence);
  }
}

}  // namespace

DocumentStore split_documents(const TokenStream& stream, const StreamDocuments& documents, int64_t seq_len) {
  DocumentStore store;
  Splitter splitter(seq_len, store);
  std::vector<int32_t> tokens;
  for (int64_t at = 0; at < stream.size(); at += kRead) {
    tokens.resize(static_cast<size_t>(std::min(kRead, stream.size() - at)));
    stream.copy(at, tokens);
    for (const int32_t token : tokens) {
      if (token < 0 || token >= documents.vocab) {
        throw base::DataError(
            232, fmt::format("the data has a token {}, which is outside the vocabulary of {}; use the "
                             "tokenizer that made it",
                             token, documents.vocab));
      }
      splitter.add(static_cast<uint32_t>(token) | DocumentStore::kTrained, token == *documents.end);
    }
  }
  splitter.finish();
  store.shrink();
  return store;
}

std::unique_ptr<Dataset> open_packed(const recipe::Recipe& recipe, Use use,
                                     const StreamDocuments& documents) {
  if (!documents.end) {
    throw base::ConfigError(
        271,
        fmt::format("data.pack = true: it is not known where documents end in data of kind \"{}\"{}; set "
                    "data.tokenizer to a tokenizer with an end token, or data.pack=false",
                    recipe.data.kind, recipe.data.tokenizer == "bytes" ? " that is read as bytes" : ""));
  }
  return open_document_samples(recipe, use,
                               {.unit = "document",
                                .extensions = documents.extensions,
                                .vocab = documents.vocab,
                                .padding = *documents.end},
                               [&](const std::vector<std::string>& files) {
                                 const TokenStream stream = documents.open(files);
                                 DocumentStore store =
                                     split_documents(stream, documents, recipe.data.seq_len);
                                 if (documents.skipped != nullptr)
                                   count_skipped(std::exchange(*documents.skipped, {}), store.counts);
                                 return store;
                               });
}

}  // namespace lockstep::data

#include "lockstep/data/documents/document_store.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

namespace lockstep::data {

int64_t DocumentStore::trained() const { return std::count_if(words_.begin(), words_.end(), is_trained); }

void DocumentStore::add(std::span<const uint32_t> words) {
  words_.insert(words_.end(), words.begin(), words.end());
  ends_.push_back(static_cast<int64_t>(words_.size()));
}

void DocumentStore::add_fault(std::string sentence) {
  ++counts.skipped;
  if (counts.faults.size() < kFaultsKept) counts.faults.push_back(std::move(sentence));
}

void DocumentStore::append(const DocumentStore& more) {
  const int64_t before = tokens();
  words_.insert(words_.end(), more.words_.begin(), more.words_.end());
  for (const int64_t end : more.ends_) ends_.push_back(before + end);
  counts.truncated += more.counts.truncated;
  counts.split += more.counts.split;
  counts.skipped += more.counts.skipped;
  for (const std::string& fault : more.counts.faults) {
    if (counts.faults.size() < kFaultsKept) counts.faults.push_back(fault);
  }
}

DocumentStore DocumentStore::take_last(int64_t count) {
  LS_ASSERT(count >= 0 && count <= size());
  DocumentStore taken;
  const int64_t kept = size() - count;
  for (int64_t i = kept; i < size(); ++i) taken.add(document(i));
  ends_.resize(static_cast<size_t>(kept));
  words_.resize(ends_.empty() ? 0 : static_cast<size_t>(ends_.back()));
  taken.shrink();
  shrink();
  return taken;
}

void DocumentStore::shrink() {
  words_.shrink_to_fit();
  ends_.shrink_to_fit();
}

uint64_t DocumentStore::hash() const {
  return base::hash_combine(base::hash_bytes(std::as_bytes(std::span(words_))),
                            base::hash_bytes(std::as_bytes(std::span(ends_))));
}

}  // namespace lockstep::data

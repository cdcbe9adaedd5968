#include "lockstep/text/vocabulary.h"

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

namespace lockstep::text {

void Vocabulary::add(std::string token, int32_t id) {
  LS_ASSERT(id >= 0 && id < kMostTokens);
  store_.push_back(std::move(token));
  if (id >= size()) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = &store_.back();
  ids_[store_.back()] = id;
}

uint64_t Vocabulary::hash() const {
  uint64_t hash = tokens_.size();
  for (const std::string* token : tokens_)
    hash = base::hash_combine(hash, token ? base::hash_text(*token) : 0);
  return hash;
}

}  // namespace lockstep::text

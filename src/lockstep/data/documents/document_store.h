// Documents as tokens in memory: a word each, whose highest bit says whether it is trained on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

class DocumentStore {
 public:
  static constexpr uint32_t kTrained = uint32_t{1} << 31;

  // What happened to documents on their way.
  struct Counts {
    int64_t truncated = 0;                 // their ends are left out
    int64_t split = 0;                     // documents that became several
    int64_t skipped = 0;                   // could not be used
    std::vector<std::string> faults = {};  // the first of those, a sentence each
  };
  static constexpr size_t kFaultsKept = 5;

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  int64_t tokens() const { return static_cast<int64_t>(words_.size()); }
  int64_t trained() const;
  std::span<const uint32_t> document(int64_t index) const {
    const size_t begin = index == 0 ? 0 : static_cast<size_t>(ends_[static_cast<size_t>(index) - 1]);
    return std::span(words_).subspan(begin, static_cast<size_t>(ends_[static_cast<size_t>(index)]) - begin);
  }
  void add(std::span<const uint32_t> words);
  void add_fault(std::string sentence);
  void append(const DocumentStore& more);
  DocumentStore take_last(int64_t count);  // held out: they are no longer here
  void shrink();
  uint64_t hash() const;

  Counts counts;

 private:
  std::vector<uint32_t> words_;
  std::vector<int64_t> ends_;
};

inline int32_t token_of(uint32_t word) { return static_cast<int32_t>(word & ~DocumentStore::kTrained); }
inline bool is_trained(uint32_t word) { return (word & DocumentStore::kTrained) != 0; }

}  // namespace lockstep::data

#include "lockstep/text/bpe.h"

#include <algorithm>
#include <functional>

#include "lockstep/base/hash.h"

namespace lockstep::text {
namespace {

constexpr size_t kShortWord = 48;  // tokens; beyond it a heap is faster

void merge_short(const PairTable& table, std::vector<int32_t>& tokens, MergeSpace& space) {
  size_t count = tokens.size();
  std::vector<uint32_t>& ranks = space.ranks;
  std::vector<int32_t>& joined = space.joined;
  ranks.resize(count);
  joined.resize(count);
  const auto look = [&](size_t i) {
    const PairTable::Pair& pair = table.find(tokens[i], tokens[i + 1]);
    ranks[i] = pair.rank;
    joined[i] = pair.joined;
  };
  for (size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    size_t best = 0;
    uint32_t rank = ranks[0];
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < rank) rank = ranks[best = i];
    }
    if (rank == PairTable::kNone) break;
    tokens[best] = joined[best];
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      tokens[i] = tokens[i + 1];
      ranks[i] = ranks[i + 1];
      joined[i] = joined[i + 1];
    }
    if (best + 1 < count) look(best);
    if (best > 0) look(best - 1);
  }
  tokens.resize(count);
}

constexpr uint32_t kEnd = UINT32_MAX;

void merge_long(const PairTable& table, std::vector<int32_t>& tokens, MergeSpace& space) {
  const auto count = static_cast<uint32_t>(tokens.size());
  std::vector<uint32_t>&before = space.before, &after = space.after;
  std::vector<uint64_t>& heap = space.heap;  // rank, then place: the leftmost of equals first
  before.resize(count);
  after.resize(count);
  heap.clear();
  const auto rank_at = [&](uint32_t i) { return table.find(tokens[i], tokens[after[i]]).rank; };
  for (uint32_t i = 0; i < count; ++i) {
    before[i] = i == 0 ? kEnd : i - 1;
    after[i] = i + 1 == count ? kEnd : i + 1;
    if (after[i] == kEnd) break;
    if (const uint32_t rank = rank_at(i); rank != PairTable::kNone) heap.push_back(uint64_t{rank} << 32 | i);
  }
  const std::greater<uint64_t> later;
  std::make_heap(heap.begin(), heap.end(), later);
  const auto offer = [&](uint32_t i) {
    const uint32_t rank = rank_at(i);
    if (rank == PairTable::kNone) return;
    heap.push_back(uint64_t{rank} << 32 | i);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto rank = static_cast<uint32_t>(heap.back() >> 32), i = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (tokens[i] < 0 || after[i] == kEnd) continue;  // it went into the one before it, or is the last
    const PairTable::Pair& pair = table.find(tokens[i], tokens[after[i]]);
    if (pair.rank != rank) continue;  // a neighbour has changed since
    const uint32_t gone = after[i];
    tokens[i] = pair.joined;
    tokens[gone] = -1;
    after[i] = after[gone];
    if (after[i] != kEnd) {
      before[after[i]] = i;
      offer(i);
    }
    if (before[i] != kEnd) offer(before[i]);
  }
  std::erase(tokens, -1);
}

}  // namespace

PairTable::PairTable(size_t expected) {
  size_t places = 16;
  while (places < expected * 2) places *= 2;
  pairs_.assign(places, {kEmpty, kNone, -1});
  mask_ = places - 1;
  shift_ = 64 - __builtin_ctzll(places);
}

void PairTable::grow() {
  PairTable larger(size_ * 2);
  for (const Pair& pair : pairs_) {
    if (pair.key == kEmpty) continue;
    larger.add(static_cast<int32_t>(pair.key >> 32), static_cast<int32_t>(pair.key), pair.rank, pair.joined);
  }
  *this = std::move(larger);
}

void PairTable::add(int32_t left, int32_t right, uint32_t rank, int32_t joined) {
  if ((size_ + 1) * 2 > pairs_.size()) grow();
  const uint64_t key = key_of(left, right);
  size_t at = place_of(key);
  while (pairs_[at].key != kEmpty) {
    if (pairs_[at].key == key) return;
    at = (at + 1) & mask_;
  }
  pairs_[at] = {key, rank, joined};
  ++size_;
}

void PairTable::replace(int32_t left, int32_t right, uint32_t rank, int32_t joined) {
  add(left, right, rank, joined);
  Pair& pair = const_cast<Pair&>(find(left, right));
  pair.rank = rank;
  pair.joined = joined;
}

uint64_t PairTable::hash() const {
  uint64_t sum = size_;
  for (const Pair& pair : pairs_) {
    if (pair.key != kEmpty)
      sum += base::hash_combine(base::hash_combine(pair.key, pair.rank), static_cast<uint64_t>(pair.joined));
  }
  return sum;
}

void merge_pairs(const PairTable& table, std::vector<int32_t>& tokens, MergeSpace& space) {
  if (tokens.size() < 2) return;
  tokens.size() <= kShortWord ? merge_short(table, tokens, space) : merge_long(table, tokens, space);
}

}  // namespace lockstep::text

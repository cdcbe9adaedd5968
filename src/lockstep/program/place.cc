// Placement: offsets in one arena such that buffers that live at the same time never overlap.
//
// Several ways are tried and the lowest is taken: in the order of time, best fit into the gaps, as a good
// allocator would; and, for lists that are not too long, largest first into the lowest free place. Where that
// leaves gaps, what stuck out is placed first next time.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "lockstep/base/round.h"
#include "lockstep/device/alignment.h"
#include "lockstep/program/check.h"

namespace lockstep::program {

namespace {

constexpr size_t kLargestFirstLimit = 6000;  // buffers; it is quadratic
constexpr size_t kRepairLimit = 2000;
constexpr int kRepairs = 12;
constexpr double kTight = 1.002;  // of what is alive at once: good enough

int64_t align(int64_t bytes) { return base::round_up(bytes, device::kAlignment); }

struct Item {
  int buffer = 0, first = 0, last = 0;
  int64_t bytes = 0;
};
using Offsets = std::vector<int64_t>;  // by item

int64_t height(const std::vector<Item>& items, const Offsets& offsets) {
  int64_t top = 0;
  for (size_t k = 0; k < items.size(); ++k) top = std::max(top, offsets[k] + items[k].bytes);
  return top;
}

// What is free below the highest byte that is taken.
class Gaps {
 public:
  // The tightest gap where it fits, and the lowest of those; on top where there is none.
  int64_t take(int64_t bytes) {
    const auto gap = by_size_.lower_bound({bytes, 0});
    if (gap == by_size_.end()) return std::exchange(top_, top_ + bytes);
    const auto [size, begin] = *gap;
    by_size_.erase(gap);
    by_begin_.erase(begin);
    if (size > bytes) add(begin + bytes, size - bytes);
    return begin;
  }

  void give_back(int64_t begin, int64_t bytes) {
    auto next = by_begin_.lower_bound(begin);
    if (next != by_begin_.end() && next->first == begin + bytes) {
      bytes += next->second;
      next = remove(next);
    }
    if (next != by_begin_.begin() && std::prev(next)->first + std::prev(next)->second == begin) {
      const auto before = std::prev(next);
      begin = before->first;
      bytes += before->second;
      remove(before);
    }
    if (begin + bytes == top_) {
      top_ = begin;
    } else {
      add(begin, bytes);
    }
  }

 private:
  using Begins = std::map<int64_t, int64_t>;  // begin to size
  void add(int64_t begin, int64_t size) {
    by_begin_[begin] = size;
    by_size_.emplace(size, begin);
  }
  Begins::iterator remove(Begins::iterator gap) {
    by_size_.erase({gap->second, gap->first});
    return by_begin_.erase(gap);
  }

  Begins by_begin_;
  std::set<std::pair<int64_t, int64_t>> by_size_;  // size and begin
  int64_t top_ = 0;
};

Offsets in_time_order(const std::vector<Item>& items) {
  std::vector<size_t> begins(items.size());
  std::iota(begins.begin(), begins.end(), 0);
  std::vector<size_t> ends = begins;
  std::stable_sort(begins.begin(), begins.end(),
                   [&](size_t a, size_t b) { return items[a].first < items[b].first; });
  std::stable_sort(ends.begin(), ends.end(),
                   [&](size_t a, size_t b) { return items[a].last < items[b].last; });
  Offsets offsets(items.size(), 0);
  Gaps gaps;
  auto ended = ends.begin();
  for (const size_t k : begins) {
    for (; items[*ended].last < items[k].first; ++ended) {
      if (items[*ended].bytes > 0) gaps.give_back(offsets[*ended], items[*ended].bytes);
    }
    if (items[k].bytes > 0) offsets[k] = gaps.take(items[k].bytes);
  }
  return offsets;
}

std::vector<size_t> by_size(const std::vector<Item>& items) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(-items[a].bytes, items[a].first) < std::pair(-items[b].bytes, items[b].first);
  });
  return order;
}

// Each into the lowest place that is free while it lives.
Offsets in_order(const std::vector<Item>& items, const std::vector<size_t>& order) {
  struct Placed {
    int64_t begin, end;
    int first, last;
  };
  Offsets offsets(items.size(), 0);
  std::vector<Placed> placed;  // by where it begins: one look at each finds the first gap
  placed.reserve(items.size());
  for (size_t k : order) {
    const Item& item = items[k];
    int64_t at = 0;
    for (const Placed& other : placed) {
      if (other.first > item.last || item.first > other.last) continue;
      if (other.begin - at >= item.bytes) break;
      at = std::max(at, other.end);
    }
    offsets[k] = at;
    const auto behind =
        std::upper_bound(placed.begin(), placed.end(), at,
                         [](int64_t begin, const Placed& other) { return begin < other.begin; });
    placed.insert(behind, {at, at + item.bytes, item.first, item.last});
  }
  return offsets;
}

// The most bytes alive at once among the chosen buffers, and where.
std::pair<int64_t, int> most_alive(const std::vector<Item>& items, size_t instructions) {
  std::vector<int64_t> change(instructions + 1, 0);
  for (const Item& item : items) {
    change[static_cast<size_t>(item.first)] += item.bytes;
    change[static_cast<size_t>(item.last) + 1] -= item.bytes;
  }
  int64_t alive = 0, most = 0;
  int where = 0;
  for (size_t n = 0; n < instructions; ++n) {
    alive += change[n];
    if (alive > most) {
      most = alive;
      where = static_cast<int>(n);
    }
  }
  return {most, where};
}

Offsets lowest(const std::vector<Item>& items, int64_t alive) {
  Offsets best = in_time_order(items);
  if (items.size() > kLargestFirstLimit) return best;
  std::vector<size_t> order = by_size(items);
  const auto limit = static_cast<int64_t>(kTight * static_cast<double>(alive));
  const int tries = items.size() <= kRepairLimit ? 1 + kRepairs : 1;
  for (int n = 0; n < tries && height(items, best) > limit; ++n) {
    const Offsets offsets = in_order(items, order);
    if (height(items, offsets) < height(items, best)) best = offsets;
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t k) { return offsets[k] + items[k].bytes > alive; });
  }
  return best;
}

}  // namespace

MemoryPlan place(Program& program) {
  MemoryPlan plan;
  const std::vector<Lifetime> lives = lifetimes(program);
  std::vector<Item> items, external;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    Buffer& buffer = program.buffers[b];
    const int64_t bytes = align(buffer.bytes());
    if (buffer.host) {
      buffer.offset = plan.host_bytes;
      plan.host_bytes += bytes;
    } else if (buffer.persistent) {
      buffer.offset = plan.persistent_bytes;
      plan.persistent_bytes += bytes;
      plan.persistent_by_kind[buffer.kind] += bytes;
    } else if (lives[b].first >= 0) {
      (buffer.external ? external : items)
          .push_back({static_cast<int>(b), lives[b].first, lives[b].last, bytes});
    }
  }
  std::tie(plan.live_bytes, plan.peak_instruction) = most_alive(items, program.instructions.size());
  const Offsets offsets = lowest(items, plan.live_bytes);
  for (size_t k = 0; k < items.size(); ++k)
    program.buffers[static_cast<size_t>(items[k].buffer)].offset = offsets[k];
  plan.transient_bytes = height(items, offsets);
  plan.external_bytes = most_alive(external, program.instructions.size()).first;
  return plan;
}

}  // namespace lockstep::program

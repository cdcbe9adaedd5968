#include "lockstep/checkpoint/saving/piece.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kGrain = 65'536;  // a canonical chunk: shares that are cut there hash whole chunks

// A tensor seen from the dimension that is cut: outer x size x inner.
struct Cut {
  int64_t outer = 1, size = 1, inner = 1;
};
Cut cut_of(const device::Shape& shape, int dimension) {
  Cut c;
  for (int d = 0; d < shape.rank(); ++d)
    (d < dimension ? c.outer : d == dimension ? c.size : c.inner) *= shape[d];
  return c;
}

void add(std::vector<Run>& runs, const Run& run) {
  if (!runs.empty() && runs.back().at + runs.back().count == run.at) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

// Elements that the ranges leave.
int64_t left(const Piece& piece) {
  if (piece.ranges.empty()) return piece.tensor.shape.numel();
  const Cut c = cut_of(piece.tensor.shape, piece.dimension);
  int64_t taken = 0;
  for (const Range& range : piece.ranges) taken += range.count;
  return c.outer * taken * c.inner;
}

struct Owned {
  Run run;
  int rank;
};

void check_tensor(const Whole& tensor, std::vector<Owned>& owned) {
  std::sort(owned.begin(), owned.end(), [](const Owned& a, const Owned& b) { return a.run.at < b.run.at; });
  int64_t at = 0;
  int before = -1;
  for (const Owned& one : owned) {
    LS_ASSERT(one.run.at >= at, fmt::format("element {} of {} is written by rank {} and by rank {}",
                                            one.run.at, tensor.name, before, one.rank));
    LS_ASSERT(one.run.at == at, fmt::format("no rank writes element {} of {}", at, tensor.name));
    at = one.run.at + one.run.count;
    before = one.rank;
  }
  LS_ASSERT(at == tensor.shape.numel(), fmt::format("no rank writes element {} of {}", at, tensor.name));
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& sizes) {
  constexpr size_t kMost = 8;
  const auto end = sizes.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, sizes.size()));
  if (sizes.size() <= kMost) return fmt::format("[{}]", fmt::join(sizes.begin(), end, ", "));
  return fmt::format("[{}, ...], {} sizes", fmt::join(sizes.begin(), end, ", "), sizes.size());
}

device::Shape shape_of(const std::vector<int64_t>& s) {
  switch (s.size()) {
    case 0:
      return {};
    case 1:
      return {s[0]};
    case 2:
      return {s[0], s[1]};
    case 3:
      return {s[0], s[1], s[2]};
    default:
      return {s[0], s[1], s[2], s[3]};
  }
}

Piece whole_piece(Whole tensor) {
  const int64_t count = tensor.shape.numel();
  return {.tensor = std::move(tensor), .dimension = 0, .ranges = {}, .first = 0, .count = count};
}

void cut(Piece& piece, int dimension, int64_t part, int64_t parts, int64_t groups) {
  const int64_t size = cut_of(piece.tensor.shape, dimension).size;
  LS_ASSERT(size % (parts * groups) == 0,
            fmt::format("{} cannot be cut into {} x {} parts", piece.tensor.name, groups, parts));
  cut_groups(piece, dimension, part, parts, std::vector<int64_t>(static_cast<size_t>(groups), size / groups));
}

void cut_groups(Piece& piece, int dimension, int64_t part, int64_t parts, const std::vector<int64_t>& sizes) {
  LS_ASSERT(piece.ranges.empty(), piece.tensor.name);
  piece.dimension = dimension;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    LS_ASSERT(size % parts == 0, fmt::format("{} has a group of {}, which {} parts do not divide",
                                             piece.tensor.name, size, parts));
    piece.ranges.push_back({begin + part * (size / parts), size / parts});
    begin += size;
  }
  LS_ASSERT(begin == cut_of(piece.tensor.shape, dimension).size,
            piece.tensor.name + " is not filled by its groups");
  piece.first = 0;
  piece.count = left(piece);
}

void cut_rows(Piece& piece, int64_t begin, int64_t count) {
  LS_ASSERT(piece.ranges.empty() && begin >= 0 && count >= 0 && begin + count <= piece.tensor.shape[0],
            fmt::format("{} has no rows {} to {}", piece.tensor.name, begin, begin + count));
  piece.dimension = 0;
  piece.ranges = {{begin, count}};
  piece.first = 0;
  piece.count = left(piece);
}

std::vector<Run> runs_of(const Piece& piece) {
  LS_ASSERT(piece.first >= 0 && piece.count >= 0 && piece.first + piece.count <= left(piece),
            piece.tensor.name);
  std::vector<Run> runs;
  if (piece.count == 0) return runs;
  if (piece.ranges.empty()) return {{piece.first, 0, piece.count}};
  const Cut c = cut_of(piece.tensor.shape, piece.dimension);
  const int64_t end = piece.first + piece.count, row = left(piece) / c.outer;
  for (int64_t o = piece.first / row; o * row < end; ++o) {
    int64_t at = o * row;  // among what the ranges leave
    for (const Range& range : piece.ranges) {
      const int64_t size = range.count * c.inner;
      const int64_t from = std::max(at, piece.first), to = std::min(at + size, end);
      if (from < to)
        add(runs, {(o * c.size + range.begin) * c.inner + from - at, from - piece.first, to - from});
      at += size;
    }
  }
  return runs;
}

Piece part_of(const Piece& piece, int64_t begin, int64_t count) {
  Piece part = piece;
  part.first += begin;
  part.count = count;
  return part;
}

std::vector<Assigned> share_of(const std::vector<Piece>& pieces, int copy, int copies) {
  int64_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes();
  const int64_t from = total * copy / copies, to = total * (copy + 1) / copies;
  std::vector<Assigned> mine;
  int64_t at = 0;
  for (size_t k = 0; k < pieces.size(); ++k) {
    const Piece& piece = pieces[k];
    const int64_t size = device::size_of(piece.tensor.dtype);
    // Where a border falls into the piece: at the grain before it, counted in the canonical tensor.
    const auto border = [&](int64_t byte) {
      if (byte <= at) return int64_t{0};
      if (byte >= at + piece.bytes()) return piece.count;
      return std::max<int64_t>(0, (piece.first + (byte - at) / size) / kGrain * kGrain - piece.first);
    };
    const int64_t begin = border(from), end = border(to);
    if (begin < end) mine.push_back({part_of(piece, begin, end - begin), k, begin});
    at += piece.bytes();
  }
  return mine;
}

std::vector<Whole> check_cover(const std::vector<std::vector<Piece>>& by_rank) {
  struct Seen {
    Whole tensor;
    int rank;
    std::vector<Owned> owned;
  };
  std::map<std::string, Seen> seen;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const Piece& piece : by_rank[rank]) {
      const auto [at, added] =
          seen.try_emplace(piece.tensor.name, Seen{piece.tensor, static_cast<int>(rank), {}});
      Seen& one = at->second;
      LS_ASSERT(one.tensor == piece.tensor,
                fmt::format("ranks {} and {} do not agree on {}", one.rank, rank, piece.tensor.name));
      for (const Run& run : runs_of(piece)) one.owned.push_back({run, static_cast<int>(rank)});
    }
  }
  std::vector<Whole> tensors;
  for (auto& [name, one] : seen) {
    check_tensor(one.tensor, one.owned);
    tensors.push_back(one.tensor);
  }
  std::sort(tensors.begin(), tensors.end(), [](const Whole& a, const Whole& b) {
    return std::tie(a.kind, a.order, a.name) < std::tie(b.kind, b.order, b.name);
  });
  return tensors;
}

}  // namespace lockstep::checkpoint

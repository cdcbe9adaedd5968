#include "lockstep/program/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"

namespace lockstep::program {
namespace {

constexpr std::array kSchedules{Schedule::gpipe, Schedule::one_f_one_b, Schedule::interleaved,
                                Schedule::zero_bubble};

std::vector<Turn> gpipe(int64_t slices) {
  std::vector<Turn> list;
  for (int64_t s = 0; s < slices; ++s) list.push_back({Turn::What::forward, s, 0});
  for (int64_t s = 0; s < slices; ++s) list.push_back({Turn::What::backward, s, 0});
  return list;
}

// The order in which every stage takes its (slice, chunk) pairs forward, or backward: slices in groups, each
// of which goes through all chunks of a stage before the next one comes.
std::vector<Turn> pass(int64_t group, int chunks, int64_t slices, Turn::What what) {
  std::vector<Turn> list;
  for (int64_t first = 0; first < slices; first += group) {
    for (int c = 0; c < chunks; ++c) {
      const int chunk = what == Turn::What::forward ? c : chunks - 1 - c;
      for (int64_t s = first; s < first + group; ++s) list.push_back({what, s, chunk});
    }
  }
  return list;
}

// How many forward passes a stage does before its first backward one, less the one just before it. With
// several chunks it is ahead by two for each stage after it, not one: so much slack lets messages travel
// while stages work.
int64_t warm_up(int stages, int stage, int chunks) {
  const int64_t to_last = stages - 1 - stage;
  return chunks == 1 ? to_last : 2 * to_last + static_cast<int64_t>(chunks - 1) * stages;
}

// One forward, one backward, after a warm-up; 1f1b itself where there is one chunk.
std::vector<Turn> one_f_one_b(int stages, int stage, int chunks, int64_t slices) {
  // A group of fewer slices than stages would make the first stage wait for the last one. So where the slices
  // are no multiple of the stages, the order is that of the next multiple, less the slices that are not
  // there: what never waits in a circle still does not when slices are left out.
  const int64_t group = chunks == 1 ? 1 : stages, planned = base::round_up(slices, group);
  const std::vector<Turn> forward = pass(group, chunks, planned, Turn::What::forward);
  const std::vector<Turn> backward = pass(group, chunks, planned, Turn::What::backward);
  const size_t lead = std::min(forward.size(), static_cast<size_t>(warm_up(stages, stage, chunks)));
  std::vector<Turn> list(forward.begin(), forward.begin() + static_cast<ptrdiff_t>(lead));
  for (size_t k = lead; k < forward.size(); ++k) {
    list.push_back(forward[k]);
    list.push_back(backward[k - lead]);
  }
  list.insert(list.end(), backward.end() - static_cast<ptrdiff_t>(lead), backward.end());
  std::erase_if(list, [&](const Turn& turn) { return turn.slice >= slices; });
  return list;
}

// ZB-H1: the forward and input-gradient turns of 1f1b. A stage puts off its weight gradients by as many
// slices as there are stages before it, so that those get their input gradients sooner, and no stage keeps
// more than 1f1b's first one; it makes up for them where it would wait for the stage after it.
std::vector<Turn> zero_bubble(int stages, int stage, int64_t slices) {
  std::vector<Turn> list;
  int64_t weights = 0;
  for (const Turn& turn : one_f_one_b(stages, stage, 1, slices)) {
    if (turn.what == Turn::What::forward) {
      list.push_back(turn);
      continue;
    }
    list.push_back({Turn::What::backward_input, turn.slice, 0});
    if (turn.slice >= stage) list.push_back({Turn::What::backward_weight, weights++, 0});
  }
  while (weights < slices) list.push_back({Turn::What::backward_weight, weights++, 0});
  return list;
}

constexpr double kNever = std::numeric_limits<double>::infinity();

// For the first `end` blocks in `k` pieces, [k][end]: the least value of a cut and where its last piece
// begins.
struct Cuts {
  std::vector<std::vector<double>> value;
  std::vector<std::vector<int>> begin;
};

// `join` gives the value of a cut from that of all but its last piece and that piece's cost.
template <class Join>
Cuts best_cuts(const std::vector<double>& sums, int pieces, Join join) {
  const size_t rows = static_cast<size_t>(pieces) + 1, width = sums.size();
  Cuts cuts{.value = std::vector(rows, std::vector<double>(width, kNever)),
            .begin = std::vector(rows, std::vector<int>(width, 0))};
  cuts.value[0][0] = 0;
  for (size_t k = 1; k < rows; ++k) {
    for (size_t end = k; end < width; ++end) {
      for (size_t begin = k - 1; begin < end; ++begin) {
        if (cuts.value[k - 1][begin] == kNever) continue;
        const double value = join(cuts.value[k - 1][begin], sums[end] - sums[begin]);
        if (value >= cuts.value[k][end]) continue;
        cuts.value[k][end] = value;
        cuts.begin[k][end] = static_cast<int>(begin);
      }
    }
  }
  return cuts;
}

}  // namespace

const char* name_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::gpipe:
      return "gpipe";
    case Schedule::one_f_one_b:
      return "1f1b";
    case Schedule::interleaved:
      return "interleaved";
    case Schedule::zero_bubble:
      return "zero-bubble";
  }
  return "?";
}

Schedule schedule_of(const std::string& name) {
  for (const Schedule schedule : kSchedules) {
    if (name == name_of(schedule)) return schedule;
  }
  throw base::ConfigError(
      180, fmt::format("unknown pipeline schedule '{}'; use gpipe, 1f1b, interleaved or zero-bubble", name));
}

std::vector<Turn> turns(Schedule schedule, int stages, int stage, int chunks, int64_t slices) {
  LS_ASSERT(stages >= 1 && stage >= 0 && stage < stages && chunks >= 1 && slices >= 1);
  LS_ASSERT(chunks == 1 || schedule == Schedule::interleaved);
  switch (schedule) {
    case Schedule::gpipe:
      return gpipe(slices);
    case Schedule::one_f_one_b:
    case Schedule::interleaved:
      return one_f_one_b(stages, stage, chunks, slices);
    case Schedule::zero_bubble:
      return zero_bubble(stages, stage, slices);
  }
  return {};
}

std::vector<std::vector<int64_t>> turn_ends(Schedule schedule, int stages, int chunks, int64_t slices) {
  std::vector<std::vector<Turn>> lists;
  for (int stage = 0; stage < stages; ++stage)
    lists.push_back(turns(schedule, stages, stage, chunks, slices));
  const auto pieces = static_cast<int64_t>(stages) * chunks;
  // By slice and piece: when its forward, and its backward's first half, are done; -1: not yet.
  std::vector<int64_t> forward(static_cast<size_t>(slices * pieces), -1), backward = forward;
  std::vector<std::vector<int64_t>> ends(lists.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < lists.size(); ++stage) {
      while (ends[stage].size() < lists[stage].size()) {
        const Turn& turn = lists[stage][ends[stage].size()];
        const int64_t piece = turn.chunk * stages + static_cast<int64_t>(stage);
        const auto at = static_cast<size_t>(turn.slice * pieces + piece);
        int64_t ready = ends[stage].empty() ? 0 : ends[stage].back();
        if (turn.what == Turn::What::forward) {
          if (piece > 0 && forward[at - 1] < 0) break;
          if (piece > 0) ready = std::max(ready, forward[at - 1]);
          forward[at] = ready + 1;
        } else if (turn.what != Turn::What::backward_weight) {
          if (piece + 1 < pieces && backward[at + 1] < 0) break;
          if (piece + 1 < pieces) ready = std::max(ready, backward[at + 1]);
          backward[at] = ready + (turn.what == Turn::What::backward ? 2 : 1);
        }
        ends[stage].push_back(ready + (turn.what == Turn::What::backward ? 2 : 1));
        moved = true;
      }
    }
  }
  for (size_t stage = 0; stage < lists.size(); ++stage)
    LS_ASSERT(ends[stage].size() == lists[stage].size(), "a schedule that does not terminate");
  return ends;
}

std::string cannot(Schedule schedule, int stages, int chunks, int64_t slices) {
  if (schedule != Schedule::gpipe && slices < stages) {
    return fmt::format(
        "parallel.schedule = {} with {} stages needs at least as many slices on each rank, but there {} {}; "
        "raise batch.slices, or set parallel.schedule=gpipe",
        name_of(schedule), stages, slices == 1 ? "is" : "are", slices);
  }
  if (schedule == Schedule::interleaved && chunks < 2) {
    return fmt::format(
        "parallel.schedule = interleaved needs several chunks per stage, but parallel.chunks = {}; set "
        "parallel.chunks=2, or parallel.schedule=1f1b",
        chunks);
  }
  if (schedule != Schedule::interleaved && chunks != 1) {
    return fmt::format(
        "parallel.chunks = {} needs parallel.schedule = interleaved, but the schedule is {}; set "
        "parallel.chunks=1, or parallel.schedule=interleaved",
        chunks, name_of(schedule));
  }
  return "";
}

std::vector<Piece> cut_blocks(const std::vector<double>& costs, int pieces) {
  const int blocks = static_cast<int>(costs.size());
  LS_ASSERT(pieces >= 1 && pieces <= blocks, fmt::format("{} blocks in {} chunks", blocks, pieces));
  std::vector<double> sums(costs.size() + 1, 0.0);
  for (size_t b = 0; b < costs.size(); ++b) sums[b + 1] = sums[b] + costs[b];
  const Cuts dearest =
      best_cuts(sums, pieces, [](double before, double cost) { return std::max(before, cost); });
  const double limit = dearest.value.back().back();
  const Cuts even = best_cuts(sums, pieces, [limit](double before, double cost) {
    return cost > limit ? kNever : before + cost * cost;
  });
  std::vector<Piece> list(static_cast<size_t>(pieces));
  for (int k = pieces, end = blocks; k >= 1; --k) {
    const int begin = even.begin[static_cast<size_t>(k)][static_cast<size_t>(end)];
    list[static_cast<size_t>(k) - 1] = {begin, end};
    end = begin;
  }
  return list;
}

}  // namespace lockstep::program

#include "lockstep/program/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::program {
namespace {

using What = Turn::What;

struct Pipe {
  Schedule schedule;
  int stages, chunks;
  int64_t slices;
  std::string words() const {
    return fmt::format("{} of {} stages, {} chunks, {} slices", name_of(schedule), stages, chunks, slices);
  }
  std::vector<Turn> of(int stage) const { return turns(schedule, stages, stage, chunks, slices); }
};

// Every pipeline worth trying: `visit(pipe)`.
template <class Visit>
void each_pipe(Visit visit) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int64_t slices = 1; slices <= 26; ++slices) {
      for (const Schedule s : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
        visit(Pipe{s, stages, 1, slices});
      }
      for (int chunks = 1; chunks <= 4; ++chunks) visit(Pipe{Schedule::interleaved, stages, chunks, slices});
    }
  }
}

// Times of a slice on a whole stage.
struct Times {
  double forward = 1, input = 1, weight = 1;
  double whole() const { return forward + input + weight; }
  double of(What what, int chunks) const {
    switch (what) {
      case What::forward:
        return forward / chunks;
      case What::backward:
        return (input + weight) / chunks;
      case What::backward_input:
        return input / chunks;
      case What::backward_weight:
        return weight / chunks;
    }
    return 0;
  }
};

// Runs the stages beside each other, each in its order; a message takes `hop`. The step's time, or -1 when
// all wait for each other.
double walk(const Pipe& pipe, const Times& times, double hop = 0) {
  std::vector<std::vector<Turn>> lists;
  for (int s = 0; s < pipe.stages; ++s) lists.push_back(pipe.of(s));
  const int pieces = pipe.stages * pipe.chunks;
  std::map<std::pair<int, int64_t>, double> forward, backward;  // by piece and slice: when it was done
  std::vector<size_t> next(lists.size(), 0);
  std::vector<double> clock(lists.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < pipe.stages; ++s) {
      const size_t at = static_cast<size_t>(s);
      while (next[at] < lists[at].size()) {
        const Turn& turn = lists[at][next[at]];
        const int piece = turn.chunk * pipe.stages + s;
        double ready = clock[at];
        const auto needs = [&](const auto& done, int of_piece) {
          const auto found = done.find({of_piece, turn.slice});
          if (found == done.end()) return false;
          ready = std::max(ready, found->second + (of_piece == piece ? 0 : hop));
          return true;
        };
        if (turn.what == What::forward && piece > 0 && !needs(forward, piece - 1)) break;
        if (turn.what != What::forward && !needs(forward, piece)) break;
        if (turn.what == What::backward_weight && !needs(backward, piece)) break;
        if (turn.what != What::forward && turn.what != What::backward_weight && piece + 1 < pieces &&
            !needs(backward, piece + 1)) {
          break;
        }
        clock[at] = ready + times.of(turn.what, pipe.chunks);
        if (turn.what == What::forward) forward[{piece, turn.slice}] = clock[at];
        if (turn.what == What::backward || turn.what == What::backward_input) {
          backward[{piece, turn.slice}] = clock[at];
        }
        ++next[at];
        moved = true;
      }
    }
  }
  for (size_t s = 0; s < lists.size(); ++s) {
    if (next[s] < lists[s].size()) return -1;
  }
  return *std::max_element(clock.begin(), clock.end());
}

TEST(Schedule, EverySliceOnceForwardAndBackwardAndInOrder) {
  each_pipe([](const Pipe& pipe) {
    for (int stage = 0; stage < pipe.stages; ++stage) {
      std::set<std::pair<int64_t, int>> forward;
      std::map<int, int64_t> inputs, weights;  // by chunk: how many are done
      for (const Turn& turn : pipe.of(stage)) {
        ASSERT_TRUE(turn.slice >= 0 && turn.slice < pipe.slices && turn.chunk >= 0 &&
                    turn.chunk < pipe.chunks);
        if (turn.what == What::forward) {
          ASSERT_TRUE(forward.insert({turn.slice, turn.chunk}).second) << pipe.words();
          continue;
        }
        ASSERT_TRUE(forward.contains({turn.slice, turn.chunk}))
            << pipe.words() << ": backward before forward";
        ASSERT_EQ(turn.what == What::backward, pipe.schedule != Schedule::zero_bubble) << pipe.words();
        if (turn.what != What::backward_weight) {
          ASSERT_EQ(turn.slice, inputs[turn.chunk]++) << pipe.words() << ": out of order";
        }
        if (turn.what != What::backward_input) {
          ASSERT_EQ(turn.slice, weights[turn.chunk]++) << pipe.words() << ": out of order";
          ASSERT_LT(turn.slice, inputs[turn.chunk]) << pipe.words() << ": weights before the input";
        }
      }
      ASSERT_EQ(static_cast<int64_t>(forward.size()), pipe.slices * pipe.chunks) << pipe.words();
      for (int c = 0; c < pipe.chunks; ++c) {
        ASSERT_EQ(inputs[c], pipe.slices) << pipe.words();
        ASSERT_EQ(weights[c], pipe.slices) << pipe.words();
      }
    }
  });
}

// The most slices that are alive on a stage at once: begun, and their last backward half not yet done. With
// several chunks, a slice counts once for each chunk that it is alive in.
int64_t most_alive(const Pipe& pipe, int stage) {
  const int64_t to_last = pipe.stages - 1 - stage;
  switch (pipe.schedule) {
    case Schedule::gpipe:
      return pipe.slices;
    case Schedule::one_f_one_b:
    case Schedule::interleaved:
      return std::min(pipe.slices * pipe.chunks,
                      1 + (pipe.chunks == 1 ? to_last : 2 * to_last + (pipe.chunks - 1) * pipe.stages));
    case Schedule::zero_bubble:
      return std::min<int64_t>(pipe.slices, pipe.stages);
  }
  return 0;
}

TEST(Schedule, KeepsNoMoreSlicesThanDocumented) {
  each_pipe([](const Pipe& pipe) {
    for (int stage = 0; stage < pipe.stages; ++stage) {
      int64_t alive = 0, most = 0;
      for (const Turn& turn : pipe.of(stage)) {
        if (turn.what == What::forward) most = std::max(most, ++alive);
        if (turn.what == What::backward || turn.what == What::backward_weight) --alive;
      }
      EXPECT_LE(most, most_alive(pipe, stage)) << pipe.words();
      if (pipe.slices % pipe.stages == 0) {  // and no fewer: the number is not just a bound
        EXPECT_EQ(most, most_alive(pipe, stage)) << pipe.words();
      }
    }
  });
}

TEST(Schedule, StagesNeverWaitForEachOtherInACircle) {
  each_pipe([](const Pipe& pipe) { EXPECT_GT(walk(pipe, {}), 0) << pipe.words(); });
}

TEST(Schedule, BubblesAreThePublishedOnes) {
  const std::vector<Times> all{{1, 1, 1}, {1, 2, 0}, {1, 1.25, 0.75}};
  each_pipe([&](const Pipe& pipe) {
    if (!cannot(pipe.schedule, pipe.stages, pipe.chunks, pipe.slices).empty()) return;
    if (pipe.chunks > 1 && pipe.slices % pipe.stages != 0) {
      Pipe rounded = pipe;
      rounded.slices += pipe.stages - pipe.slices % pipe.stages;
      EXPECT_LT(walk(pipe, {}), walk(rounded, {})) << pipe.words();
      return;
    }
    for (const Times& times : all) {
      if (pipe.schedule == Schedule::zero_bubble && times.input != times.weight) continue;
      const double busy = static_cast<double>(pipe.slices) * times.whole();
      const double idle = walk(pipe, times) - busy;
      const double whole = pipe.schedule == Schedule::zero_bubble ? times.forward + times.input - times.weight
                                                                  : times.whole() / pipe.chunks;
      EXPECT_NEAR(idle, (pipe.stages - 1) * whole, 1e-9) << pipe.words();
      const double m = static_cast<double>(pipe.slices), p = pipe.stages, v = pipe.chunks;
      if (pipe.schedule != Schedule::zero_bubble) {
        EXPECT_NEAR(idle / (idle + busy), (p - 1) / (v * m + p - 1), 1e-9) << pipe.words();
      }
    }
  });
}

// A stage is ahead by one pass for each hop there and back: messages cost time only once, at either end.
TEST(Schedule, InterleavedStagesWorkWhileMessagesTravel) {
  const auto idle = [](int64_t slices) {
    const Times times;
    return walk({Schedule::interleaved, 4, 2, slices}, times, 0.4) -
           static_cast<double>(slices) * times.whole();
  };
  for (const int64_t slices : {12, 16, 24}) EXPECT_NEAR(idle(slices), idle(8), 1e-9) << slices;
}

TEST(Schedule, CannotNamesTheNearestThatCan) {
  EXPECT_EQ(cannot(Schedule::one_f_one_b, 4, 1, 4), "");
  EXPECT_EQ(cannot(Schedule::gpipe, 4, 1, 1), "");
  EXPECT_EQ(cannot(Schedule::interleaved, 4, 2, 5), "");
  EXPECT_NE(cannot(Schedule::zero_bubble, 4, 1, 3).find("parallel.schedule=gpipe"), std::string::npos);
  EXPECT_NE(cannot(Schedule::interleaved, 2, 1, 1).find("parallel.schedule=gpipe"), std::string::npos);
  EXPECT_NE(cannot(Schedule::interleaved, 2, 1, 8).find("parallel.chunks=2"), std::string::npos);
  EXPECT_NE(cannot(Schedule::one_f_one_b, 2, 2, 8).find("parallel.chunks=1"), std::string::npos);
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zero-bubble"}) {
    EXPECT_STREQ(name_of(schedule_of(name)), name);
  }
  EXPECT_THROW(schedule_of("dualpipe"), base::ConfigError);
}

// The dearest piece of the best cut, by trying all.
double least(const std::vector<double>& costs, size_t begin, int pieces) {
  if (pieces == 1) return std::accumulate(costs.begin() + static_cast<ptrdiff_t>(begin), costs.end(), 0.0);
  double best = 1e300, first = 0;
  for (size_t end = begin + 1; end + static_cast<size_t>(pieces) - 1 <= costs.size(); ++end) {
    first += costs[end - 1];
    best = std::min(best, std::max(first, least(costs, end, pieces - 1)));
  }
  return best;
}

TEST(CutBlocks, NoCutHasACheaperDearestPiece) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<double> costs(1 + random() % 9);
    for (double& cost : costs) cost = static_cast<double>(random() % 7);  // some cost nothing
    const int pieces = static_cast<int>(1 + random() % costs.size());
    const std::vector<Piece> cut = cut_blocks(costs, pieces);
    ASSERT_EQ(static_cast<int>(cut.size()), pieces) << "seed " << seed;
    int at = 0;
    double dearest = 0;
    for (const Piece& piece : cut) {
      ASSERT_EQ(piece.begin, at) << "seed " << seed;
      ASSERT_LT(piece.begin, piece.end) << "seed " << seed;
      at = piece.end;
      dearest =
          std::max(dearest, std::accumulate(costs.begin() + piece.begin, costs.begin() + piece.end, 0.0));
    }
    ASSERT_EQ(at, static_cast<int>(costs.size())) << "seed " << seed;
    EXPECT_EQ(dearest, least(costs, 0, pieces)) << "seed " << seed;
  }
}

TEST(CutBlocks, EvensOutWhatTheDearestPieceLeaves) {
  // The head costs as much as four layers: the layers before it are shared out evenly.
  EXPECT_EQ(cut_blocks({0, 1, 1, 1, 1, 4}, 3), (std::vector<Piece>{{0, 3}, {3, 5}, {5, 6}}));
  EXPECT_EQ(cut_blocks({1, 1, 1, 1, 1}, 2), (std::vector<Piece>{{0, 2}, {2, 5}}));
  EXPECT_EQ(cut_blocks({1}, 1), (std::vector<Piece>{{0, 1}}));
}

}  // namespace
}  // namespace lockstep::program

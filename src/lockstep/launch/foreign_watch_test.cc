// Who holds up whom in a program that is not ours, from what can be seen of it.
#include "lockstep/launch/foreign_watch.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

const std::string kReduce = "all_reduce (torch/distributed/distributed_c10d.py:4181)",
                  kBroadcast = "broadcast (torch/distributed/distributed_c10d.py:4055)",
                  kWrapper = "wrapper (torch/distributed/c10d_logger.py:83)",
                  kStore = "_create_c10d_store (torch/distributed/rendezvous.py:215)";

ForeignRank rank_at(int rank, std::vector<std::string> stack, double idle = 20) {
  return {.rank = rank, .pid = 100 + rank, .idle = idle, .waits_in = {}, .stack = std::move(stack)};
}

TEST(ForeignWatch, NamesTheRankThatLags) {
  ForeignRank asleep = rank_at(1, {});
  asleep.waits_in = "hrtimer_nanosleep";
  struct Row {
    std::vector<ForeignRank> ranks;
    std::vector<int> culprits;
    std::string says;
  };
  const Row rows[] = {
      {{rank_at(0, {kReduce, kWrapper, "step (t.py:3)"}), rank_at(1, {"load (t.py:9)"})},
       {1},
       "rank 1 (process 101) lags: it is at load (t.py:9); rank 0 waits"},
      // Who polls a store for the others uses a little of its processor, and is not late.
      {{rank_at(0, {kStore, "<module> (t.py:2)"}, 5), asleep}, {1}, "rank 1 (process 101) lags"},
      // PyTorch waits for a worker of its own, by way of Python's library.
      {{rank_at(0, {kReduce, "step (t.py:3)"}),
        rank_at(1, {"select (selectors.py:415)", "__next__ (torch/utils/data/dataloader.py:725)",
                    "step (t.py:2)"})},
       {1},
       "it is at select (selectors.py:415), called from step (t.py:2)"},
      {{rank_at(0, {kReduce, kWrapper, "step (t.py:3)"}), rank_at(1, {kBroadcast, "step (t.py:4)"}),
        rank_at(2, {kBroadcast, "step (t.py:4)"})},
       {},
       "all must make the same ones in the same order: rank 0 is at " + kReduce +
           ", called from step (t.py:3); ranks 1 2 are at " + kBroadcast + ", called from step (t.py:4)"},
      {{rank_at(0, {kReduce, "step (t.py:3)"}), rank_at(1, {kReduce, "step (t.py:3)"})},
       {},
       "none stands out"},
  };
  for (const Row& row : rows) {
    const std::optional<watch::Verdict> verdict = judge_foreign(row.ranks, 15);
    ASSERT_TRUE(verdict) << row.says;
    EXPECT_NE(verdict->sentence.find(row.says), std::string::npos) << verdict->sentence;
    EXPECT_EQ(verdict->culprits, row.culprits) << verdict->sentence;
  }
  EXPECT_FALSE(judge_foreign({rank_at(0, {}, 3), rank_at(1, {}, 4)}, 15));
}

// Threads have no names before Python's `threading` is imported.
TEST(ForeignWatch, ReadsTheStackOfTheMainThread) {
  const char* rows[] = {"Process 12: python t.py\n\nThread 12 (idle)\n    load (t.py:5)\n",
                        "Process 12: python t.py\n\nThread 13 (idle): \"Thread-1\"\n    other (u.py:5)\n"
                        "Thread 12 (idle): \"MainThread\"\n    load (t.py:5)\n"};
  for (const char* text : rows) EXPECT_EQ(frames_of(text), std::vector<std::string>{"load (t.py:5)"}) << text;
}

}  // namespace
}  // namespace lockstep::launch

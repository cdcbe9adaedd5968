#include "lockstep/run/loop/fingerprint.h"

#include <gtest/gtest.h>

#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

TEST(OddOnesOut, TheMajorityIsRight) {
  struct Case {
    std::vector<uint64_t> classes;
    std::vector<uint64_t> hashes;
    std::vector<int> odd;
  };
  const Case cases[] = {
      {{0, 0, 0}, {5, 5, 5}, {}},
      {{0, 0, 0}, {5, 6, 5}, {1}},
      {{0, 0}, {5, 6}, {0, 1}},
      {{0, 0, 0, 0}, {5, 6, 5, 6}, {0, 1, 2, 3}},
      {{0, 1, 0, 1}, {5, 6, 5, 6}, {}},
      {{0, 1, 0, 1, 0, 1}, {5, 6, 5, 7, 5, 6}, {3}},
      {{0, 0, 0, 0, 0}, {1, 2, 3, 1, 1}, {1, 2}},
      {{0}, {1}, {}},
  };
  for (const Case& one : cases) EXPECT_EQ(odd_ones_out(one.classes, one.hashes), one.odd);
}

// After a step, flips one bit of a weight that the rank holds.
struct Flipper : Observer {
  Session* session = nullptr;
  int64_t at = 0;
  std::string diverged;
  void stepped(const StepReport& report) override {
    if (report.step != at) return;
    for (const Parameters::Named& one : session->parameters->named()) {
      if (one.master.values.numel() == 0) continue;
      *one.master.values.as<uint32_t>() ^= 64;  // not the lowest, which the next update may round away
      return;
    }
  }
  void event(const std::string& name, const std::string& why, int64_t) override {
    if (name == "diverged") diverged = why;
  }
};

TEST(Fingerprint, AFlippedBitNamesItsRank) {
  LS_NEEDS_HOST_MEMORY();
  struct Case {
    int world, flips;  // rank; -1: none
    std::vector<std::string> words;
    std::string says;  // empty: nothing is found
  };
  const Case cases[] = {
      {4, -1, {}, ""},
      {4, 2, {}, "after step 4 the weights of rank 2 differ"},
      {3, 0, {"precision.compute=bf16"}, "rank 0 differ"},
      {2, 1, {}, "ranks 0 1 differ from the other replicas (no majority"},
      {6, 3, {"parallel.zero=3", "parallel.shard=2"}, "rank 3 differ"},
      {6, -1, {"parallel.zero=3", "parallel.shard=2"}, ""},
      {2, 1, {"parallel.zero=3"}, ""},  // each weight is held once: there is nothing to compare
      {3, 1, {"log.fingerprint_every=0"}, ""},
      {4,
       -1,
       {"parallel.tensor=2"},
       ""},  // tensor ranks, stages and shards hold other elements than their neighbours
      {6, 4, {"parallel.tensor=2"}, "the weights of rank 4 differ"},
      {4, 1, {"parallel.tensor=2"}, "ranks 1 3 differ from the other replicas (no majority"},
      {8, 1, {"parallel.tensor=4", "model.heads=4"}, "ranks 1 5 differ from the other replicas (no majority"},
      {4, -1, {"parallel.pipeline=2"}, ""},
      {6, 2, {"parallel.pipeline=2"}, "rank 2 differ"},
      {4, 3, {"parallel.context=2"}, "rank 3 differ"},
      {8, -1, {"parallel.tensor=2", "parallel.zero=3", "parallel.shard=2"}, ""},
      {4, -1, {"parallel.context=2", "parallel.zero=3", "parallel.shard=2"}, ""},
  };
  for (const Case& one : cases) {
    std::atomic<int> found{0};
    on_ranks(one.world, "shm", [&](comm::World& world) {
      Ranks ranks(world);
      std::vector<std::string> words = {"batch.slices=8", "batch.strands=8", "run.steps=6",
                                        "log.fingerprint_every=2"};
      words.insert(words.end(), one.words.begin(), one.words.end());
      Session session(make_plan(tiny_recipe(words), {}, for_this(ranks)), &ranks);
      Flipper flipper;
      flipper.session = &session;
      flipper.at = world.rank() == one.flips ? 3 : -1;
      try {
        train(session, {}, flipper);
      } catch (const base::RunError& error) {
        EXPECT_EQ(error.number(), 602);
        ++found;
      }
      EXPECT_EQ(flipper.diverged.empty(), one.says.empty()) << flipper.diverged;
      EXPECT_NE(flipper.diverged.find(one.says), std::string::npos) << flipper.diverged;
    });
    EXPECT_EQ(found, one.says.empty() ? 0 : one.world) << one.says;
  }
}

}  // namespace
}  // namespace lockstep::run

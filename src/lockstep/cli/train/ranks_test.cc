// `lockstep train` on several ranks, as processes: the same bits as one, on the CPU and, where there is one,
// on a GPU.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/ring.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"
#include "lockstep/device/device.h"

namespace lockstep::cli {
namespace {

const std::string kTiny =
    "$L train model.layers=2 model.hidden=32 model.heads=2 data.seq_len=16 batch.global=16 batch.slices=8 "
    "batch.strands=8 run.steps=20 log.eval_every=0 log.eval_batches=2 ";

std::vector<std::string> losses(const std::string& run) {
  std::vector<std::string> found;
  std::ifstream file(run + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json parsed =
        nlohmann::json::parse(line, nullptr, false);  // the last one may not be whole yet
    if (parsed.is_object() && parsed.contains("loss_hex")) found.push_back(parsed["loss_hex"]);
  }
  return found;
}

struct Layout {
  const char* words;
};

// Twenty steps in each layout: every loss and every weight as on one rank.
void expect_same_bits(const std::string& words, const std::vector<Layout>& layouts) {
  const base::TemporaryFolder folder;
  const auto train = [&](const std::string& name, const std::string& more) {
    const Outcome outcome =
        run_shell(folder.path(), kTiny + words + " run.name=" + name + " " + more + " --json 2>log");
    EXPECT_EQ(outcome.code, 0) << more << "\n" << run_shell(folder.path(), "cat log").output;
    const nlohmann::json summary = nlohmann::json::parse(outcome.output, nullptr, false);
    return summary.is_object() ? summary.value("params_hash", "none") : "no JSON: " + outcome.output;
  };
  const std::string expected = train("one", "");
  const std::vector<std::string> one = losses(folder.path() + "/runs/one");
  EXPECT_EQ(one.size(), 20u);
  for (size_t k = 0; k < layouts.size(); ++k) {
    const std::string name = "many" + std::to_string(k);
    EXPECT_EQ(train(name, layouts[k].words), expected) << layouts[k].words;
    EXPECT_EQ(losses(folder.path() + "/runs/" + name), one) << layouts[k].words;
  }
}

TEST(TrainOnRanks, GivesTheBitsOfOneRank) {
  expect_same_bits("run.device=cpu model.dropout=0.1", {{"--nproc 2"},
                                                        {"--nproc 3 parallel.zero=3"},
                                                        {"--nproc 4 parallel.zero=2 parallel.shard=2"},
                                                        {"--nproc 2 parallel.zero=1 parallel.engine=gloo"}});
}

// Several ranks share the GPU: NCCL over sockets. Good for bits, not for speed.
TEST(TrainOnRanks, GivesTheBitsOfOneRankOnAGpu) {
  if (device::cuda_availability().devices == 0) GTEST_SKIP() << device::cuda_availability().why_not;
  expect_same_bits("run.device=cuda:0 model.dropout=0.1 precision.tf32=false precision.compute=fp32",
                   {{"--nproc 2"},
                    {"--nproc 2 parallel.zero=1"},
                    {"--nproc 2 parallel.zero=2"},
                    {"--nproc 2 parallel.zero=3"},
                    {"--nproc 4 parallel.zero=1 parallel.shard=2"}});
}

TEST(TrainOnRanks, GivesTheBitsOfOneRankOnAGpuInBf16) {
  if (device::cuda_availability().devices == 0) GTEST_SKIP() << device::cuda_availability().why_not;
  expect_same_bits("run.device=cuda:0 model.dropout=0.1 precision.compute=bf16",
                   {{"--nproc 2"}, {"--nproc 4 parallel.zero=3"}});
}

// Started by hand, each from a shell of its own: RANK and MASTER_PORT are all that they share.
std::string by_hand(const std::string& words, const std::vector<int>& ranks) {
  std::string line =
      fmt::format("export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}; ",
                  20000 + ::getpid() % 9000);
  for (size_t k = 0; k < ranks.size(); ++k) {
    line += fmt::format("(RANK={0} LOCAL_RANK={0} timeout 60 {1} >says.{2} 2>&1; echo code $? >>says.{2}) & ",
                        ranks[k], words, k);
  }
  return line + "wait; cat says.*";
}

TEST(TrainOnRanks, FindEachOtherWithoutALauncher) {
  const base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(), by_hand(kTiny + "run.device=cpu run.steps=3 --json", {1, 0}));
  EXPECT_NE(outcome.output.find("2 over shm"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("code 1"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("code 0"), std::string::npos) << outcome.output;
}

// Whether it comes before or after the others have begun.
TEST(TrainOnRanks, ASecondOfOneNumberIsRefused) {
  const base::TemporaryFolder folder;
  const Outcome outcome =
      run_shell(folder.path(), by_hand(kTiny + "run.device=cpu run.steps=2000", {0, 1, 1}));
  EXPECT_NE(outcome.output.find("[LS0528]"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("code 2"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("code 124"), std::string::npos) << outcome.output;
}

TEST(TrainOnRanks, SaysMoreRanksThanGpus) {
  if (device::cuda_availability().devices == 0) GTEST_SKIP() << device::cuda_availability().why_not;
  const base::TemporaryFolder folder;
  const int too_many = device::cuda_availability().devices + 1;
  const Outcome outcome =
      run_shell(folder.path(), kTiny + fmt::format("run.device=cuda --nproc {} 2>&1", too_many));
  EXPECT_EQ(outcome.code, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("[LS0403]"), std::string::npos) << outcome.output;
}

// What a rank was doing can be read when it is dead: instructions and collectives, with group and number.
TEST(TrainOnRanks, ADeadRankHasLeftItsMarks) {
  const base::TemporaryFolder folder;
  const std::string run = folder.path() + "/runs/killed";
  std::future<Outcome> training = std::async(std::launch::async, [&] {
    return run_shell(folder.path(), "timeout -k 5 60 " + kTiny +
                                        "run.device=cpu run.steps=100000 run.name=killed --nproc 2 "
                                        "--max-restarts 0");
  });
  for (int tries = 0; tries < 600 && losses(run).size() < 5; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_GE(losses(run).size(), 5u) << training.get().output;
  ::kill(base::RingReader(run + "/trace/rank-1.ring").pid(), SIGKILL);
  const Outcome outcome = training.get();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("killed by SIGKILL"), std::string::npos) << outcome.output;
  for (const int rank : {0, 1}) {
    const base::RingReader ring(run + "/trace/rank-" + std::to_string(rank) + ".ring");
    EXPECT_EQ(ring.rank(), rank);
    int64_t computed = 0, collectives = 0, last = -1;
    for (const base::RingEntry& entry : ring.entries()) {
      computed += entry.stamp.op < 100;
      if (entry.stamp.op < 100) continue;
      ++collectives;
      EXPECT_GE(entry.stamp.group, 0);
      EXPECT_GE(entry.stamp.sequence, 0);
      last = std::max(last, entry.stamp.step);
    }
    EXPECT_GT(computed, 0);
    EXPECT_GT(collectives, 0);
    EXPECT_GE(last, 4);
  }
}

}  // namespace
}  // namespace lockstep::cli

// Runs over several nodes that lose some and gain others.
#include <gtest/gtest.h>

#include "lockstep/cli/train/background_training.h"
#include "lockstep/launch/rendezvous/network.h"

namespace lockstep::cli {
namespace {

// The launcher that leads hears from the other node what its ranks are doing.
TEST(Elastic, AFrozenRankOfAnotherNodeIsNamed) {
  const base::TemporaryFolder folder;
  const std::string before = "export LOCKSTEP_SECRET=correct-horse-battery-staple-correct;";
  const auto node = [&, port = launch::free_port()](int number) {
    return fmt::format(
        "run.steps=1500 --json --nnodes 2 --nproc 2 --node-rank {} --rdzv-endpoint 127.0.0.1:{} "
        "run.hang_timeout=3",
        number, port);
  };
  Training first(folder.path(), "apart", node(0), before);
  std::future<Outcome> second = std::async(std::launch::async, [&] {
    return run_shell(folder.path(),
                     before + " exec " + kAtMost + "$L " + kTiny + node(1) + " run.name=apart");
  });
  ASSERT_TRUE(first.reaches(50));
  ::kill(first.rank(3), SIGSTOP);
  const Outcome outcome = first.end(), other = second.get();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(other.code, 0) << other.output;
  // Where it is stopped is chance: outside a call, or inside one that the others have entered too.
  for (const char* part : {"rank 3 (", "stopped (SIGSTOP)", " waiting there for "})
    EXPECT_NE(first.event("hang").find(part), std::string::npos) << first.event("hang");
  EXPECT_EQ(first.event("hang").find("rank 2 ("), std::string::npos) << first.event("hang");
  EXPECT_NE(other.output.find("the run hangs: rank 3 ("), std::string::npos) << "every node says it";
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 1500));
}

// A node is lost for good and another takes its place: its ranks' shares come from the launcher that kept
// them.
TEST(Elastic, ALostNodesSharesAreKeptByAnother) {
  const base::TemporaryFolder folder;
  const std::string before = "export LOCKSTEP_SECRET=correct-horse-battery-staple-correct;";
  const auto node = [&, port = launch::free_port()](int number) {
    return fmt::format(
        "run.steps=1500 --json --nnodes 2 --nproc 2 --node-rank {} --rdzv-endpoint 127.0.0.1:{} "
        "--rdzv-conf join_timeout=120,node_timeout=3 parallel.zero=3 checkpoint.replicas=1 "
        "checkpoint.snapshot_every=5",
        number, port);
  };
  Training first(folder.path(), "kept", node(0), before);
  std::future<Outcome> second = std::async(std::launch::async, [&] {
    return run_shell(folder.path(),
                     before + " exec $L " + kTiny + node(1) + " run.name=kept >second.txt 2>&1");
  });
  ASSERT_TRUE(first.reaches(100));
  EXPECT_EQ(run_shell(folder.path(), "kill -9 $(pgrep -f '[l]ockstep train.*--node-rank 1.*kept' -o)").code,
            0);
  second.get();
  EXPECT_TRUE(first.until([&] { return !first.event("restart").empty(); }));
  std::future<Outcome> third = std::async(std::launch::async, [&] {
    return run_shell(folder.path(), before + " exec " + kAtMost + "$L " + kTiny + node(1) + " run.name=kept");
  });
  const Outcome outcome = first.end(), replaced = third.get();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(replaced.code, 0) << replaced.output;
  EXPECT_NE(replaced.output.find("fetched snapshots of 2 ranks"), std::string::npos) << replaced.output;
  ASSERT_EQ(first.starts().size(), 2u) << outcome.output;
  EXPECT_GT(first.starts()[1], 0) << "nothing was saved on disk, and nothing came from memory";
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 1500));
}

// Two launchers on this machine as nodes: one is lost, the run goes on with the other, and takes a new one
// in.
TEST(Elastic, FewerAndMoreNodesWithTheSameBits) {
  const base::TemporaryFolder folder;
  const std::string before = "export LOCKSTEP_SECRET=correct-horse-battery-staple-correct;";
  const auto node = [&, port = launch::free_port()](int number) {
    return fmt::format(
        "run.steps=4000 --json --nnodes 1:2 --nproc 2 --node-rank {} --rdzv-endpoint 127.0.0.1:{} "
        "--rdzv-conf join_timeout=120,node_timeout=3,last_call_timeout=1",
        number, port);
  };
  Training first(folder.path(), "elastic", node(0), before);
  std::future<Outcome> second = std::async(std::launch::async, [&] {
    return run_shell(folder.path(),
                     before + " exec $L " + kTiny + node(1) + " run.name=elastic >second.txt 2>&1");
  });
  ASSERT_TRUE(first.reaches(60));
  EXPECT_EQ(
      run_shell(folder.path(), "kill -9 $(pgrep -f '[l]ockstep train.*--node-rank 1.*elastic' -o)").code, 0);
  second.get();
  ASSERT_TRUE(first.until([&] { return first.starts().size() >= 2; }))
      << "the run did not go on with one node";
  const int64_t there = first.starts()[1];
  EXPECT_GT(there, 0) << "copies in memory suit any number of ranks";
  ASSERT_TRUE(first.reaches(there + 20));
  std::future<Outcome> third = std::async(std::launch::async, [&] {
    return run_shell(folder.path(),
                     before + " exec " + kAtMost + "$L " + kTiny + node(1) + " run.name=elastic");
  });
  const Outcome outcome = first.end(), joined = third.get();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(joined.code, 0) << joined.output;
  EXPECT_EQ(first.starts().size(), 3u) << outcome.output;
  EXPECT_NE(outcome.output.find("a node joined"), std::string::npos) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 4000));
}

}  // namespace
}  // namespace lockstep::cli

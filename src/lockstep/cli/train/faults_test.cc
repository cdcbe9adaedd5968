// `lockstep train` under faults, as a user sees them: what it says, how it ends, and the bits.
#include <gtest/gtest.h>

#include "lockstep/cli/train/background_training.h"
#include "lockstep/device/device.h"

namespace lockstep::cli {
namespace {

TEST(Faults, ASecondStartIsRefusedAndTouchesNothing) {
  const struct {
    const char *first, *second;
  } rows[] = {{"--nproc 2", "--nproc 2"},
              {"--nproc 2", ""},
              {"", "--nproc 2"},
              {"", "--resume never"},
              {"--nproc 2 --max-restarts 0", "--nproc 3 --resume never"}};
  for (const auto& [first, second] : rows) {
    SCOPED_TRACE(std::string(first) + " | " + second);
    const base::TemporaryFolder folder;
    const std::string run = folder.path() + "/runs/shared";
    Training training(folder.path(), "shared", std::string("run.steps=1000000 ") + first);
    ASSERT_TRUE(training.reaches(3));
    const std::string before = files_of(run);
    const Outcome refused =
        run_shell(folder.path(), kAtMost + "$L " + kTiny + "run.steps=1000000 run.name=shared " + second);
    EXPECT_EQ(refused.code, 2) << refused.output;
    EXPECT_NE(refused.output.find("[LS0804]"), std::string::npos) << refused.output;
    EXPECT_EQ(files_of(run), before);
    EXPECT_EQ(training.event("rank_failed"), "");
    EXPECT_EQ(training.starts().size(), 1u);
    const int64_t step = training.step();
    EXPECT_TRUE(training.reaches(step + 3));
    training.stop(SIGTERM);
    EXPECT_EQ(training.end().code, 75);
  }
}

TEST(Faults, AFrozenRankIsNamedAndTheRunGoesOn) {
  const base::TemporaryFolder folder;
  Training training(folder.path(), "frozen", "run.steps=800 --nproc 3 run.hang_timeout=2 --json");
  ASSERT_TRUE(training.reaches(20));
  ::kill(training.rank(1), SIGSTOP);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 800));
  const std::string why = training.event("hang");
  // The signal may find it inside a collective as well as before one.
  std::vector<std::string> parts = {"rank 1 (", ", seq ", ", group ", " waiting there for "};
  if (why.find(" inside ") != std::string::npos) {
    parts.push_back(") stopped (SIGSTOP) inside ");
  } else {
    parts.insert(parts.end(),
                 {") never entered ", "; ranks 0 2 have been waiting", "its process is stopped (SIGSTOP)"});
  }
  for (const std::string& part : parts) EXPECT_NE(why.find(part), std::string::npos) << part << "\n" << why;
  EXPECT_NE(outcome.output.find("lockstep: the run hangs: rank 1 ("), std::string::npos) << outcome.output;
  ASSERT_EQ(training.starts().size(), 2u);
  EXPECT_GT(training.starts()[1], 0) << "it began again from nothing";
}

// Where the choice of a short timeout is the user's, the collective's own sentence comes first.
TEST(Faults, ATimeoutThatWasAskedForCounts) {
  const base::TemporaryFolder folder;
  Training training(folder.path(), "timeout",
                    "run.steps=100000 --nproc 2 parallel.timeout=2 run.hang_timeout=600 --max-restarts 0");
  ASSERT_TRUE(training.reaches(20));
  ::kill(training.rank(1), SIGSTOP);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  for (const char* part : {"(call ", " of group ", "rank 1 ", "[LS0520]"}) {
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
  }
  EXPECT_EQ(training.event("hang"), "");
}

// The same where nothing on the host can end the wait. NCCL's ranks share the GPU.
TEST(Faults, ATimeoutOnAGpuEndsTheRank) {
  if (device::cuda_availability().devices == 0) GTEST_SKIP() << device::cuda_availability().why_not;
  const base::TemporaryFolder folder;
  Training training(folder.path(), "timeout",
                    "run.device=cuda:0 run.steps=100000 --nproc 2 parallel.timeout=6 run.hang_timeout=600 "
                    "--max-restarts 0");
  ASSERT_TRUE(training.reaches(20));
  ::kill(training.rank(1), SIGSTOP);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("did not finish within 6 s: rank 1 has not reached it"), std::string::npos)
      << outcome.output;
}

// It is named, and what the launcher's memory holds is saved all the same.
TEST(Faults, ARankThatFailsWhenToldToStopIsNamed) {
  const base::TemporaryFolder folder;
  Training training(folder.path(), "stopping", "run.steps=100000 --nproc 2");
  ASSERT_TRUE(training.reaches(20));
  const pid_t rank = training.rank(1);
  ::kill(rank, SIGSTOP);
  training.signal(SIGTERM);
  ::kill(rank, SIGSEGV);
  ::kill(rank, SIGCONT);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 75) << outcome.output;
  EXPECT_NE(outcome.output.find("killed by SIGSEGV (11)"), std::string::npos) << outcome.output;
  EXPECT_FALSE(training.event("checkpoint_saved").empty()) << outcome.output;
}

TEST(Faults, ARankThatIsStoppedWhileItStartsIsNamed) {
  const base::TemporaryFolder folder;
  // On a busy machine it may have started by then: more steps than it can do, and then the hang says the
  // same.
  Training training(folder.path(), "start", "run.steps=20000 run.hang_timeout=2 --nproc 3 --max-restarts 0");
  // A process that is just being made may be gone again: the one that counts stands still.
  ASSERT_TRUE(training.until([&] {
    const std::vector<pid_t> ranks = training.ranks();
    if (ranks.size() != 3 || !Training::is_rank(ranks.back())) return false;
    ::kill(ranks.back(), SIGSTOP);
    return Training::is_stopped(ranks.back());
  }));
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("stopped (SIGSTOP)"), std::string::npos) << outcome.output;
}

// A small file system of its own that can be made to stand still; needs root.
class StandingDisk {
 public:
  explicit StandingDisk(const std::string& folder) : folder_(folder) {
    there_ = run_shell(folder,
                       "truncate -s 200M disk.img && mkfs.ext4 -q disk.img && mkdir mnt && "
                       "mount -o loop disk.img mnt && fsfreeze -f mnt && fsfreeze -u mnt")
                 .code == 0;
  }
  ~StandingDisk() { run_shell(folder_, "fsfreeze -u mnt; umount mnt || umount -l mnt"); }
  bool there() const { return there_; }
  std::string path() const { return folder_ + "/mnt"; }
  void freeze(bool now) const { run_shell(folder_, now ? "fsfreeze -f mnt" : "fsfreeze -u mnt"); }

 private:
  std::string folder_;
  bool there_ = false;
};

// The disk stands still for longer than ranks are waited for, and they cannot even be killed: it is named,
// and when it comes back the run goes on, to the same bits.
TEST(Faults, ADiskThatStandsStillIsNamedAndTheRunGoesOn) {
  const base::TemporaryFolder folder;
  const StandingDisk disk(folder.path());
  if (!disk.there()) GTEST_SKIP() << "no file system can be mounted and frozen here";
  Training training(disk.path(), "still", "run.steps=400 run.hang_timeout=2 --grace 1 --nproc 2 --json");
  ASSERT_TRUE(training.reaches(20));
  disk.freeze(true);
  std::this_thread::sleep_for(std::chrono::seconds(12));  // longer than the launcher waits for ranks to end
  disk.freeze(false);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("a disk or file server"), std::string::npos) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 400));
}

// A launcher that is told to end does, while the disk still stands, and says what is lost.
TEST(Faults, SigtermWhileTheDiskStandsStillEndsTheLauncher) {
  const base::TemporaryFolder folder;
  const StandingDisk disk(folder.path());
  if (!disk.there()) GTEST_SKIP() << "no file system can be mounted and frozen here";
  Training training(disk.path(), "told", "run.steps=1000000 run.hang_timeout=2 --grace 1 --nproc 2");
  ASSERT_TRUE(training.reaches(20));
  disk.freeze(true);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  training.signal(SIGTERM);
  const pid_t launcher = training.pid();
  for (int k = 0; k < 600 && ::kill(launcher, 0) == 0; ++k)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_NE(::kill(launcher, 0), 0) << "it lives as long as the disk does not respond";
  disk.freeze(false);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 75) << outcome.output;
  for (const char* part : {"is in no checkpoint and could not be written: ", " has not responded for ",
                           "; once it responds, the same command resumes from its newest checkpoint"})
    EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
}

// Only checkpoints are on the disk that stands still: their writers wait for it in threads of their own, and
// training, when the next save is due, waits for them. That is said long before a save counts as hung, and
// nobody is killed for it.
TEST(Faults, ADiskOfCheckpointsThatStandsStillIsNamed) {
  const base::TemporaryFolder folder;
  const StandingDisk disk(folder.path());
  if (!disk.there()) GTEST_SKIP() << "no file system can be mounted and frozen here";
  const std::string run = folder.path() + "/runs/waits";
  std::filesystem::create_directories(run);
  std::filesystem::create_directory(disk.path() + "/checkpoints");
  std::filesystem::create_directory_symlink(disk.path() + "/checkpoints", run + "/checkpoints");
  Training training(folder.path(), "waits",
                    "run.steps=600 checkpoint.every=50 run.hang_timeout=2 --nproc 2 --json");
  ASSERT_TRUE(training.until([&] { return !training.event("checkpoint_saved").empty(); }));
  disk.freeze(true);
  const bool said = training.until([&] { return !training.event("slow").empty(); });
  disk.freeze(false);
  const Outcome outcome = training.end();
  EXPECT_TRUE(said) << outcome.output;
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_NE(training.event("slow").find("a thread of it has been blocked in the kernel (state D)"),
            std::string::npos)
      << training.event("slow");
  EXPECT_EQ(training.starts(), (std::vector<int64_t>{0})) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 600));
}

// Ranks cannot save: the launcher writes what its memory holds, and the next one goes on from there, to the
// same bits.
TEST(Faults, WhatRanksCannotSaveTheLauncherKeeps) {
  const base::TemporaryFolder folder;
  const std::string words = "run.steps=400 checkpoint.snapshot_every=1 --nproc 2 --json";
  const std::string in_the_way = folder.path() + "/runs/kept/checkpoints";
  {
    Training training(folder.path(), "kept", words + " --max-restarts 0");
    ASSERT_TRUE(training.reaches(20));
    std::ofstream(in_the_way) << "no folder";
    ::kill(training.rank(1), SIGKILL);
    const Outcome outcome = training.end();
    EXPECT_EQ(outcome.code, 1) << outcome.output;
    EXPECT_NE(outcome.output.find("was written to runs/kept/snapshots"), std::string::npos) << outcome.output;
  }
  std::filesystem::remove(in_the_way);
  const Outcome outcome = run_shell(folder.path(), "$L " + kTiny + words + " run.name=kept");
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find("resuming from step 0"), std::string::npos);
  EXPECT_NE(outcome.output.find("resuming from step"), std::string::npos) << outcome.output;
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 400));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/runs/kept/snapshots")) << "a checkpoint holds more";
}

TEST(Faults, WhatWouldFailAgainIsNotTried) {
  const base::TemporaryFolder folder;
  const Outcome outcome = run_shell(
      folder.path(),
      "$L " + kTiny + "run.steps=50 optim.lr=1000 optim.clip=0 optim.warmup=0 model.init_std=10 --nproc 2");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("[LS0601]"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("restarting all ranks"), std::string::npos) << outcome.output;
}

TEST(Faults, StartingOverDoesNotFallBackToWhatWasThereBefore) {
  const base::TemporaryFolder folder;
  ASSERT_EQ(run_shell(folder.path(), "$L " + kTiny + "run.steps=40 run.name=over").code, 0);
  Training training(folder.path(), "over",
                    "run.steps=3000 --nproc 2 --resume never checkpoint.snapshot_every=0 --json");
  ASSERT_TRUE(training.reaches(45));  // lines of the new run only: the old one had 40
  ::kill(training.rank(0), SIGKILL);
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_EQ(training.starts(), (std::vector<int64_t>{0, 0})) << "the second time it may not begin at step 40";
  EXPECT_EQ(hash_of(outcome), undisturbed(folder.path(), 3000));
}

}  // namespace
}  // namespace lockstep::cli

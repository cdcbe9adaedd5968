// A rank that the kernel ends because its control group has no memory left: it is said, tried once more, and
// the run ends if it happens again where it happened before.
#include <gtest/gtest.h>

#include "lockstep/cli/train/background_training.h"

namespace lockstep::cli {
namespace {

// A control group with a limit of memory, made for one test; needs root.
class SmallMemory {
 public:
  explicit SmallMemory(int64_t megabytes) {
    const std::string name = "lockstep-test-" + std::to_string(::getpid());
    for (const auto& [folder, limit] : {std::pair{"/sys/fs/cgroup/memory/", "memory.limit_in_bytes"},
                                        std::pair{"/sys/fs/cgroup/", "memory.max"}}) {
      if (!path_.empty()) break;
      if (run_shell("/", fmt::format("mkdir {0}{1} && echo {3}M >{0}{1}/{2} || {{ rmdir {0}{1}; false; }}",
                                     folder, name, limit, megabytes))
              .code == 0)
        path_ = folder + name;
    }
  }
  ~SmallMemory() {
    if (there())
      run_shell("/", fmt::format("for k in $(seq 100); do rmdir {} && break; sleep 0.1; done", path_));
  }
  bool there() const { return !path_.empty(); }
  std::string enter() const { return fmt::format("echo $$ >{}/cgroup.procs; ", path_); }

  // What is left of the memory is taken until the kernel ends the process: it is the first choice. The second
  // is who takes.
  void kill(pid_t process) const {
    run_shell("/",
              fmt::format("echo 1000 >/proc/{}/oom_score_adj; {}exec tail -n 1 /dev/zero", process, enter()));
  }

 private:
  std::string path_;
};

TEST(MemoryKill, IsNamedAndTriedOnceMore) {
  const base::TemporaryFolder folder;
  const SmallMemory memory(1024);
  if (!memory.there()) GTEST_SKIP() << "no control group of memory can be made here";
  Training training(folder.path(), "small",
                    "run.steps=60000 --nproc 2 checkpoint.snapshot_every=0 checkpoint.minutes=0",
                    memory.enter());
  ASSERT_TRUE(training.reaches(1000));
  const pid_t first = training.rank(1);
  memory.kill(first);
  // The next ones begin at step 0: far from where it happened.
  ASSERT_TRUE(training.until([&] { return training.starts().size() == 2 && training.rank(1) != first; }));
  memory.kill(training.rank(1));
  const Outcome outcome = training.end();
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  for (const char* part : {"SIGKILL (9) by the kernel, out of memory: the limit of its cgroup is 1 GiB",
                           "restarting all ranks", "not for the first time"}) {
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
  }
  EXPECT_EQ(training.starts(), (std::vector<int64_t>{0, 0}));
  const std::vector<json> events = training.lines("events.jsonl");
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const json& one) { return one.value("event", "") == "rank_failed"; }),
            2);
}

}  // namespace
}  // namespace lockstep::cli

// Ordinary PyTorch scripts under `lockstep launch`, unchanged. LOCKSTEP_TEST_PYTHON names a Python that has
// torch; without one this is skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

class LaunchPython : public testing::Test {
 protected:
  void SetUp() override {
    const char* python = std::getenv("LOCKSTEP_TEST_PYTHON");
    if (!python) GTEST_SKIP() << "LOCKSTEP_TEST_PYTHON names no interpreter";
    exported_ = fmt::format("export PYTHON_EXEC='{}'; ", python);
  }
  Outcome run(const std::string& line) { return run_shell(folder_.path(), exported_ + line); }

  base::TemporaryFolder folder_;
  std::string exported_;
};

// Its end is left out: without any launcher too, PyTorch's threads abort one process in forty there
// ("terminate called without an active exception", seen with 2.15).
constexpr const char* kDataParallel = R"(
import os, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.full((2, 4), float(dist.get_rank()))).sum().backward()
    optimizer.step()
total = sum(p.detach().sum().item() for p in model.parameters())
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total:.6f}", flush=True)
dist.barrier()
time.sleep(0.5)  # the other may still be reading
os._exit(0)
)";

TEST_F(LaunchPython, DataParallelOverGloo) {
  folder_.write("ddp.py", kDataParallel);
  const Outcome outcome = run("$L launch --nproc-per-node 2 ddp.py");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  // Python writes a line and its end apart, and both ranks write to one terminal.
  std::string sums[2];
  for (const int rank : {0, 1}) {
    const std::string begin = fmt::format("rank {} of 2: ", rank);
    const size_t at = outcome.output.find(begin);
    ASSERT_NE(at, std::string::npos) << outcome.output;
    const size_t number = at + begin.size();
    sums[rank] =
        outcome.output.substr(number, outcome.output.find_first_not_of("-.0123456789", number) - number);
  }
  EXPECT_NE(sums[0].find('.'), std::string::npos) << outcome.output;
  EXPECT_EQ(sums[0], sums[1]) << "both ranks hold the same weights";
}

constexpr const char* kCrash = R"(
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise RuntimeError("rank one is unhappy")
    dist.barrier()
main()
)";

TEST_F(LaunchPython, ACrashOnRankOneIsToldAsTheFirst) {
  folder_.write("crash.py", kCrash);
  const Outcome outcome =
      run("$L launch --nproc-per-node 2 --redirects 3 --log-dir logs --monitor-interval 1 crash.py");
  EXPECT_EQ(outcome.code, 1);
  std::vector<std::string> lines = base::split_lines(outcome.output);
  lines.resize(std::min<size_t>(lines.size(), 10));
  const std::string head = base::join(lines, "\n");
  EXPECT_TRUE(head.starts_with("lockstep: rank 1 on ")) << outcome.output;
  EXPECT_NE(head.find("rank one is unhappy"), std::string::npos) << outcome.output;
}

constexpr const char* kSpawner = R"(
import multiprocessing, os, subprocess, sys, time
def forever(mark):
    subprocess.Popen(["setsid", "sleep", mark])
    time.sleep(1000)
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    for k in range(2):
        multiprocessing.Process(target=forever, args=(sys.argv[1],)).start()
    time.sleep(1000)
)";

TEST_F(LaunchPython, NothingIsLeftOfAScriptThatSpawns) {
  folder_.write("spawner.py", kSpawner);
  const std::string mark = fmt::format("8888{}", ::getpid());
  const Outcome outcome = run(fmt::format(
      "sleeping() {{ pgrep -fx 'sleep {0}' | wc -l; }}; scripts() {{ pgrep -f '[-]u spawner.py {0}' | wc -l; "
      "}}; "
      "$L launch --grace 0.5 --nproc-per-node 2 spawner.py {0} >/dev/null 2>&1 & "
      "for k in $(seq 300); do test $(sleeping) = 4 && break; sleep 0.1; done; sleeping; kill -9 $!; "
      "for k in $(seq 100); do test $(sleeping)$(scripts) = 00 && break; sleep 0.1; done; scripts; sleeping",
      mark));
  EXPECT_EQ(outcome.output, "4\n0\n0\n");
}

}  // namespace
}  // namespace lockstep::cli

// Machines that give little and inputs that are absurd: a sentence within seconds, never "a bug" or a signal.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

const std::string kTiny =
    "$L train model.layers=1 model.hidden=16 model.heads=2 data.seq_len=8 batch.global=4 batch.slices=2 "
    "batch.strands=2 run.device=cpu log.eval_batches=1 ";

// A file of one tensor of a million sizes, all of them 1.
std::string with_a_million_sizes() {
  std::string header = R"({"a":{"dtype":"F32","data_offsets":[0,4],"shape":[1)";
  for (int k = 1; k < 1'000'000; ++k) header += ",1";
  header += "]}}";
  std::string file;
  for (int k = 0; k < 8; ++k) file += static_cast<char>(header.size() >> (8 * k) & 255);
  return file + header + "0000";
}

TEST(Limits, AbsurdInputsAreAnsweredAtOnce) {
  base::TemporaryFolder folder;
  folder.write("model/model.safetensors", with_a_million_sizes());
  folder.write("long.jsonl", "{\"text\": \"" + std::string(70 << 20, 'x') + "\"}\n");
  expect_rows(folder.path(),
              {{kTiny + "model.layers=65536", 2, "4096"},
               {kTiny + "data.kind=jsonl data.path=long.jsonl", 3, "LS0214"},
               {"truncate -s 1T large.txt && " + kTiny + "data.kind=text data.path=large.txt run.steps=1", 0,
                "done: 1 of 1"},
               {"$L inspect model | wc -c | xargs -I N test N -lt 2000", 0, ""},
               {"$L inspect model", 0, "1000000 sizes"},
               {kTiny + "model.from=model", 3, "LS03"}});
}

// The steps before the first loss that is no number have been saved, and their weights give none either.
TEST(Limits, AModelWithoutALossIsNoSuccess) {
  base::TemporaryFolder folder;
  expect_rows(folder.path(), {{kTiny + "run.steps=30 run.name=nan optim.lr=1000 optim.weight_decay=10 "
                                       "optim.schedule=constant optim.warmup=0",
                               1, "LS0601"},
                              {"$L eval runs/nan", 1, "LS0604"},
                              {"$L eval runs/nan --json", 1, "\"perplexity\""}});
}

TEST(Limits, FoldersThatAreNotThere) {
  base::TemporaryFolder folder;
  const std::string gone = "mkdir -p gone && cd gone && rmdir ../gone && ";
  const std::string there = " log.folder=" + folder.path() + "/runs";
  for (const std::string words :
       {"$L train run.steps=1", "$L train run.steps=1 --nproc 2", "$L doctor", "$L explain"}) {
    const Outcome outcome = run_shell(folder.path(), gone + words);
    for (const char* never : {"bug", "MKL"})
      EXPECT_EQ(outcome.output.find(never), std::string::npos) << words << "\n" << outcome.output;
  }
  // Also where the run's own folder is.
  for (const std::string words : {"run.steps=1", "run.steps=1 --nproc 2"}) {
    const Outcome outcome = run_shell(folder.path(), gone + kTiny + words + there);
    EXPECT_EQ(outcome.code, 1) << outcome.output;
    EXPECT_NE(outcome.output.find("the working directory no longer exists"), std::string::npos)
        << outcome.output;
    EXPECT_EQ(outcome.output.find("restarting"), std::string::npos) << outcome.output;
  }
  folder.write("without_proc", "mount -t tmpfs none /proc && exec \"$@\"\n");
  const std::string without = "unshare -m sh without_proc ";
  if (run_shell(folder.path(), without + "true").code != 0) GTEST_SKIP() << "only root may take /proc away";
  for (const std::string words : {"--nproc 2", ""}) {
    const Outcome outcome =
        run_shell(folder.path(), "L=\"" + without + "$L\"; " + kTiny + "run.steps=1 " + words);
    EXPECT_EQ(outcome.output.find("bug"), std::string::npos) << words << "\n" << outcome.output;
    EXPECT_TRUE(outcome.code == 0 || outcome.output.find("/proc") != std::string::npos) << outcome.output;
  }
}

TEST(Limits, FewOpenFiles) {
  base::TemporaryFolder folder;
  for (const int most : {12, 16, 20, 28, 60}) {
    const Outcome outcome =
        run_shell(folder.path(), fmt::format("ulimit -n {}; timeout 50 {} run.steps=2 run.name=f{} "
                                             "--nproc 2",
                                             most, kTiny, most));
    EXPECT_TRUE(outcome.code == 0 || outcome.output.find("ulimit -n") != std::string::npos)
        << most << " " << outcome.code << "\n"
        << outcome.output;
  }
}

// Few processes: fewer threads, or a sentence.
TEST(Limits, FewProcesses) {
  base::TemporaryFolder folder;
  const std::string group = "/sys/fs/cgroup/pids/lockstep-limits-$$";
  if (run_shell(folder.path(), "mkdir " + group + " && rmdir " + group).code != 0)
    GTEST_SKIP() << "no control group of processes can be made here";
  // A lone rank begins to fit where two do not yet.
  const std::map<std::string, std::vector<int>> rows = {{"", {2, 4, 6, 10}},
                                                        {"--nproc 2", {2, 8, 10, 12, 14, 16, 20}}};
  for (const auto& [words, limits] : rows) {
    for (const int most : limits) {
      const Outcome outcome = run_shell(
          folder.path(),
          fmt::format(
              "mkdir {0} && (echo {1} >{0}/pids.max; exec sh -c 'echo $$ >{0}/cgroup.procs; exec timeout "
              "100 {2} run.steps=2 run.threads=2 run.name=p{1} {3}'); code=$?; sleep 0.2; rmdir {0}; "
              "exit $code",
              group, most, kTiny, words));
      EXPECT_EQ(outcome.output.find("terminate called"), std::string::npos) << most << words << "\n"
                                                                            << outcome.output;
      EXPECT_EQ(outcome.output.find("bug"), std::string::npos) << most << words << "\n" << outcome.output;
      EXPECT_NE(outcome.code, 124) << most << words << "\n" << outcome.output;
    }
  }
}

}  // namespace
}  // namespace lockstep::cli

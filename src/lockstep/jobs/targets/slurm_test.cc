// What Slurm is asked for, and what its answers mean.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/jobs/testing.h"

namespace lockstep::jobs {
namespace {

TEST(Slurm, HeaderSaysWhatWasAsked) {
  Job job = job_for("slurm");
  job.place.partition = "gpu";
  job.place.options = {"--exclusive"};
  job.after = "17";
  const std::string text = all_text(find_target("slurm").plan(job));
  for (const char* line :
       {"#SBATCH --nodes=2\n", "#SBATCH --gpus-per-node=nvidia-tesla-a100:4\n", "#SBATCH --time=60\n",
        "#SBATCH --signal=B:TERM@120\n", "#SBATCH --requeue\n", "#SBATCH --partition=gpu\n",
        "#SBATCH --exclusive\n", "#SBATCH --dependency=afterok:17\n", "#SBATCH --chdir=/scratch/me\n",
        "apptainer exec --nv", "-lt 20 ]]", "first=$(scontrol --oneliner show node \"$SLURMD_NODENAME\"",
        "${first:+--rdzv-endpoint \"$first:auto\" --rdzv-id \"$SLURM_JOB_ID\"}"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  job.place.fewest_nodes = 1;
  EXPECT_NE(all_text(find_target("slurm").plan(job)).find("#SBATCH --nodes=1-2\n"), std::string::npos);
  job.place.fewest_nodes = 3;
  EXPECT_THROW(find_target("slurm").plan(job), base::ConfigError);
  job.place.fewest_nodes = 0;
  job.place.container = "pyxis";
  EXPECT_NE(all_text(find_target("slurm").plan(job)).find("--container-image=registry/lockstep:1"),
            std::string::npos);
}

TEST(Slurm, ComponentsOfAHeterogeneousJob) {
  Job job = job_for("slurm");
  job.place.image.clear();
  job.place.options = {"--exclusive"};
  job.place.components = {"nodes=3 gpus=2 partition=old"};
  const std::string text = all_text(find_target("slurm").plan(job));
  const size_t border = text.find("#SBATCH hetjob\n");
  ASSERT_NE(border, std::string::npos) << text;
  struct Row {
    const char* words;
    int first, second;  // how often before and after the border
  };
  for (const Row& row :
       {Row{"#SBATCH --nodes=2\n", 1, 0}, Row{"#SBATCH --nodes=3\n", 0, 1},
        Row{"#SBATCH --gpus-per-node=nvidia-tesla-a100:4\n", 1, 0}, Row{"#SBATCH --gpus-per-node=2\n", 0, 1},
        Row{"#SBATCH --time=60\n", 1, 1}, Row{"#SBATCH --partition=old\n", 0, 1},
        Row{"#SBATCH --exclusive\n", 1, 1}, Row{"#SBATCH --job-name=first-abc123\n", 1, 0},
        Row{"--het-group=0 ", 0, 1}, Row{"--nproc 4 --max-restarts 3", 0, 1},
        Row{" : --ntasks-per-node=1", 0, 1}, Row{"--nproc 2 --max-restarts 3", 0, 1}}) {
    const auto count = [&](const std::string& part) {
      int found = 0;
      for (size_t at = part.find(row.words); at != std::string::npos; at = part.find(row.words, at + 1))
        ++found;
      return found;
    };
    EXPECT_EQ(count(text.substr(0, border)), row.first) << row.words << text;
    EXPECT_EQ(count(text.substr(border)), row.second) << row.words << text;
  }
  for (const char* wrong : {"nodes", "time=3h", "nodes=0", "gpus=many"}) {
    job.place.components = {wrong};
    EXPECT_THROW(find_target("slurm").plan(job), base::ConfigError) << wrong;
  }
  job.place.components = {"nodes=1"};
  job.sweep = {.key = "optim.lr", .values = {"1e-3", "1e-4"}};
  EXPECT_THROW(find_target("slurm").plan(job), base::ConfigError);
}

TEST(Slurm, StatesAndReasons) {
  struct Row {
    const char *squeue, *sacct;
    State state;
    const char* why;
  };
  const Row rows[] = {
      {"17|RUNNING|None|n[1-2]\n", "", State::running, ""},
      {"17|PENDING|Resources|\n", "", State::queued, "waits until enough nodes are free"},
      {"17|PENDING|QOSMaxGRESPerUser|\n", "", State::queued, "quality of service"},
      {"17|COMPLETING|None|n1\n", "", State::ending, ""},
      {"", "COMPLETED|0:0|n1\n", State::done, ""},
      {"", "FAILED|2:0|n1\n", State::failed, ""},
      {"", "FAILED|75:0|n1\n", State::saved, ""},
      {"", "CANCELLED by 0|0:15|n1\n", State::stopped, ""},
      {"", "", State::unknown, ""},
      {"|||||\n\n", "", State::unknown, ""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.squeue) + row.sacct);
    FakeClient client([&](const Command& command) {
      return Answer{.output = command.words[0] == "squeue" ? row.squeue : row.sacct};
    });
    Submitted job;
    job.id = "first-abc123";
    job.state_folder = "/nowhere";
    const Target& target = find_target("slurm");
    const Status status = target.status(job, client);
    EXPECT_EQ(name_of(status.state), std::string(name_of(row.state)));
    const std::vector<std::string> why = target.why(job, status, client);
    EXPECT_TRUE(!*row.why || why.at(0).find(row.why) != std::string::npos);
  }
}

// The tasks of an array end one by one: the worst of them is the array's state, with accounts and without.
TEST(Slurm, AnArrayIsWhatItsWorstTaskIs) {
  struct Row {
    const char* sacct;
    std::vector<const char*> ended;  // what each task's script wrote; "": nothing
    State state;
    const char* reason;
  };
  const Row rows[] = {
      {"COMPLETED|0:0|n1|17_0\nCOMPLETED|0:0|n2|17_1\n", {}, State::done, ""},
      {"COMPLETED|0:0|n1|17_0\nFAILED|2:0|n2|17_1\n", {}, State::failed, "job 17_1: FAILED, exit code 2"},
      {"FAILED|75:0|n1|17_0\nCOMPLETED|0:0|n2|17_1\n", {}, State::saved, "job 17_0: preempted"},
      {"CANCELLED by 0|0:15|n1|17_0\nOUT_OF_MEMORY|0:125|n2|17_1\n", {}, State::failed, "OUT_OF_MEMORY"},
      {"COMPLETED|0:0|n1|17_0\nRUNNING|0:0|n2|17_1\n", {"0", "0"}, State::done, ""},
      {"", {"0", "0"}, State::done, ""},
      {"", {"0", "1"}, State::failed, "task 1: exit code 1"},
      {"", {"75", "0"}, State::saved, "task 0: preempted"},
      {"", {"0", ""}, State::unknown, "task 1: Slurm no longer knows it"},
      {"", {"", "3"}, State::failed, "task 1: exit code 3"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.sacct);
    const base::TemporaryFolder folder;
    Job job = job_for("slurm");
    job.sweep = {.key = "optim.lr", .values = {"1e-3", "1e-4"}};
    for (const File& file : find_target("slurm").plan(job).files) folder.write(file.name, file.text);
    for (size_t task = 0; task < row.ended.size(); ++task) {
      if (*row.ended[task]) folder.write("ended-" + std::to_string(task), row.ended[task]);
    }
    FakeClient client([&](const Command& command) {
      return Answer{.output = command.words[0] == "sacct" ? row.sacct : ""};
    });
    Submitted submitted;
    submitted.id = job.id, submitted.state_folder = folder.path();
    const Status status = find_target("slurm").status(submitted, client);
    EXPECT_EQ(name_of(status.state), std::string(name_of(row.state))) << status.reason;
    EXPECT_TRUE(status.reason.find(row.reason) != std::string::npos) << status.reason;
    EXPECT_TRUE(*row.reason || status.reason.empty()) << status.reason;
  }
}

}  // namespace
}  // namespace lockstep::jobs

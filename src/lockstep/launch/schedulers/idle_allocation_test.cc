#include "lockstep/launch/schedulers/idle_allocation.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(IdleAllocation, IsNamed) {
  struct Row {
    const char* name;
    Environment environment;
    const char* file;
    int ranks;
    const char* says;  // empty: nothing idles
  };
  const Environment pbs{{"PBS_JOBID", "17"}, {"PBS_NODEFILE", "/x"}, {"PBS_TASKNUM", "1"}};
  const Environment slurm{{"SLURM_JOB_ID", "5"}, {"SLURM_JOB_NUM_NODES", "4"}, {"SLURM_NTASKS", "8"}};
  for (const Row& row : std::initializer_list<Row>{
           {"a shell", {}, "", 1, ""},
           {"PBS, two nodes", pbs, "a\nb\n", 1, "PBS allocated 2 nodes to this job"},
           {"PBS, two nodes, a node's ranks", pbs, "a\na\nb\nb\n", 4, "with 4 ranks"},
           {"PBS, slots", pbs, "a\na\na\na\n", 1, "4 slots on this node"},
           {"PBS, slots taken", pbs, "a\na\na\na\n", 4, ""},
           {"PBS, one slot", pbs, "a\n", 1, ""},
           {"PBS without its file", pbs, nullptr, 1, ""},
           {"Slurm's batch script", slurm, "", 1, "srun lockstep"},
           {"Slurm, one task",
            {{"SLURM_JOB_ID", "5"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_NTASKS", "1"}},
            "",
            1,
            ""},
           {"Slurm, strange",
            {{"SLURM_JOB_ID", "5"}, {"SLURM_JOB_NUM_NODES", "-1"}, {"SLURM_NTASKS", "x"}},
            "",
            1,
            ""},
           {"Grid Engine",
            {{"JOB_ID", "5"}, {"PE_HOSTFILE", "/x"}},
            "a 4 all.q UNDEFINED\nb 4 all.q UNDEFINED\n",
            1,
            "Grid Engine allocated 2 nodes to this job"},
           {"LSF",
            {{"LSB_JOBID", "5"}, {"LSB_HOSTS", "a a b b"}},
            "",
            1,
            "LSF allocated 2 nodes to this job"},
       }) {
    const std::string said = idle_allocation(row.environment, row.ranks, [&](const std::string&) {
      return row.file == nullptr ? std::nullopt : std::optional<std::string>(row.file);
    });
    EXPECT_EQ(said.empty(), *row.says == '\0') << row.name << ": " << said;
    EXPECT_NE(said.find(row.says), std::string::npos) << row.name << ": " << said;
  }
}

}  // namespace
}  // namespace lockstep::launch

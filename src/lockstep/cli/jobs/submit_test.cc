// What `lockstep submit` refuses before it asks a place for anything.
#include <gtest/gtest.h>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

TEST(Submit, ALayoutThatTheRanksCannotHaveIsRefusedHere) {
  base::TemporaryFolder folder;
  const std::string submit =
      "XDG_STATE_HOME=$PWD/state XDG_CONFIG_HOME=$PWD/config $L submit model.layers=2 --to slurm --dry-run ";
  expect_rows(
      folder.path(),
      {{submit + "--nodes 3 --nproc 2 parallel.tensor=2 parallel.pipeline=2", 2,
        "tensor 2 x pipeline 2 needs 4 ranks or a multiple, but 6 started"},
       {submit + "--nodes 2 --nproc 2 parallel.tensor=2 parallel.pipeline=2", 0, "sbatch"},
       {submit + "--nodes 2 --gpus 4 parallel.data=64", 2, "[LS0152]"},
       {submit + "--nodes 3 --nproc 2 parallel.auto=true", 0, "sbatch"},
       {submit + "--nodes 2 --nproc 2 parallel.tensor=4 --set 'components=nodes=1 ranks=4'", 0, "sbatch"},
       {submit + "--nodes 2 --nproc 2 parallel.tensor=4 --set 'components=nodes=1 ranks=3'", 2, "[LS0157]"}});
}

}  // namespace
}  // namespace lockstep::cli

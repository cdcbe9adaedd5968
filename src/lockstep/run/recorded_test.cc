// What metrics.jsonl says of the steps before, whatever else it holds.
#include <gtest/gtest.h>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/run/folder/run_folder.h"

namespace lockstep::run {
namespace {

TEST(RecordedLosses, StandForTheStepsThatWereNotLogged) {
  const base::TemporaryFolder folder;
  folder.write("metrics.jsonl",
               "{\"step\":2,\"loss\":5.0}\n{\"step\":4,\"loss\":4.0}\n{\"step\":4,\"eval_loss\":9.0}\n"
               "{\"step\":null}\nnot json\n{\"step\":5,\"loss\":\"x\"}\n{\"step\":9,\"loss\":1.0}\n");
  EXPECT_EQ(recorded_losses(folder.path(), 6), (std::vector<double>{5, 5, 4, 4, 4, 4}));
  EXPECT_EQ(recorded_losses(folder.path(), 0), std::vector<double>{});
  EXPECT_EQ(recorded_losses(folder.path() + "/none", 6), std::vector<double>{});
}

}  // namespace
}  // namespace lockstep::run

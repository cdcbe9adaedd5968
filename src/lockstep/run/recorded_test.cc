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

// What the end of a run says counts, whether its last steps were logged or not; without it, lines do.
TEST(RecordedEnd, IsWhatTheRunSaidAtItsEnd) {
  const base::TemporaryFolder folder;
  folder.write("metrics.jsonl", "{\"step\":4,\"loss\":4.0}\n{\"step\":6,\"eval_loss\":9.0}\n");
  const std::string before = R"({"event":"finished","step":3,"loss":3,"last_loss":2,"why":""})"
                             "\n";
  const std::string told =
      R"({"event":"finished","step":6,"loss":5.5,"last_loss":5.25,"eval_loss":9.5,"why":""})"
      "\n";
  folder.write("events.jsonl", before);
  EXPECT_EQ(recorded_end(folder.path(), 6).last_loss, std::nullopt);
  EXPECT_EQ(recorded_end(folder.path(), 6).eval_loss, 9.0);
  EXPECT_EQ(recorded_end(folder.path(), 4).last_loss, 4.0);
  folder.write("events.jsonl", before + told + "{\"event\":\"start\",\"step\":6}\n");
  const RecordedEnd end = recorded_end(folder.path(), 6);
  EXPECT_EQ(end.loss, 5.5);
  EXPECT_EQ(end.last_loss, 5.25);
  EXPECT_EQ(end.eval_loss, 9.5);
  EXPECT_EQ(recorded_end(folder.path(), 3).last_loss, std::nullopt) << "its lines are of another end";
}

}  // namespace
}  // namespace lockstep::run

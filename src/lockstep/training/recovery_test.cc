#include "lockstep/training/recovery.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "lockstep/run/testing.h"

namespace lockstep::training {
namespace {

// Steps that are on the disk are not gone back behind, and those that are not are not given up.
TEST(Recovery, MemoryIsTakenWhereItIsNewerThanTheDisk) {
  run::Session session = run::tiny_session({"checkpoint.snapshot_every=1"});
  run::MemorySnapshots snapshots(session, ::memfd_create("test", MFD_CLOEXEC));
  snapshots.take(6, 1);
  const auto restored = [&](const std::vector<std::string>& checkpoints) {
    run::Decision decision;
    decision.checkpoints = checkpoints;
    return restore_newer(&snapshots, decision);
  };
  EXPECT_EQ(restored({"runs/a/checkpoints/step-00000005", "runs/a/checkpoints/step-00000004"}), 6);
  EXPECT_EQ(restored({"runs/a/checkpoints/step-00000006"}), std::nullopt);
  EXPECT_EQ(restored({"models/step-by-step"}), 6) << "no step of this run";
  EXPECT_EQ(restored({}), 6);
  EXPECT_EQ(restored({"runs/a/checkpoints/step-00000007"}), std::nullopt);
  EXPECT_EQ(restore_newer(nullptr, {}), std::nullopt);
}

}  // namespace
}  // namespace lockstep::training

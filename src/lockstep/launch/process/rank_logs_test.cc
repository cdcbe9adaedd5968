#include "lockstep/launch/process/rank_logs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lockstep/base/refusal.h"

namespace lockstep::launch {
namespace {

// /proc takes no folders, not even root's.
TEST(RankLogs, AFolderThatCannotBeMadeIsNamedWithItsRemedy) {
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("TMPDIR", "/proc", 1);
  const std::string said = base::refusal(803, [] { RankLogs(Options{}, ""); });
  before != nullptr ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
  EXPECT_NE(said.find("cannot create /proc/lockstep"), std::string::npos) << said;
  EXPECT_NE(said.find("set TMPDIR"), std::string::npos) << said;

  Options chosen;
  chosen.log_dir = "/proc";
  EXPECT_EQ(base::refusal(803, [&] { RankLogs(chosen, ""); }).find("TMPDIR"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch

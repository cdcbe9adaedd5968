// lockstep top of programs that are not ours, under lockstep launch: who runs, what they do, what they
// printed last.
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

// Rank 0 computes, rank 1 sleeps, rank 2 is stopped, rank 3 has ended; all have said so before.
constexpr const char* kScript = R"(#!/bin/sh
echo "hello of rank $RANK"
touch "here.$RANK"
case $RANK in
  0) while :; do :; done ;;
  1) sleep 300 ;;
  2) kill -STOP $$ ;;
  3) exit 0 ;;
esac
)";

nlohmann::json ranks_of(const std::string& output) {
  const auto all = nlohmann::json::parse(output, nullptr, false);
  if (!all.is_object() || all.value("launches", nlohmann::json::array()).size() != 1) return {};
  return all["launches"][0]["ranks"];
}

TEST(TopLaunch, RanksAreSeenFromOutside) {
  const base::TemporaryFolder folder;
  const std::string& path = folder.path();
  folder.write("script.sh", kScript);
  std::filesystem::create_directories(path + "/runtime");
  ::chmod((path + "/script.sh").c_str(), 0755);
  ::chmod((path + "/runtime").c_str(), 0700);
  const std::string home = "export XDG_RUNTIME_DIR=" + path + "/runtime; ";
  expect_rows(path, {{home + "$L top --once", 2, "there is no run"},
                     {home + "$L top 999999 --once", 2, "no run folder"}});
  // Looked at until it is as the script says: how soon is the machine's affair.
  const std::string seen =
      R"([ -e here.3 ] && $L top --json >now 2>/dev/null && grep -q '"doing":"ended' now && grep -q '"doing":"stopped' now && )"
      R"(grep -q '"doing":"computes"' now && [ $(grep -o 'hello of rank [0-3]' now | wc -l) = 4 ])";
  const Outcome looked = run_shell(
      path,
      home + "$L launch --nproc 4 --grace 1 ./script.sh >said 2>&1 & launcher=$!; for i in $(seq 300); do " +
          seen +
          " && break; sleep 0.1; done; cat now; $L top $launcher --once >table 2>&1; "
          "FAKE_GPU=H100 FAKE_GPU_NOW='50 1 2' LD_LIBRARY_PATH=" LOCKSTEP_FAKE_GPU
          " FAKE_GPU_PROCESS=\"$(sed 's/.*\"pid\":\\([0-9]*\\),\"rank\":0.*/\\1/' now) 1073741824\" $L top "
          "--json >with_gpu; "
          "kill -9 $launcher; wait 2>/dev/null; true");
  const nlohmann::json ranks = ranks_of(looked.output);
  ASSERT_EQ(ranks.size(), 4U) << looked.output;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks[rank]["rank"], rank);
    EXPECT_EQ(ranks[rank]["last_line"], "hello of rank " + std::to_string(rank));
    EXPECT_EQ(ranks[rank]["alive"], rank != 3);
  }
  EXPECT_EQ(ranks[0]["doing"], "computes");
  EXPECT_GT(ranks[0]["memory_bytes"], 0);
  EXPECT_EQ(ranks[1]["doing"].get<std::string>().substr(0, 5), "waits");
  EXPECT_EQ(ranks[2]["doing"], "stopped (SIGSTOP or a debugger)");
  EXPECT_EQ(ranks[3]["doing"].get<std::string>().substr(0, 5), "ended");
  const std::string table = run_shell(path, "cat table").output;
  EXPECT_NE(table.find("printed last"), std::string::npos) << table;
  EXPECT_NE(table.find("./script.sh  4 ranks here"), std::string::npos) << table;
  // A launcher that was killed is not shown, and what it left goes.
  expect_rows(path, {{home + "$L top --once", 2, "there is no run"},
                     {"ls runtime/lockstep | grep -c launch- || true", 0, "0"}});
}

}  // namespace
}  // namespace lockstep::cli

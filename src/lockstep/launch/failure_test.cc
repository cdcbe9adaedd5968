#include "lockstep/launch/failure.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::launch {
namespace {

Failure failed(int rank, int64_t micros, std::string ending = "exit code 1") {
  Failure failure;
  failure.rank = rank, failure.local_rank = rank, failure.unix_micros = micros, failure.host = "n1";
  failure.ending = std::move(ending);
  return failure;
}

TEST(Failure, ErrorFileGivesTimeAndMessage) {
  base::TemporaryFolder folder;
  struct Row {
    const char* text;
    int64_t micros;
    const char* message;
  };
  const Row rows[] = {
      {R"({"message": {"message": "RuntimeError: boom\nat line 3", "extraInfo": {"timestamp": "1700000000"}}})",
       1700000000000000, "RuntimeError: boom"},
      {R"({"message": {"message": "x", "extraInfo": {"timestamp": 1700000001}}})", 1700000001000000, "x"},
      {R"({"message": "in short"})", 5, "in short"},
      {R"({"message": {"extraInfo": 7}})", 5, ""},
      {R"({"message": {"message": "x", "extraInfo": {"timestamp": "soon"}}})", 5, "x"},
      {R"({"message": {"message": "x", "extraInfo": {"timestamp": "99999999999999999999"}}})", 5, "x"},
      {R"({"message": )", 5, ""},
      {"[1]", 5, ""},
      {"", 5, ""},
  };
  for (const Row& row : rows) {
    Failure failure = failed(0, 5);
    take_error_file(folder.write("error.json", row.text), failure);
    EXPECT_EQ(failure.unix_micros, row.micros) << row.text;
    EXPECT_EQ(failure.message, row.message) << row.text;
  }
  Failure failure = failed(0, 5);
  take_error_file(folder.path() + "/none", failure);
  EXPECT_EQ(failure.unix_micros, 5);
}

TEST(Failure, TheFirstIsNamedInTenLines) {
  std::vector<Failure> failures;
  for (int rank = 0; rank < 64; ++rank)
    failures.push_back(failed(rank, 1000 - rank, "killed by SIGABRT (6)"));
  failures[63].last_lines = {"1", "2", "3", "4", "5", "6", "the cause"};
  failures[63].message = "RuntimeError: boom", failures[63].log = "logs/63/stderr.log";
  sort_by_time(failures);
  const std::string report = failure_report(failures, 2);
  EXPECT_LE(std::count(report.begin(), report.end(), '\n'), 10) << report;
  EXPECT_TRUE(report.starts_with("lockstep: rank 63 on n1 failed first: killed by SIGABRT (6)\n")) << report;
  for (const char* part :
       {"  | the cause\n", "RuntimeError: boom", "logs/63/stderr.log", "and 59 more", "2 restarts left"}) {
    EXPECT_NE(report.find(part), std::string::npos) << part << "\n" << report;
  }
}

// Four others are named; what is left is counted.
TEST(Failure, OthersAreNamedOrCounted) {
  for (const int count : {1, 2, 5, 6, 7}) {
    std::vector<Failure> failures;
    for (int rank = 0; rank < count; ++rank) failures.push_back(failed(rank, rank));
    const std::string report = failure_report(failures, -1);
    const auto says = [&](const std::string& part) { return report.find(part) != std::string::npos; };
    EXPECT_EQ(says("after it: rank 1 (exit code 1)"), count > 1) << report;
    EXPECT_EQ(says("rank 4 (exit code 1)"), count > 4) << report;
    EXPECT_FALSE(says("rank 5")) << report;
    EXPECT_EQ(says("more"), count > 5) << report;
    if (count > 5) EXPECT_TRUE(says(", and " + std::to_string(count - 5) + " more\n")) << report;
  }
}

TEST(Failure, TravelsAsJson) {
  Failure failure = failed(3, 77);
  failure.last_lines = {"a", "b"}, failure.code = 139, failure.shown = true;
  const Failure back = failure_from_json(nlohmann::json::parse(to_json(failure).dump()));
  EXPECT_EQ(to_json(back), to_json(failure));
}

}  // namespace
}  // namespace lockstep::launch

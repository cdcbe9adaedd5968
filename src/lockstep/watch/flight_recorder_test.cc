#include "lockstep/watch/flight_recorder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/refusal.h"

namespace lockstep::watch {
namespace {

using nlohmann::json;
using std::string_literals::operator""s;

TEST(FlightRecorder, ReadsPlainPickles) {
  // pickle.dumps({"a": [1, -2, 3.5, None, True, (1, "x")], 7: 300}, protocol=2)
  const std::string two =
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "aq\x01]q\x02(K\x01J\xfe\xff\xff\xffG@"
      "\x0c\x00\x00\x00\x00\x00\x00N\x88K\x01X\x01\x00\x00\x00xq\x03\x86q\x04"
      "eK\x07M,\x01u."s;
  EXPECT_EQ(read_plain_pickle(two), json::parse(R"({"a": [1, -2, 3.5, null, true, [1, "x"]], "7": 300})"));
}

TEST(FlightRecorder, RunsNothingAndReadsNothingTorn) {
  const std::string rows[] = {
      "\x80\x02"
      "cos\nsystem\nq\x00X\x04\x00\x00\x00trueq\x01\x85q\x02Rq\x03."s,  // what a hostile pickle does
      "\x80\x04\x8c\x02os\x8c\x06system\x93."s,                         // and in newer protocols
      "\x80\x02}q\x00X\xff\xff\xff\x7f"
      "abc"s,
      "\x80\x02"s,
      ""s,
      "."s,
      "h\x05."s,
      "(K\x01u."s,
      "K\x01K\x02"s + "a."s,
      "e."s,
      "\x8a\x09"s + std::string(9, 'x') + "."s};
  for (const std::string& one : rows) {
    EXPECT_NE(base::refusal(558, [&] { read_plain_pickle(one); }), "") << json(one.size());
    EXPECT_NE(read_flight_dump(one).problem, "");
  }
  EXPECT_NE(read_flight_dump("}."s).problem, "") << "no entries";
}

FlightDump dump(std::vector<int64_t> sequences, const std::string& where = "") {
  FlightDump all;
  for (const int64_t one : sequences)
    all.calls.push_back({.group = "default_pg",
                         .name = "gloo:all_reduce",
                         .sequence = one,
                         .completed = false,
                         .where = where});
  return all;
}

TEST(FlightRecorder, TellsWhoIsBehind) {
  const Behind behind =
      who_is_behind({{0, dump({1, 2, 3})}, {1, dump({1, 2})}, {2, dump({1, 2, 3}, "train.py:31 step")}});
  EXPECT_EQ(behind.rank, 1);
  EXPECT_EQ(
      behind.sentence,
      "rank 1 has entered 2 collectives of default_pg, rank 2 already 3 (gloo:all_reduce, train.py:31 step)");
  EXPECT_EQ(who_is_behind({{0, dump({4})}, {1, dump({4})}}).rank, -1);
  EXPECT_EQ(who_is_behind({}).rank, -1);
}

}  // namespace
}  // namespace lockstep::watch

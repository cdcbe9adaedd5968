#include "lockstep/run/loop/references.h"

#include <gtest/gtest.h>

#include "lockstep/run/loop/preference.h"

namespace lockstep::run {
namespace {

TEST(References, AreReadAsTheyWereWritten) {
  const data::References made{.train = {-1.5, -0.1, -1e300, 0}, .eval = {-7, -8}};
  const std::string text = write_references(made, "weights 1 data 2");
  const ReadReferences read = read_references(text, "weights 1 data 2");
  EXPECT_EQ(read.problem, "");
  EXPECT_EQ(read.references.train, made.train);
  EXPECT_EQ(read.references.eval, made.eval);
}

TEST(References, ThatAreDamagedOrOfOthersAreNotUsed) {
  const std::string text = write_references({.train = {-1, -2}, .eval = {}}, "one");
  EXPECT_NE(read_references(text, "two").problem.find("other weights"), std::string::npos);
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_NE(read_references(text.substr(0, size), "one").problem, "") << size;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string flipped = text;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    EXPECT_NE(read_references(flipped, "one").problem, "") << at;
  }
  for (const char* hostile : {"", "\n", "[]\n", "{\"train\": -1, \"eval\": 0}\n",
                              "{\"train\": 18446744073709551615, \"eval\": 1}\n", "{\"train\": 1e30}\n"})
    EXPECT_NE(read_references(hostile, "one").problem, "") << hostile;
}

TEST(Preference, RewardsAreGainsOverTheReference) {
  const PreferenceReport report = preference_of({-1, -4, -3, -2}, {-2, -3, -3, -3}, 0.5);
  EXPECT_DOUBLE_EQ(report.chosen, 0.5 * (1 + 0) / 2);
  EXPECT_DOUBLE_EQ(report.rejected, 0.5 * (-1 + 1) / 2);
  EXPECT_DOUBLE_EQ(report.accuracy, 0.5);
  EXPECT_DOUBLE_EQ(report.margin(), 0.25);
}

}  // namespace
}  // namespace lockstep::run

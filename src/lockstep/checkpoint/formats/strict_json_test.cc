#include "lockstep/checkpoint/formats/strict_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <ctime>

#include <algorithm>

#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

TEST(StrictJson, ReadsWhatIsFine) {
  const std::string text =
      R"({"a": [1, -2, 0.5, true, null, "\u00e9"], "b": {"a": {}}, "c": [{"a": 1}, {"a": 1}]})";
  EXPECT_EQ(parse_strict(text, 301, "x"), nlohmann::json::parse(text));
  EXPECT_EQ(parse_strict("[[[[[[[[]]]]]]]]", 301, "x").dump(), "[[[[[[[[]]]]]]]]") << "eight levels";
}

TEST(StrictJson, RefusesTheRestWithASentence) {
  const struct {
    std::string text, says;
  } rows[] = {
      {R"({"a": 1, "b": 2, "a": 3})", "x names \"a\" twice"},
      {R"([{"b": {"a": 1, "c": [], "a": 1}}])", "x names \"a\" twice"},
      {"[[[[[[[[[]]]]]]]]]", "x is nested deeper than 8 levels"},
      {"[1e999]", "x contains a number out of range"},
      {"[1, ]", "x is not JSON at byte 5"},
      {"", "x is not JSON at byte 1"},
      {"[\"\xff\"]", "x is not JSON at byte 3"},
      {"[" + std::string(16'000'002, ' ').replace(0, 1, "0") + "]", ""},  // spaces are no values
  };
  for (const auto& row : rows) {
    if (row.says.empty()) {
      EXPECT_NO_THROW(parse_strict(row.text, 301, "x"));
    } else {
      EXPECT_NE(refusal(301, [&] { parse_strict(row.text, 301, "x"); }).find(row.says), std::string::npos)
          << row.says;
    }
  }
  std::string many = "[0";
  for (int k = 0; k < 8'000'000; ++k) many += ",0";
  EXPECT_NE(refusal(301, [&] { parse_strict(many + "]", 301, "x"); }).find("more than 8000000 values"),
            std::string::npos);
}

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The least of a few tries: what the processor must do, whatever else runs on it.
double cost_of(const std::string& text) {
  double least = 1e9;
  for (int k = 0; k < 5; ++k) {
    const double begin = processor_seconds();
    parse_strict(text, 304, "x");
    least = std::min(least, processor_seconds() - begin);
  }
  return least;
}

// Sixteen times the objects cost about sixteen times as much; to search the parent for each would cost 256
// times as much.
TEST(StrictJson, CostsWhatTheTextIsLong) {
  for (const bool named : {false, true}) {
    const auto text_of = [&](int objects) {
      std::string text = named ? "{" : "[";
      for (int k = 0; k < objects; ++k)
        text += fmt::format("{}{}{{\"bytes\":0}}", k ? "," : "", named ? fmt::format("\"t{}\":", k) : "");
      return text + (named ? "}" : "]");
    };
    EXPECT_LT(cost_of(text_of(16'000)), 64 * cost_of(text_of(1'000))) << (named ? "object" : "list");
  }
}

}  // namespace
}  // namespace lockstep::checkpoint

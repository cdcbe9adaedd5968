#include "lockstep/jobs/yaml.h"

#include <gtest/gtest.h>

namespace lockstep::jobs {
namespace {

TEST(Yaml, ReadsBackAsWhatItWas) {
  const nlohmann::ordered_json document{
      {"text", "yes"},
      {"lines", "a\n  b\n\nc\n"},
      {"list", {1, "x y", {{"k", "v"}, {"m", nlohmann::ordered_json::array()}}}},
      {"empty", nlohmann::ordered_json::object()}};
  EXPECT_EQ(to_yaml(document),
            "text: \"yes\"\nlines: |\n  a\n    b\n\n  c\nlist:\n  - 1\n  - \"x y\"\n  - k: v\n    m: "
            "[]\nempty: {}\n");
}

}  // namespace
}  // namespace lockstep::jobs

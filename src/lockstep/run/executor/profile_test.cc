#include "lockstep/run/executor/profile.h"

#include <gtest/gtest.h>

namespace lockstep::run {
namespace {

device::Traced by_call(const char* name, int64_t at, int64_t tag) { return {name, at, at + 1, tag}; }
device::Traced in_graph(const char* name, int64_t at) { return {name, at, at + 1, -1, true}; }

std::vector<int64_t> tags(const Profile& profile) {
  std::vector<int64_t> all;
  for (const device::Traced& one : profile.ran) all.push_back(one.tag);
  return all;
}

TEST(Profile, KernelsOfAGraphGetTheNamesOfTheFirstStep) {
  // Two instructions, of two kernels and one; then two graphs. CUPTI hands over in any order.
  Profile profile{.steps = 3,
                  .ran = {in_graph("a", 10), in_graph("b", 11), in_graph("a", 12), by_call("a", 0, 0),
                          by_call("b", 1, 0), by_call("a", 2, 1), in_graph("a", 20), in_graph("b", 21),
                          in_graph("a", 22), in_graph("other", 23)}};
  name_graphs(profile, 2);
  EXPECT_EQ(profile.by_call, 1);
  EXPECT_EQ(tags(profile), (std::vector<int64_t>{0, 0, 1, 2, 2, 3, 4, 4, 5, -1}));
}

TEST(Profile, WithoutGraphsTagsStayAsTheyAre) {
  Profile profile{.steps = 2, .ran = {by_call("a", 0, 0), by_call("a", 1, 1), by_call("a", 2, 2)}};
  name_graphs(profile, 2);
  EXPECT_EQ(profile.by_call, 2);
  EXPECT_EQ(tags(profile), (std::vector<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace lockstep::run

// The lists in which Slurm writes nodes and counts.
#include <gtest/gtest.h>

#include "lockstep/base/text.h"
#include "lockstep/launch/schedulers/environment_readers.h"

namespace lockstep::launch {
namespace {

TEST(Environment, NodeListsAreExpanded) {
  const std::vector<std::pair<std::string, std::string>> lists = {
      {"n1", "n1"},
      {"n[1-3]", "n1 n2 n3"},
      {"n[1-2,5]", "n1 n2 n5"},
      {"n[008-011]", "n008 n009 n010 n011"},
      {"n[9-11]", "n9 n10 n11"},
      {"login,gpu[1-2],cpu-7", "login gpu1 gpu2 cpu-7"},
      {"rack[1-2]n[01-02]x", "rack1n01x rack1n02x rack2n01x rack2n02x"},
      {"node-[3,1].cluster.org", "node-3.cluster.org node-1.cluster.org"},
      {"", "-"},
      {"n1,", "-"},
      {",n1", "-"},
      {"n[1-2", "-"},
      {"n1]", "-"},
      {"n[]", "-"},
      {"n[2-1]", "-"},
      {"n[1-2-3]", "-"},
      {"n[a-b]", "-"},
      {"n[-1]", "-"},
      {"n 1", "-"},
      {"n[1-999999]", "-"},
      {"a[1-9999]b[1-9999]", "-"},
      {"n[[1]]", "-"},
  };
  for (const auto& [list, expected] : lists) {
    const auto names = expand_node_list(list);
    EXPECT_EQ(names ? base::join(*names, " ") : "-", expected) << list;
  }
}

TEST(Environment, CountsAreExpanded) {
  using Counts = std::vector<int>;
  EXPECT_EQ(expand_counts("2(x3),1"), (Counts{2, 2, 2, 1}));
  EXPECT_EQ(expand_counts("4"), (Counts{4}));
  EXPECT_EQ(expand_counts("1,2(x2),3"), (Counts{1, 2, 2, 3}));
  for (const char* text : {"", "2(x", "2(x)", "2x3", "(x3)", "2,,1", "-1", "2(x-1)", "1(x999999)"}) {
    EXPECT_EQ(expand_counts(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lockstep::launch

#include "lockstep/program/strands.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::program {
namespace {

// The sum over the tree as text: what every way of adding must come out as.
std::string tree(int64_t begin, int64_t end) {
  if (end - begin == 1) return std::to_string(begin);
  int64_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return "(" + tree(begin, begin + half) + "+" + tree(begin + half, end) + ")";
}

// Adds up as a rank does: leaves pushed in order, joined when the stack says so.
struct Summed {
  Stack stack;
  std::vector<std::string> text;
  explicit Summed(int64_t strands) : stack(strands) {}
  void push(const Run& run, const std::string& value) {
    text.push_back(value);
    for (int k = stack.push(run); k > 0; --k) {
      const std::string right = text.back();
      text.pop_back();
      text.back() = "(" + text.back() + "+" + right + ")";
    }
  }
};

TEST(Strands, PushedInOrderGiveTheTree) {
  for (int64_t strands = 1; strands <= 70; ++strands) {
    Summed sum(strands);
    for (int64_t s = 0; s < strands; ++s) sum.push({s, s + 1}, std::to_string(s));
    ASSERT_EQ(sum.text.size(), 1u) << strands;
    EXPECT_EQ(sum.text[0], tree(0, strands)) << strands;
  }
}

TEST(Strands, RanksPartialSumsGiveTheSameTree) {
  for (int64_t strands = 1; strands <= 33; ++strands) {
    for (int ranks = 1; ranks <= strands; ++ranks) {
      const StrandAssignment assignment{.strands = strands, .replicas = ranks};
      Summed all(strands);
      for (int r = 0; r < ranks; ++r) {
        Summed own(strands);
        for (const int64_t s : assignment.of_rank(r, 0)) own.push({s, s + 1}, std::to_string(s));
        EXPECT_EQ(own.stack.runs(), nodes_of(strands, assignment.of_replica(r)));
        for (size_t k = 0; k < own.text.size(); ++k) all.push(own.stack.runs()[k], own.text[k]);
      }
      ASSERT_EQ(all.text, std::vector<std::string>{tree(0, strands)}) << strands << " strands on " << ranks;
    }
  }
}

TEST(Strands, EveryDealGivesEachStrandToOneRank) {
  for (const bool round_robin : {false, true}) {
    for (int64_t strands : {1, 2, 3, 5, 8, 12, 16}) {
      for (int replicas = 1; replicas <= 4; ++replicas) {
        for (int shard = 1; shard <= 4; ++shard) {
          const StrandAssignment assignment{strands, replicas, shard, round_robin};
          std::multiset<int64_t> seen;
          for (int p = 0; p < replicas; ++p) {
            for (int r = 0; r < shard; ++r) {
              const std::vector<int64_t> mine = assignment.of_rank(p, r);
              seen.insert(mine.begin(), mine.end());
              if (!round_robin) continue;
              for (int64_t j = 0; j < assignment.rounds(p); ++j) {
                EXPECT_EQ(assignment.in_round(p, r, j),
                          j < static_cast<int64_t>(mine.size()) ? mine[static_cast<size_t>(j)] : -1);
              }
            }
          }
          ASSERT_EQ(static_cast<int64_t>(seen.size()), strands);
          for (int64_t s = 0; s < strands; ++s) ASSERT_EQ(seen.count(s), 1u);
        }
      }
    }
  }
}

TEST(Strands, OnlyHalvesOfANodeJoin) {
  EXPECT_TRUE(joins(8, {0, 4}, {4, 8}));
  EXPECT_TRUE(joins(6, {4, 5}, {5, 6}));
  EXPECT_TRUE(joins(5, {0, 4}, {4, 5}));
  EXPECT_FALSE(joins(8, {1, 2}, {2, 3}));
  EXPECT_FALSE(joins(8, {2, 4}, {4, 6}));
  EXPECT_FALSE(joins(8, {0, 1}, {2, 3}));
  EXPECT_FALSE(joins(8, {0, 2}, {2, 3}));
}

}  // namespace
}  // namespace lockstep::program

#include "lockstep/base/registry.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

struct Row {
  std::string name;
  int value = 0;
};

TEST(Registry, TakesRowsUntilItIsRead) {
  Registry<Row> table("fruit", {{"apple", 1}});
  table.add({"pear", 2});
  EXPECT_EQ(names_of(table.rows()), (std::vector<std::string>{"apple", "pear"}));
  EXPECT_EQ(table.find("pear")->value, 2);
  EXPECT_EQ(table.find("plum"), nullptr);
  EXPECT_THROW(table.add({"plum", 3}), Bug);
  EXPECT_EQ(table.rows().size(), 2u);
}

TEST(Registry, ALookForOneRowFreezesItToo) {
  Registry<Row> table("fruit", {});
  EXPECT_EQ(table.find("apple"), nullptr);
  EXPECT_THROW(table.add({"apple", 1}), Bug);
}

TEST(Registry, NamesAreTheirsAlone) {
  Registry<Row> table("fruit", {{"apple", 1}});
  EXPECT_THROW(table.add({"apple", 2}), Bug);
  EXPECT_THROW(table.add({"", 2}), Bug);
  EXPECT_EQ(table.rows().size(), 1u);
}

}  // namespace
}  // namespace lockstep::base

#include "lockstep/comm/store/store_table.h"

#include <gtest/gtest.h>

#include "lockstep/base/refusal.h"

namespace lockstep::comm {
namespace {

// What is replaced, taken out or removed makes room again: a run that goes on for months does not fill it.
TEST(StoreTable, CountsWhatItHoldsAndNothingElse) {
  StoreTable table({.most_value_bytes = 400, .most_bytes = 1000});
  table.set("beat", std::string(300, 'a'));
  const int64_t one = table.bytes();
  EXPECT_GT(one, 300);
  for (int k = 0; k < 100; ++k) table.set("beat", std::string(300, static_cast<char>('a' + k % 26)));
  EXPECT_EQ(table.bytes(), one);
  table.set("beat", "b");
  EXPECT_EQ(table.bytes(), one - 299);
  table.append("beat", "cd");
  EXPECT_EQ(table.bytes(), one - 297);
  for (int k = 0; k < 100; ++k) table.add("count", 1);
  table.remove("count");
  for (int k = 0; k < 100; ++k) {
    table.push("queue", std::string(200, 'q'));
    EXPECT_EQ(table.pop("queue"), std::string(200, 'q'));
  }
  EXPECT_EQ(table.bytes(), one - 297);
  table.remove("beat");
  EXPECT_EQ(table.bytes(), 0);
}

TEST(StoreTable, RefusesWhatIsTooMuchAndStaysAsItWas) {
  StoreTable table({.most_value_bytes = 400, .most_bytes = 1000});
  table.set("a", std::string(400, 'a'));
  base::refusal(516, [&] { table.set("b", std::string(401, 'b')); });
  base::refusal(516, [&] { table.append("a", "b"); });
  table.set("b", std::string(300, 'b'));
  const int64_t full = table.bytes();
  base::refusal(516, [&] { table.set("c", std::string(300, 'c')); });
  base::refusal(516, [&] { table.push("queue", std::string(300, 'c')); });
  EXPECT_EQ(table.bytes(), full);
  EXPECT_EQ(table.keys(), (std::vector<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace lockstep::comm

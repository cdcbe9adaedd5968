#include "lockstep/comm/store/store_desk.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lockstep::comm {
namespace {

// A reply above the limit of a message would be refused by the client as damage: the desk says so itself.
TEST(StoreDesk, AListOfKeysThatIsTooLongIsRefused) {
  const TimePoint now = std::chrono::steady_clock::now();
  StoreDesk desk(1000, 1 << 20);
  const auto keys = [&] { return desk.ask(1, Message{Code::keys, 0, {}}, now).at(0).message; };
  for (int k = 0; k < 10; ++k) desk.ask(1, Message{Code::set, 0, {"key-" + std::to_string(k), "v"}}, now);
  EXPECT_EQ(keys().code, Code::ok);
  EXPECT_EQ(keys().words.size(), 10u);
  desk.ask(1, Message{Code::set, 0, {std::string(900, 'k'), "v"}}, now);
  EXPECT_EQ(keys().code, Code::refused);
}

// Who has no time to wait is answered at once, and not when the desk next looks at who has waited too long.
TEST(StoreDesk, NoTimeIsNoWait) {
  const TimePoint now = std::chrono::steady_clock::now();
  StoreDesk desk(1000, 1 << 20);
  for (const Code code : {Code::get, Code::wait, Code::pop}) {
    const std::vector<Reply> replies = desk.ask(1, Message{code, 0, {"nothing"}}, now);
    ASSERT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies[0].message.code, Code::timed_out);
  }
  EXPECT_TRUE(desk.ask(1, Message{Code::get, 5, {"nothing"}}, now).empty());
  EXPECT_TRUE(desk.expire(now + Duration(4)).empty());
  EXPECT_EQ(desk.expire(now + Duration(5)).size(), 1u);
}

}  // namespace
}  // namespace lockstep::comm

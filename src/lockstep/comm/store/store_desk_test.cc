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

}  // namespace
}  // namespace lockstep::comm

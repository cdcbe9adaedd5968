#include "lockstep/comm/interface.h"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(Interface, LoopbackIsReachedFromLoopback) {
  EXPECT_EQ(address_towards("127.0.0.1:29400"), "127.0.0.1");
  EXPECT_EQ(interface_name("127.0.0.1"), "lo");
  EXPECT_EQ(interface_name("lo"), "lo");
}

TEST(Interface, NonsenseIsNoAddress) {
  for (const char* text : {"", "127.0.0.1", ":", "no such host:1", "127.0.0.1:port", "[::1:5"}) {
    EXPECT_EQ(address_towards(text), "") << text;
  }
  EXPECT_EQ(interface_name(""), "");
  EXPECT_EQ(interface_name("192.0.2.1"), "");
  EXPECT_EQ(interface_name("eth-that-is-not-there"), "");
}

}  // namespace
}  // namespace lockstep::comm

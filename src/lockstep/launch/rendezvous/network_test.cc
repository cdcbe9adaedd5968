#include "lockstep/launch/rendezvous/network.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "lockstep/base/file.h"

namespace lockstep::launch {
namespace {

TEST(Network, OnlyANameThatMeansLoopbackIsReplaced) {
  for (const char* host :
       {"", "localhost", "127.0.0.1", "127.0.1.1", "10.1.2.3", "::1", "fd00::1", "no-such-name.invalid"}) {
    EXPECT_EQ(reachable(host), host);
  }
  // This machine's own name, whatever it resolves to here: still this machine.
  const std::string name = base::host_name();
  if (name_resolves(name) && is_this_machine(name)) {
    EXPECT_TRUE(is_this_machine(reachable(name))) << reachable(name);
  }
}

// A port that is promised to a script must still be free seconds later, however many connections are made.
TEST(Network, AFreePortIsNoneThatTheKernelHandsOut) {
  int first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first <= 20000 && last >= 65000) GTEST_SKIP() << "the kernel hands out all of them";
  std::set<int> seen;
  for (int k = 0; k < 50; ++k) {
    const int port = free_port();
    EXPECT_TRUE(port < first || port > last) << port << " is between " << first << " and " << last;
    EXPECT_TRUE(port_is_free(port)) << port;
    seen.insert(port);
  }
  EXPECT_GT(seen.size(), 40u) << "two launchers would collide";
}

TEST(Network, SeveralFreePortsAreConsecutive) {
  const int port = free_ports(8);
  for (int k = 0; k < 8; ++k) EXPECT_TRUE(port_is_free(port + k)) << port + k;
}

}  // namespace
}  // namespace lockstep::launch

#include "lockstep/launch/network.h"

#include <gtest/gtest.h>

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
  if (name_resolves(name) && is_this_machine(name))
    EXPECT_TRUE(is_this_machine(reachable(name))) << reachable(name);
}

}  // namespace
}  // namespace lockstep::launch

#include "lockstep/device/topology/affinity.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <set>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/device/topology/topology_machines.h"

namespace lockstep::device {
namespace {

using namespace testing;

std::vector<std::string> all_ranks(Binding binding, int world, const Topology& machine) {
  std::vector<std::string> lists;
  for (int rank = 0; rank < world; ++rank) lists.push_back(cpu_list(cpus_for(binding, rank, world, machine)));
  return lists;
}

using Lists = std::vector<std::string>;

TEST(Affinity, NearTheGpu) {
  const Topology& dgx = dgx_a100_topology();
  EXPECT_EQ(all_ranks(Binding::node, 8, dgx),
            (Lists{"48-63,176-191", "48-63,176-191", "16-31,144-159", "16-31,144-159", "112-127,240-255",
                   "112-127,240-255", "80-95,208-223", "80-95,208-223"}));
  EXPECT_EQ(all_ranks(Binding::socket, 8, dgx),
            (Lists{"0-63,128-191", "0-63,128-191", "0-63,128-191", "0-63,128-191", "64-127,192-255",
                   "64-127,192-255", "64-127,192-255", "64-127,192-255"}));
  EXPECT_EQ(all_ranks(Binding::core_complex, 4, dgx),
            (Lists{"48-51,176-179", "52-55,180-183", "16-19,144-147", "20-23,148-151"}));
  EXPECT_EQ(all_ranks(Binding::none, 2, dgx), (Lists{"", ""}));
}

TEST(Affinity, FollowsVisibleDevices) {
  Topology dgx = dgx_a100_topology();
  dgx.visible = {6, 0};
  EXPECT_EQ(all_ranks(Binding::node, 2, dgx), (Lists{"80-95,208-223", "48-63,176-191"}));
}

TEST(Affinity, SpreadsRanksWithoutGpus) {
  Topology cpus = dgx_a100_topology();
  cpus.gpus.clear();
  cpus.visible.clear();
  EXPECT_EQ(all_ranks(Binding::socket, 4, cpus),
            (Lists{"0-63,128-191", "0-63,128-191", "64-127,192-255", "64-127,192-255"}));
  EXPECT_EQ(all_ranks(Binding::node, 2, cpus), (Lists{"0-15,128-143", "64-79,192-207"}));
  for (const int world : {1, 3, 8, 32, 33, 200}) {
    const Lists lists = all_ranks(Binding::core_complex, world, cpus);
    const auto distinct = std::set<std::string>(lists.begin(), lists.end()).size();
    EXPECT_EQ(distinct, std::min<size_t>(static_cast<size_t>(world), 32)) << world;
  }
}

TEST(Affinity, StaysInsideTheJob) {
  Topology dgx = dgx_a100_topology();
  dgx.cpu.cpus = parse_cpu_list("48-55");
  EXPECT_EQ(cpu_list(cpus_for(Binding::node, 0, 8, dgx)), "48-55");
  EXPECT_EQ(cpu_list(cpus_for(Binding::socket, 2, 8, dgx)), "48-55");
  EXPECT_EQ(cpu_list(cpus_for(Binding::core_complex, 1, 8, dgx)), "52-55");
  for (const int far : {2, 7}) {
    try {
      cpus_for(Binding::node, far, 8, dgx);
      ADD_FAILURE() << "rank " << far << " has no processor";
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 431);
      EXPECT_NE(std::string(error.what()).find("48-55"), std::string::npos) << error.what();
    }
  }
  dgx.cpu.cpus.clear();
  EXPECT_THROW(cpus_for(Binding::node, 0, 1, dgx), base::ConfigError);
}

TEST(Affinity, GpusOfUnknownPlaceShareTheMachine) {
  const Topology cloud = RecordedMachine(t4_cloud()).topology();
  EXPECT_EQ(all_ranks(Binding::node, 2, cloud), (Lists{"0-15", "0-15"}));
}

TEST(Affinity, Names) {
  for (const char* name : {"none", "node", "socket", "core-complex"})
    EXPECT_STREQ(name_of(parse_binding(name)), name);
  EXPECT_EQ(parse_binding("core_complex"), Binding::core_complex);
  for (const char* wrong : {"", "numa", "NODE", "core-complex "}) {
    EXPECT_THROW(parse_binding(wrong), base::ConfigError) << wrong;
  }
}

Cpus own_cpus() {
  Cpus all(4096);
  for (int cpu = 0; cpu < 4096; ++cpu) all[static_cast<size_t>(cpu)] = cpu;
  return allowed_of(all);
}

TEST(Affinity, BindsAThreadAlone) {
  const Cpus before = own_cpus();
  std::thread([&] {
    bind_this_thread({before.back()});
    EXPECT_EQ(own_cpus(), Cpus{before.back()});
    bind_this_thread({});
    EXPECT_EQ(own_cpus(), Cpus{before.back()});
  }).join();
  EXPECT_EQ(own_cpus(), before);
}

TEST(Affinity, ProcessorsThatAreNotThere) {
  try {
    bind_this_thread({4000, 4001});
    GTEST_SKIP() << "a large machine";
  } catch (const base::IoError& error) {
    EXPECT_EQ(error.number(), 432);
    EXPECT_NE(std::string(error.what()).find("4000-4001"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::device

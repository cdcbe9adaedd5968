#include "lockstep/device/topology/topology_advice.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/text.h"
#include "lockstep/device/topology/topology_bandwidth.h"
#include "lockstep/device/topology/topology_machines.h"

namespace lockstep::device {
namespace {

using namespace testing;
using Kind = Transport::Kind;

Recording with(Recording machine, void (*change)(Recording&)) {
  change(machine);
  return machine;
}

// Without the files of each processor, which do not matter here.
Topology wired(Recording machine) {
  machine.sockets.clear();
  machine.complexes.clear();
  return RecordedMachine(machine).topology();
}

std::string text_of(const std::vector<Advice>& advices) {
  std::vector<std::string> words;
  for (const Advice& advice : advices) {
    EXPECT_GT(advice.why.size(), 20u) << advice.variable;
    words.push_back(advice.variable + "=" + advice.value);
  }
  return base::join(words, " ");
}

TEST(TopologyAdvice, OnlyWhereAFactAsksForIt) {
  struct Row {
    const char* what;
    Recording machine;
    const char* advice;
  };
  const std::vector<Row> rows = {
      {"NCCL knows a DGX", dgx_a100(), ""},
      {"an NVLink that is switched off",
       with(dgx_a100(), [](Recording& m) { m.variables["NCCL_P2P_DISABLE"] = "1"; }), "NCCL_P2P_DISABLE="},
      {"zero is not on", with(dgx_a100(), [](Recording& m) { m.variables["NCCL_P2P_DISABLE"] = "0"; }), ""},
      {"cards that are switched off",
       with(dgx_a100(), [](Recording& m) { m.variables["NCCL_IB_DISABLE"] = "1"; }), "NCCL_IB_DISABLE="},
      {"a slower card among them",
       with(dgx_a100(),
            [](Recording& m) {
              m.nics.push_back({"mlx5_10", "pci0000:e0/0000:e0:03.1/0000:e1:00.0", 6, "100 Gb/sec (4X EDR)",
                                "InfiniBand"});
            }),
       "NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7"},
      {"one that is down does not count",
       with(dgx_a100(),
            [](Recording& m) {
              m.nics.push_back({"mlx5_10", "pci0000:e0/0000:e0:03.1/0000:e1:00.0", 6, "10 Gb/sec (4X SDR)",
                                "Ethernet", false});
            }),
       ""},
      {"T4 pairs: peers across a host bridge, and a card there", t4_pairs(),
       "NCCL_P2P_LEVEL=PHB NCCL_NET_GDR_LEVEL=PHB"},
      {"the user has chosen",
       with(t4_pairs(),
            [](Recording& m) {
              m.variables = {{"NCCL_P2P_LEVEL", "PXB"}, {"NCCL_NET_GDR_LEVEL", "PIX"}};
            }),
       ""},
      {"a cloud's T4 without peer access", with(t4_cloud(), [](Recording& m) { m.peer_access = false; }), ""},
      {"a cloud's T4 with it", t4_cloud(), "NCCL_P2P_LEVEL=PHB"},
      {"two of them on AMD need no word", with(t4_cloud(), [](Recording& m) { m.vendor = "AuthenticAMD"; }),
       ""},
      {"a slow and a fast interface, and a bridge", two_nics(), "NCCL_SOCKET_IFNAME==ens3"},
      {"only docker and lo beside it",
       with(two_nics(),
            [](Recording& m) {
              m.nics.erase(m.nics.begin());
              m.virtuals = {{"lo"}, {"docker0"}};
            }),
       ""},
      {"two equal interfaces",
       with(two_nics(),
            [](Recording& m) {
              m.nics[0].megabits = 100000;
              m.virtuals.clear();
            }),
       ""},
      {"a fast interface that is down",
       with(two_nics(),
            [](Recording& m) {
              m.nics[1].up = false;
              m.virtuals.clear();
            }),
       ""},
      {"no GPU, no NCCL", laptop(), ""},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(text_of(nccl_advice(wired(row.machine))), row.advice) << row.what;
  }
}

TEST(TopologyAdvice, WaysBetweenGpus) {
  struct Row {
    const char* what;
    Recording machine;
    int a, b;
    Kind kind;
  };
  for (const Row& row : std::vector<Row>{
           {"NVSwitch", dgx_a100(), 0, 7, Kind::nvlink},
           {"NVSwitch, switched off",
            with(dgx_a100(), [](Recording& m) { m.variables["NCCL_P2P_DISABLE"] = "1"; }), 0, 7,
            Kind::host_memory},
           {"one switch", t4_pairs(), 0, 1, Kind::peer},
           {"host bridge", t4_pairs(), 0, 2, Kind::host_memory},
           {"host bridge, allowed",
            with(t4_pairs(), [](Recording& m) { m.variables["NCCL_P2P_LEVEL"] = "PHB"; }), 0, 2, Kind::peer},
           {"sockets, not that far",
            with(t4_pairs(), [](Recording& m) { m.variables["NCCL_P2P_LEVEL"] = "PHB"; }), 0, 4,
            Kind::host_memory},
           {"a level that is none",
            with(t4_pairs(), [](Recording& m) { m.variables["NCCL_P2P_LEVEL"] = "?"; }), 0, 2,
            Kind::host_memory},
           {"driver says no", with(t4_pairs(), [](Recording& m) { m.peer_access = false; }), 0, 1,
            Kind::host_memory},
           {"two GPUs on AMD", with(t4_cloud(), [](Recording& m) { m.vendor = "AuthenticAMD"; }), 0, 1,
            Kind::peer},
       }) {
    const Transport way = nccl_transport(wired(row.machine), row.a, row.b);
    EXPECT_EQ(way.kind, row.kind) << row.what;
    EXPECT_EQ(way.why.empty(), row.kind != Kind::host_memory) << row.what;
  }
}

TEST(TopologyAdvice, Network) {
  EXPECT_TRUE(nccl_network(dgx_a100_topology()).starts_with("verbs over mlx5_0,mlx5_1,"));
  EXPECT_NE(nccl_network(dgx_a100_topology()).find("GPUDirect"), std::string::npos);
  EXPECT_EQ(nccl_network(RecordedMachine(t4_pairs()).topology()), "verbs over mlx4_0, through host memory");
  EXPECT_EQ(nccl_network(RecordedMachine(t4_cloud()).topology()), "sockets over eth0");
}

TEST(TopologyBandwidth, OfEachKind) {
  EXPECT_DOUBLE_EQ(nvlink_speed(8, 0, 12).peak, 300);   // A100: 600 GB/s both ways
  EXPECT_DOUBLE_EQ(nvlink_speed(9, 0, 18).peak, 450);   // H100: 900
  EXPECT_DOUBLE_EQ(nvlink_speed(10, 0, 18).peak, 900);  // B200: 1800
  EXPECT_DOUBLE_EQ(nvlink_speed(7, 0, 6).peak, 150);    // V100: 300
  EXPECT_EQ(nvlink_speed(5, 0, 4).peak, 0);
  EXPECT_NEAR(pcie_speed(3, 16).peak, 15.75, 0.01);
  EXPECT_NEAR(pcie_speed(4, 16).peak, 31.5, 0.02);
  EXPECT_NEAR(pcie_speed(5, 16).peak, 63, 0.05);
  EXPECT_NEAR(pcie_speed(3, 16).expected, 12, 1e-9);
  for (int generation = 1; generation <= 7; ++generation) {
    for (const int width : {1, 4, 8, 16}) {
      const LinkSpeed speed = pcie_speed(generation, width);
      EXPECT_LT(speed.expected, speed.peak);
      EXPECT_GT(speed.expected, 0.7 * speed.peak);
    }
  }
  EXPECT_EQ(pcie_speed(0, 16).peak, 0);
  EXPECT_EQ(pcie_speed(4, 0).peak, 0);
  EXPECT_NEAR(nic_speed(200).peak, 25, 1e-9);
}

TEST(TopologyBandwidth, OfTheSlowestPart) {
  const Topology& dgx = dgx_a100_topology();
  EXPECT_DOUBLE_EQ(expected_bandwidth(dgx, 0, 7).expected, 240);
  EXPECT_DOUBLE_EQ(expected_bandwidth(dgx, 0, 8).expected, 22.5) << "the card, not the slot";
  EXPECT_DOUBLE_EQ(expected_bandwidth(dgx, 0, 10).expected, 16) << "across sockets";
  EXPECT_DOUBLE_EQ(expected_bandwidth(dgx, 3, 3).expected, 0);
  const Topology t4 = RecordedMachine(t4_pairs()).topology();
  EXPECT_DOUBLE_EQ(expected_bandwidth(t4, 0, 1).expected, 12);
  EXPECT_DOUBLE_EQ(expected_bandwidth(t4, 0, 4).expected, 10);
}

TEST(TopologyBandwidth, SlowLinksAreNamed) {
  const Topology& dgx = dgx_a100_topology();
  EXPECT_EQ(slow_link(dgx, 8, 230), "");
  const std::string slow = slow_link(dgx, 8, 20);
  EXPECT_NE(slow.find("NV12 between GPU0 and GPU1"), std::string::npos) << slow;
  EXPECT_NE(slow.find("about 240"), std::string::npos) << slow;
  EXPECT_EQ(slow_link(dgx, 16, 1), "") << "ranks that share GPUs";
  const Topology t4 = RecordedMachine(t4_pairs()).topology();
  EXPECT_EQ(slow_link(t4, 2, 9), "");
  EXPECT_NE(slow_link(t4, 2, 3), "");
  EXPECT_EQ(slow_link(RecordedMachine(laptop()).topology(), 2, 1), "");
}

}  // namespace
}  // namespace lockstep::device

#include "lockstep/device/topology/topology.h"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/text.h"
#include "lockstep/device/topology/topology_machines.h"
#include "lockstep/device/topology/topology_matrix.h"

namespace lockstep::device {
namespace {

using namespace testing;

TEST(Topology, CpuLists) {
  struct Row {
    const char* text;
    Cpus cpus;
  };
  for (const Row& row : std::vector<Row>{{"0", {0}},
                                         {"0-3,8\n", {0, 1, 2, 3, 8}},
                                         {"8,0-1,0", {0, 1, 8}},
                                         {"", {}},
                                         {"\n", {}},
                                         {"3-", {}},
                                         {"5-2", {}},
                                         {"1,x", {1}},
                                         {"-1", {}},
                                         {"0-99999999999", {}},
                                         {"0-4294967295", {}}}) {
    EXPECT_EQ(parse_cpu_list(row.text), row.cpus) << row.text;
  }
  EXPECT_EQ(cpu_list({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(cpu_list({}), "");
}

TEST(Topology, CpuListsReadBack) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 generator(seed);
  for (int round = 0; round < 200; ++round) {
    Cpus cpus;
    for (int cpu = 0; cpu < 70; ++cpu) {
      if (generator() % 3 != 0) cpus.push_back(cpu);
    }
    EXPECT_EQ(parse_cpu_list(cpu_list(cpus)), cpus);
  }
}

TEST(Topology, PciPaths) {
  EXPECT_EQ(parse_pci_path("/sys/devices/pci0000:00/0000:00:01.1/0000:07:00.0"),
            (PciPath{"pci0000:00", "0000:00:01.1", "0000:07:00.0"}));
  EXPECT_EQ(parse_pci_path("/sys/devices/pci0000:00/0000:00:03.0/virtio2/net/eth0"),
            (PciPath{"pci0000:00", "0000:00:03.0"}));
  EXPECT_EQ(parse_pci_path("/sys/devices/LNXSYSTM:00/VMBUS:00/pci47505500-0001:00/10000:00:02.0").size(), 2u)
      << "Azure's bridges";
  EXPECT_EQ(parse_pci_path("/sys/devices/virtual/net/lo"), PciPath{});
  EXPECT_EQ(parse_pci_path("pci0000:00"), PciPath{});
  EXPECT_EQ(parse_pci_path("/a:b:c.d/."), PciPath{});
}

TEST(Topology, LinksFromPaths) {
  const PciPath gpu = {"pci0000:00", "0000:00:01.0", "0000:01:00.0", "0000:02:08.0", "0000:03:00.0"};
  struct Row {
    const char* what;
    PciPath other;
    int node;
    LinkKind kind;
  };
  for (const Row& row : std::vector<Row>{
           {"itself", gpu, 0, LinkKind::self},
           {"another function", {gpu[0], gpu[1], gpu[2], gpu[3], "0000:03:00.1"}, 0, LinkKind::pix},
           {"another port", {gpu[0], gpu[1], gpu[2], "0000:02:10.0", "0000:04:00.0"}, 0, LinkKind::pix},
           {"a switch behind it",
            {gpu[0], gpu[1], gpu[2], "0000:02:10.0", "0000:04:00.0", "0000:05:00.0", "0000:06:00.0"},
            0,
            LinkKind::pxb},
           {"another root port", {gpu[0], "0000:00:02.0", "0000:07:00.0"}, 0, LinkKind::phb},
           {"another bridge", {"pci0000:40", "0000:40:01.0", "0000:41:00.0"}, 0, LinkKind::node},
           {"another node", {"pci0000:80", "0000:80:01.0", "0000:81:00.0"}, 1, LinkKind::sys},
           {"not known", {}, 0, LinkKind::sys}}) {
    EXPECT_EQ(pci_link(gpu, 0, row.other, row.node).kind, row.kind) << row.what;
    EXPECT_EQ(pci_link(row.other, row.node, gpu, 0).kind, row.kind) << row.what;
  }
}

std::string one_blank(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ' && out.back() != '\n')) out += c;
  }
  return out;
}

TEST(Topology, MatrixOfDgxA100) {
  const std::string text = one_blank(aligned(link_matrix(dgx_a100_topology())));
  const std::vector<std::string> lines = base::split_lines(text);
  ASSERT_EQ(lines.size(), 17u);
  EXPECT_EQ(lines[1],
            "GPU0 X NV12 NV12 NV12 NV12 NV12 NV12 NV12 PXB PXB SYS SYS SYS SYS SYS SYS 48-63,176-191 3");
  EXPECT_EQ(lines[4],
            "GPU3 NV12 NV12 NV12 X NV12 NV12 NV12 NV12 SYS SYS PXB PXB SYS SYS SYS SYS 16-31,144-159 1");
  EXPECT_EQ(lines[8],
            "GPU7 NV12 NV12 NV12 NV12 NV12 NV12 NV12 X SYS SYS SYS SYS SYS SYS PXB PXB 80-95,208-223 5");
  EXPECT_EQ(lines[9], "NIC0 PXB PXB SYS SYS SYS SYS SYS SYS X PXB SYS SYS SYS SYS SYS SYS");
}

TEST(Topology, MatrixOfT4Pairs) {
  for (const bool told : {true, false}) {  // NVML's own distances, or the PCI paths
    Recording recording = t4_pairs();
    recording.tells_ancestors = told;
    EXPECT_EQ(one_blank(aligned(link_matrix(RecordedMachine(recording).topology()))),
              "GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 NIC0 CPU Affinity NUMA Affinity\n"
              "GPU0 X PIX PHB PHB SYS SYS SYS SYS PHB 0-9,20-29 0\n"
              "GPU1 PIX X PHB PHB SYS SYS SYS SYS PHB 0-9,20-29 0\n"
              "GPU2 PHB PHB X PIX SYS SYS SYS SYS PHB 0-9,20-29 0\n"
              "GPU3 PHB PHB PIX X SYS SYS SYS SYS PHB 0-9,20-29 0\n"
              "GPU4 SYS SYS SYS SYS X PIX PHB PHB SYS 10-19,30-39 1\n"
              "GPU5 SYS SYS SYS SYS PIX X PHB PHB SYS 10-19,30-39 1\n"
              "GPU6 SYS SYS SYS SYS PHB PHB X PIX SYS 10-19,30-39 1\n"
              "GPU7 SYS SYS SYS SYS PHB PHB PIX X SYS 10-19,30-39 1\n"
              "NIC0 PHB PHB PHB PHB SYS SYS SYS SYS X\n");
  }
}

TEST(Topology, MatrixOfFiveCards) {
  for (const bool told : {true, false}) {
    Recording recording = five_cards();
    recording.tells_ancestors = told;
    EXPECT_EQ(one_blank(aligned(link_matrix(RecordedMachine(recording).topology()))),
              "GPU0 GPU1 GPU2 GPU3 GPU4 CPU Affinity NUMA Affinity\n"
              "GPU0 X SYS SYS SYS SYS 8-15,24-31 1\n"
              "GPU1 SYS X PHB NODE NODE 0-7,16-23 0\n"
              "GPU2 SYS PHB X NODE NODE 0-7,16-23 0\n"
              "GPU3 SYS NODE NODE X PHB 0-7,16-23 0\n"
              "GPU4 SYS NODE NODE PHB X 0-7,16-23 0\n");
  }
}

TEST(Topology, MatrixOfHgxA100) {
  const std::string text = one_blank(aligned(link_matrix(RecordedMachine(hgx_a100()).topology())));
  const std::vector<std::string> lines = base::split_lines(text);
  ASSERT_EQ(lines.size(), 17u);
  EXPECT_EQ(lines[1],
            "GPU0 X NV12 NV12 NV12 NV12 NV12 NV12 NV12 PXB PXB NODE NODE SYS SYS SYS SYS 0-47,96-143 0");
  EXPECT_EQ(lines[3],
            "GPU2 NV12 NV12 X NV12 NV12 NV12 NV12 NV12 NODE NODE PXB PXB SYS SYS SYS SYS 0-47,96-143 0");
  EXPECT_EQ(lines[9], "NIC0 PXB PXB NODE NODE SYS SYS SYS SYS X PIX NODE NODE SYS SYS SYS SYS");
}

// V100 boards wire some pairs with two links, some with one, some not at all.
TEST(Topology, NvLinksWithoutASwitch) {
  Recording recording = t4_pairs();
  recording.gpus[0].to_gpu = {{1, 2}, {4, 1}};
  recording.gpus[1].to_gpu = {{0, 2}};
  recording.gpus[4].to_gpu = {{0, 1}};
  const Topology machine = RecordedMachine(recording).topology();
  EXPECT_EQ(label(machine.link(0, 1)), "NV2");
  EXPECT_EQ(label(machine.link(1, 0)), "NV2");
  EXPECT_EQ(label(machine.link(0, 4)), "NV1");
  EXPECT_EQ(label(machine.link(1, 4)), "SYS");
  recording.gpus[2].to_switch = 6;  // a link that came up on one side only joins nothing
  EXPECT_EQ(label(RecordedMachine(recording).topology().link(2, 3)), "PIX");
}

TEST(Topology, ProcessorsOfDgxA100) {
  const CpuParts cpu = dgx_a100_topology().cpu;
  EXPECT_EQ(cpu.cpus.size(), 256u);
  EXPECT_EQ(cpu.nodes.size(), 8u);
  EXPECT_EQ(cpu.nodes[3].bytes, 1 << 30);
  EXPECT_EQ(cpu.sockets.size(), 2u);
  EXPECT_EQ(cpu.core_complexes.size(), 32u);
  EXPECT_EQ(cpu.cores.size(), 128u);
}

TEST(Topology, Laptop) {
  const Topology machine = RecordedMachine(laptop()).topology();
  EXPECT_TRUE(machine.gpus.empty());
  EXPECT_EQ(machine.cpu.cores.size(), 4u);
  ASSERT_EQ(machine.nics.size(), 1u);
  EXPECT_EQ(machine.nics[0].name, "wlp0s20f3");
  EXPECT_EQ(machine.nics[0].gbits, 0);
  EXPECT_EQ(machine.cpu_vendor, "GenuineIntel");
}

TEST(Topology, OfNothingAtAll) {
  const base::TemporaryFolder empty;
  const std::unique_ptr<CpuSource> cpu = open_sysfs(empty.path());
  const Topology machine = build_topology({*cpu, nullptr, empty.path(), {}});
  EXPECT_EQ(machine.devices(), 0);
  EXPECT_TRUE(link_matrix(machine).empty());
}

TEST(Topology, VisibleGpusInTheirOrder) {
  Recording recording = t4_pairs();
  recording.variables["CUDA_VISIBLE_DEVICES"] = "5,GPU-2";
  EXPECT_EQ(RecordedMachine(recording).topology().visible, (std::vector<int>{5, 2}));
  recording.variables.clear();
  EXPECT_EQ(RecordedMachine(recording).topology().visible.size(), 8u);
}

TEST(Topology, HwlocSpeaksOfOtherMachines) {
  const std::unique_ptr<CpuSource> hwloc = open_hwloc("pack:2 numa:2 l3:2 core:3 pu:2");
  if (!hwloc) GTEST_SKIP() << "no hwloc here";
  const CpuParts cpu = hwloc->parts();
  EXPECT_EQ(cpu.sockets.size(), 2u);
  EXPECT_EQ(cpu.nodes.size(), 4u);
  EXPECT_EQ(cpu.core_complexes.size(), 8u);
  EXPECT_EQ(cpu.cores.size(), 24u);
  EXPECT_EQ(cpu_list(cpu.nodes[1].cpus), "12-23");
  EXPECT_EQ(cpu_list(cpu.sockets[1]), "24-47");
  EXPECT_EQ(hwloc->near("0000:01:00.0").node, -1);
}

TEST(Topology, HwlocAndSysfsAgreeOnThisMachine) {
  const std::unique_ptr<CpuSource> hwloc = open_hwloc(), sysfs = open_sysfs("");
  if (!hwloc) GTEST_SKIP() << "no hwloc here";
  const CpuParts a = hwloc->parts(), b = sysfs->parts();
  if (a.cpus != b.cpus) GTEST_SKIP() << "some processors are kept from this process";
  EXPECT_EQ(a.cores.size(), b.cores.size());
  EXPECT_EQ(a.sockets, b.sockets);
  EXPECT_EQ(a.core_complexes, b.core_complexes);
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) EXPECT_EQ(a.nodes[i].cpus, b.nodes[i].cpus);
  for (const Nic& nic : read_nics("", *sysfs)) {
    EXPECT_EQ(hwloc->near(nic.path.back()).cpus, nic.near.cpus) << nic.name;
  }
}

TEST(Topology, OfThisMachine) {
  const Topology machine = read_topology();
  EXPECT_FALSE(machine.cpu.cpus.empty());
  EXPECT_FALSE(machine.cpu.nodes.empty());
  EXPECT_FALSE(machine.cpu.core_complexes.empty());
}

}  // namespace
}  // namespace lockstep::device

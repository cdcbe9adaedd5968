// The machines that the tests of topology, advice and affinity know, as people's logs show them.
#pragma once

#include "lockstep/device/topology/topology_testing.h"

namespace lockstep::device::testing {

// DGX A100: eight GPUs on six NVSwitches, twelve links each; two sockets of four NUMA nodes; pairs of GPUs
// and pairs of cards behind two levels of PCIe switches. (nvidia/nccl issue 1505, rapidsai/dask-cuda issue
// 1358.)
inline Recording dgx_a100() {
  Recording machine{.vendor = "AuthenticAMD", .model = "AMD EPYC 7742 64-Core Processor"};
  for (int node = 0; node < 8; ++node) {
    const int first = 16 * node;
    machine.nodes.push_back(std::to_string(first) + "-" + std::to_string(first + 15) + "," +
                            std::to_string(first + 128) + "-" + std::to_string(first + 143));
    for (int i = first; i < first + 16; i += 4) {
      machine.complexes.push_back(std::to_string(i) + "-" + std::to_string(i + 3) + "," +
                                  std::to_string(i + 128) + "-" + std::to_string(i + 131));
    }
  }
  machine.sockets = {"0-63,128-191", "64-127,192-255"};
  machine.threads_per_core = 2;
  machine.gpu_name = "NVIDIA A100-SXM4-40GB";
  machine.major = 8;
  machine.generation = 4;
  machine.width = 16;
  struct Quarter {
    int node;
    std::string bridge, port, up, first, second;  // bus numbers
  };
  int card = 0;
  for (const Quarter& q : {Quarter{3, "pci0000:00", "0000:00:01.1", "0000:01:00.0", "07", "0f"},
                           Quarter{1, "pci0000:40", "0000:40:01.1", "0000:41:00.0", "47", "4e"},
                           Quarter{7, "pci0000:80", "0000:80:01.1", "0000:81:00.0", "87", "90"},
                           Quarter{5, "pci0000:a0", "0000:a0:03.1", "0000:b0:00.0", "b7", "bd"}}) {
    const std::string top = q.bridge + "/" + q.port + "/" + q.up;
    int down = 0;
    for (const std::string& bus : {q.first, q.second}) {
      const std::string port = top + "/" + q.up.substr(0, 8) + std::to_string(8 + down) + ".0/0000:" + bus;
      machine.gpus.push_back({port + ":10.0/0000:" + bus + ":14.0/0000:" + bus + ":00.0", q.node, 12});
      // The card hangs one switch higher than the GPU's own.
      machine.nics.push_back(
          {"mlx5_" + std::to_string(card++),
           top + "/0000:0" + std::to_string(down) + ":1f.0/0000:" + bus + ":18.0/0000:" + bus + ":1c.0",
           q.node, "200 Gb/sec (4X HDR)", "InfiniBand"});
      ++down;
    }
  }
  return machine;
}

inline const Topology& dgx_a100_topology() {  // made once: it is a thousand files
  static const Topology machine = RecordedMachine(dgx_a100()).topology();
  return machine;
}

// Two sockets; on each, two pairs of T4 behind PCIe switches, and no switch between the pairs. One card.
// (kubernetes issue 53497 shows the same tree.)
inline Recording t4_pairs() {
  Recording machine{.vendor = "GenuineIntel", .model = "Intel(R) Xeon(R) Silver 4114 CPU @ 2.20GHz"};
  machine.nodes = {"0-9,20-29", "10-19,30-39"};
  machine.sockets = machine.nodes;
  machine.complexes = machine.nodes;
  machine.threads_per_core = 2;
  machine.gpu_name = "Tesla T4";
  machine.major = 7;
  machine.minor = 5;
  machine.generation = 3;
  machine.width = 16;
  for (const auto& [bridge, node] : {std::pair<std::string, int>{"pci0000:00", 0}, {"pci0000:80", 1}}) {
    const std::string domain = bridge.substr(3, 7);  // "0000:00"
    for (const int port : {2, 3}) {
      const std::string bus = "0000:" + std::to_string(port) + std::to_string(node);
      const std::string up = bridge + "/" + domain + ":0" + std::to_string(port) + ".0/" + bus + ":00.0/";
      machine.gpus.push_back(
          {up + bus + ":08.0/0000:4" + std::to_string(port) + ":0" + std::to_string(node) + ".0", node});
      machine.gpus.push_back(
          {up + bus + ":10.0/0000:5" + std::to_string(port) + ":0" + std::to_string(node) + ".0", node});
    }
  }
  machine.nics = {{"mlx4_0", "pci0000:00/0000:00:01.0/0000:07:00.0", 0, "56 Gb/sec (4X FDR)", "InfiniBand"}};
  return machine;
}

// A virtual machine with two T4 on one host bridge, as clouds rent them.
inline Recording t4_cloud() {
  Recording machine{.vendor = "GenuineIntel", .model = "Intel(R) Xeon(R) CPU @ 2.00GHz"};
  machine.nodes = {"0-15"};
  machine.sockets = machine.complexes = machine.nodes;
  machine.gpu_name = "Tesla T4";
  machine.major = 7;
  machine.minor = 5;
  machine.generation = 3;
  machine.width = 16;
  machine.gpus = {{"pci0000:00/0000:00:04.0", -1}, {"pci0000:00/0000:00:05.0", -1}};
  machine.nics = {{"eth0", "pci0000:00/0000:00:06.0", -1, "", "", true, 32000}};
  return machine;
}

// Eight A100 on a rented two-socket machine, a pair behind each PCIe switch with two cards beside it.
// (nvidia/nccl issue 707; its virtual functions are left out.)
inline Recording hgx_a100() {
  Recording machine{.vendor = "GenuineIntel", .model = "Intel(R) Xeon(R) Platinum 8336C CPU @ 2.30GHz"};
  machine.nodes = {"0-47,96-143", "48-95,144-191"};
  machine.sockets = machine.complexes = machine.nodes;
  machine.threads_per_core = 2;
  machine.gpu_name = "NVIDIA A100-SXM4-80GB";
  machine.major = 8;
  machine.generation = 4;
  machine.width = 16;
  int card = 0;
  for (const auto& [bus, node] : {std::pair<std::string, int>{"10", 0}, {"20", 0}, {"80", 1}, {"90", 1}}) {
    const std::string top = "pci0000:" + bus + "/0000:" + bus + ":02.0/0000:" + bus.substr(0, 1) + "1:00.0/";
    for (const int slot : {0, 1}) {
      const std::string below = top + "0000:" + bus.substr(0, 1) + "2:0" + std::to_string(slot) +
                                ".0/0000:" + bus.substr(0, 1) + std::to_string(3 + slot) + ":00.0/";
      machine.gpus.push_back({below + "0000:" + bus.substr(0, 1) + "5:00.0/0000:" + bus.substr(0, 1) +
                                  std::to_string(6 + slot) + ":00.0",
                              node, 12});
    }
    for (const int port : {0, 1}) {
      machine.nics.push_back({"mlx5_" + std::to_string(card++),
                              top + "0000:" + bus.substr(0, 1) + "2:08.0/0000:" + bus.substr(0, 1) + "9:00." +
                                  std::to_string(port),
                              node, "100 Gb/sec (4X EDR)", "Ethernet"});
    }
  }
  return machine;
}

// A home-built machine of two nodes: one card alone on the second, two pairs on host bridges of the first.
// (noonghunna/club-3090 issue 46.)
inline Recording five_cards() {
  Recording machine{.vendor = "AuthenticAMD", .model = "AMD Ryzen Threadripper 2950X 16-Core Processor"};
  machine.nodes = {"0-7,16-23", "8-15,24-31"};
  machine.sockets = {"0-31"};
  machine.complexes = {"0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"};
  machine.threads_per_core = 2;
  machine.gpu_name = "NVIDIA GeForce RTX 4090";
  machine.major = 8;
  machine.minor = 9;
  machine.generation = 3;
  machine.width = 16;
  machine.peer_access = false;
  machine.gpus = {{"pci0000:40/0000:40:01.1/0000:41:00.0", 1},
                  {"pci0000:00/0000:00:01.1/0000:01:00.0", 0},
                  {"pci0000:00/0000:00:03.1/0000:02:00.0", 0},
                  {"pci0000:20/0000:20:01.1/0000:21:00.0", 0},
                  {"pci0000:20/0000:20:03.1/0000:22:00.0", 0}};
  return machine;
}

// One GPU, a slow card for management and a fast one; a bridge for virtual machines has an address too.
inline Recording two_nics() {
  Recording machine = t4_cloud();
  machine.gpus.resize(1);
  machine.nics = {{"eno1", "pci0000:00/0000:00:1f.6", 0, "", "", true, 1000},
                  {"ens3", "pci0000:00/0000:00:02.0/0000:03:00.0", 0, "", "", true, 100000}};
  machine.virtuals = {{"lo"}, {"virbr0"}, {"docker0"}};
  return machine;
}

inline Recording laptop() {
  Recording machine{.vendor = "GenuineIntel", .model = "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz"};
  machine.nodes = machine.sockets = machine.complexes = {"0-7"};
  machine.threads_per_core = 2;
  machine.nics = {{"wlp0s20f3", "pci0000:00/0000:00:14.3", -1, "", "", true, -1}};
  machine.virtuals = {{"lo"}};
  return machine;
}

}  // namespace lockstep::device::testing

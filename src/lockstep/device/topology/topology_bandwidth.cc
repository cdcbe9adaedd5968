#include "lockstep/device/topology/topology_bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace lockstep::device {
namespace {

// One link, one direction. Peaks: NVIDIA's figures for both directions of all links of a GPU (P100 160 GB/s
// of 4, V100 300 of 6, A100 600 of 12, H100 900 of 18, B200 1800 of 18, RTX 3090 and A40 112.5 of 4), halved
// and divided. Expected: SM*_NVLINK_BW in NCCL 2.27's src/graph/topo.h.
struct NvLinkRow {
  int capability;  // 10 * major + minor, from this one on
  LinkSpeed speed;
};
constexpr NvLinkRow kNvLinks[] = {
    {60, {20, 18}}, {70, {25, 20}}, {80, {25, 20}}, {86, {14.0625, 12}}, {90, {25, 20.6}}, {100, {50, 40.1}},
};

// One lane, one direction. Peaks: PCI-SIG's transfer rates (2.5, 5, 8, 16, 32, 64 GT/s) with 8b/10b, from
// generation 3 on 128b/130b, and in 6 flits of 242 in 256 bytes. Expected: NCCL reckons with 12 GB/s for 16
// lanes of generation 3 and doubles it with each (PCI_BW in topo.h, kvDictPciGen in topo.cc).
constexpr LinkSpeed kLanes[] = {
    {0.25, 3.0 / 16},    {0.5, 6.0 / 16},     {0.9846, 12.0 / 16},
    {1.9692, 24.0 / 16}, {3.9385, 48.0 / 16}, {7.5625, 96.0 / 16},
};

LinkSpeed times(const LinkSpeed& one, double count) { return {one.peak * count, one.expected * count}; }

// A part that is not known limits nothing.
LinkSpeed slower(const LinkSpeed& a, const LinkSpeed& b) {
  if (a.expected == 0 || b.expected == 0) return a.expected == 0 ? b : a;
  return a.expected <= b.expected ? a : b;
}

LinkSpeed slot_speed(const Topology& machine, int device) {
  const size_t index = static_cast<size_t>(device);
  if (index >= machine.gpus.size()) return nic_speed(machine.nics[index - machine.gpus.size()].gbits);
  return pcie_speed(machine.gpus[index].pcie_generation, machine.gpus[index].pcie_width);
}

}  // namespace

LinkSpeed nvlink_speed(int major, int minor, int links) {
  LinkSpeed found;
  for (const NvLinkRow& row : kNvLinks) {
    if (row.capability <= 10 * major + minor) found = row.speed;
  }
  return times(found, links);
}

LinkSpeed pcie_speed(int generation, int width) {
  if (generation < 1 || width < 1 || width > 32) return {};
  const auto newest = static_cast<int>(std::size(kLanes));
  return times(kLanes[std::min(generation, newest) - 1], width);
}

// A tenth goes to headers and the protocol.
LinkSpeed nic_speed(double gbits) { return gbits > 0 ? LinkSpeed{gbits / 8, 0.9 * gbits / 8} : LinkSpeed{}; }

// AMD_BW and SKL_QPI_BW of topo.h. What the sockets could do at best differs by model and is not told.
LinkSpeed socket_speed(const std::string& cpu_vendor) {
  if (cpu_vendor == "AuthenticAMD") return {0, 16};
  if (cpu_vendor == "GenuineIntel") return {0, 10};
  return {};
}

LinkSpeed expected_bandwidth(const Topology& machine, int a, int b) {
  const Link link = machine.link(a, b);
  if (link.kind == LinkKind::self) return {};
  if (link.kind == LinkKind::nvlink) {
    const Gpu &first = machine.gpus[static_cast<size_t>(a)], &second = machine.gpus[static_cast<size_t>(b)];
    return slower(nvlink_speed(first.major, first.minor, link.nvlinks),
                  nvlink_speed(second.major, second.minor, link.nvlinks));
  }
  const LinkSpeed slots = slower(slot_speed(machine, a), slot_speed(machine, b));
  return link.kind == LinkKind::sys ? slower(slots, socket_speed(machine.cpu_vendor)) : slots;
}

std::string slow_link(const Topology& machine, int ranks, double measured) {
  constexpr double kEnough = 0.7;  // of what large copies reach: a ring has its own costs
  if (ranks < 2 || static_cast<int>(machine.visible.size()) < ranks) return "";
  double expected = 0;
  int from = -1, to = -1;
  for (int k = 0; k < ranks; ++k) {
    const int a = machine.visible[static_cast<size_t>(k)],
              b = machine.visible[static_cast<size_t>((k + 1) % ranks)];
    const double speed = expected_bandwidth(machine, a, b).expected;
    if (speed <= 0) return "";
    if (from < 0 || speed < expected) expected = speed, from = a, to = b;
  }
  if (measured >= kEnough * expected) return "";
  return fmt::format(
      "{:.1f} GB/s is low for {} between {} and {}, which should reach about {:.0f}: check for other work on "
      "the GPUs, a link below its full width (`lockstep topo`), and NCCL_* variables that disable a path",
      measured, label(machine.link(from, to)), machine.device_name(from), machine.device_name(to), expected);
}

}  // namespace lockstep::device

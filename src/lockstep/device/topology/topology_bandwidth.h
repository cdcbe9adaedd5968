// What a link of its kind should give, so that a measured one can be called slow.
//
//     const LinkSpeed speed = expected_bandwidth(machine, 0, 1);
//     if (measured < 0.8 * speed.expected) ...
#pragma once

#include "lockstep/device/topology/topology.h"

namespace lockstep::device {

struct LinkSpeed {      // GB/s (1e9 bytes) in one direction; 0: not known
  double peak = 0;      // of the wire, after its line code
  double expected = 0;  // what large copies reach, as NCCL's own model has it
};

LinkSpeed nvlink_speed(int major, int minor, int links);  // of GPUs of this compute capability
LinkSpeed pcie_speed(int generation, int width);
LinkSpeed nic_speed(double gbits);
// Between two processors' sockets, for what crosses them; by vendor, as NCCL prices it.
LinkSpeed socket_speed(const std::string& cpu_vendor);

// Between two devices of the machine: the slowest part of the way.
LinkSpeed expected_bandwidth(const Topology& machine, int a, int b);

// A sentence when GPUs [0, ranks) of the visible ones move less than the slowest link between neighbours of a
// ring over them should carry; empty when they do, or when nothing is known. `measured`: bus bandwidth of
// large messages.
std::string slow_link(const Topology& machine, int ranks, double measured);

}  // namespace lockstep::device

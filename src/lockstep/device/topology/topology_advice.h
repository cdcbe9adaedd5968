// What NCCL will probably do on this machine, and which of its variables are worth setting, each with the
// fact that makes it so. Where NCCL's own choice is right there is nothing to say.
#pragma once

#include "lockstep/device/topology/topology.h"

namespace lockstep::device {

struct Transport {
  enum class Kind {
    nvlink,
    peer,
    host_memory
  };  // GPUs write to each other over PCIe; or a CPU buffer between
  Kind kind = Kind::host_memory;
  std::string why;  // when it is not the nearest way there is
};
const char* name_of(Transport::Kind kind);
Transport nccl_transport(const Topology& machine, int gpu_a, int gpu_b);

// Towards other machines: "verbs over mlx5_0, GPUDirect RDMA", "sockets over eth0".
std::string nccl_network(const Topology& machine);

struct Advice {
  std::string variable, value;  // an empty value: unset it
  std::string why;
};
std::vector<Advice> nccl_advice(const Topology& machine);

}  // namespace lockstep::device

// Which of this machine's addresses and network interfaces Gloo and NCCL should use.
#pragma once

#include <string>

namespace lockstep::comm {

// The own address from which `endpoint` ("host:port", "[::1]:29400") is reached: what the routing table says,
// nothing is sent. Empty when it cannot be told.
std::string address_towards(const std::string& endpoint);

// The name of the interface that has this address, or the argument itself when it is such a name; empty:
// there is none.
std::string interface_name(const std::string& name_or_address);

}  // namespace lockstep::comm

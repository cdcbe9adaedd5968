// Where the first node of a scheduler's job is: what its name resolves to, else what the scheduler says.
//
//     first_host(scheduled, ask_slurm)   // "n1", or "10.0.0.1" where only Slurm knows n1
//
// A node's name in Slurm need not be a host's name: NodeAddr in its configuration says where it is. All nodes
// are told the same, so they find each other.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/launch/schedulers/environment.h"

namespace lockstep::launch {

// What `scontrol show node NAME` prints; empty when it cannot be asked.
using AskScheduler = std::function<std::string(const std::string& node)>;
std::string ask_slurm(const std::string& node);

// ConfigError 555: neither the resolver nor Slurm knows the node, so that nobody could be met there.
std::string first_host(const Scheduled& scheduled, const AskScheduler& ask = ask_slurm);

// The value of NodeAddr in scontrol's answer. Nothing: it has none.
std::optional<std::string> node_addr_in(std::string_view answer);

}  // namespace lockstep::launch

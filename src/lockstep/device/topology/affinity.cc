#include "lockstep/device/topology/affinity.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::device {
namespace {

constexpr Binding kBindings[] = {Binding::none, Binding::node, Binding::socket, Binding::core_complex};

// A set of as many processors as the machine may have: the kernel's fixed size ends at 1024.
class CpuSet {
 public:
  explicit CpuSet(int cpus)
      : cpus_(static_cast<size_t>(cpus)), bytes_(CPU_ALLOC_SIZE(cpus_)), set_(CPU_ALLOC(cpus_)) {
    if (set_ == nullptr) throw std::bad_alloc();
    CPU_ZERO_S(bytes_, set_.get());
  }
  void add(int cpu) { CPU_SET_S(static_cast<size_t>(cpu), bytes_, set_.get()); }
  bool has(int cpu) const {
    return static_cast<size_t>(cpu) < cpus_ && CPU_ISSET_S(static_cast<size_t>(cpu), bytes_, set_.get());
  }
  bool read() { return ::sched_getaffinity(0, bytes_, set_.get()) == 0; }
  int bind_this_thread() const { return ::sched_setaffinity(0, bytes_, set_.get()) == 0 ? 0 : errno; }

 private:
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  size_t cpus_, bytes_;
  std::unique_ptr<cpu_set_t, Free> set_;
};

Cpus common_of(const Cpus& a, const Cpus& b) {
  Cpus both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

std::vector<Cpus> groups_of(Binding binding, const CpuParts& cpu) {
  if (binding == Binding::socket) return cpu.sockets;
  if (binding == Binding::core_complex) return cpu.core_complexes;
  std::vector<Cpus> nodes;
  for (const NumaNode& node : cpu.nodes) nodes.push_back(node.cpus);
  return nodes;
}

// What this process may use of the groups that overlap `home`, or of all when there is none.
std::vector<Cpus> usable_of(const std::vector<Cpus>& groups, const Cpus& home, const Cpus& allowed) {
  std::vector<Cpus> usable;
  for (const Cpus& group : groups) {
    if (!home.empty() && common_of(group, home).empty()) continue;
    if (Cpus cpus = common_of(group, allowed); !cpus.empty()) usable.push_back(std::move(cpus));
  }
  std::sort(usable.begin(), usable.end());
  return usable;
}

// The processors near a rank's GPU; none: it has none, or they are not known.
Cpus home_of(int rank, const Topology& machine) {
  if (rank >= static_cast<int>(machine.visible.size())) return {};
  const Locality& near = machine.gpus[static_cast<size_t>(machine.visible[static_cast<size_t>(rank)])].near;
  for (const NumaNode& node : machine.cpu.nodes) {
    if (node.id == near.node) return node.cpus;
  }
  return near.cpus;
}

// Among ranks with the same home, which this one is.
int turn_of(int rank, const Cpus& home, const Topology& machine) {
  int before = 0;
  for (int other = 0; other < rank; ++other) before += home_of(other, machine) == home ? 1 : 0;
  return before;
}

}  // namespace

const char* name_of(Binding binding) {
  switch (binding) {
    case Binding::none:
      return "none";
    case Binding::node:
      return "node";
    case Binding::socket:
      return "socket";
    case Binding::core_complex:
      break;
  }
  return "core-complex";
}

Binding parse_binding(std::string_view text) {
  for (const Binding binding : kBindings) {
    if (text == name_of(binding)) return binding;
  }
  if (text == "core_complex") return Binding::core_complex;
  throw base::ConfigError(
      430, fmt::format("unknown binding {}: use none, node, socket or core-complex", base::quoted(text)));
}

Cpus cpus_for(Binding binding, int local_rank, int local_world, const Topology& machine) {
  LS_ASSERT(local_rank >= 0 && local_rank < local_world);
  if (binding == Binding::none) return {};
  const Cpus home = home_of(local_rank, machine);
  const std::vector<Cpus> groups = usable_of(groups_of(binding, machine.cpu), home, machine.cpu.cpus);
  if (groups.empty()) {
    throw base::ConfigError(431, fmt::format("local rank {} should run on processors {}, but this job may "
                                             "use only {}: request more processors, or omit --numa-binding",
                                             local_rank, home.empty() ? "that are not known" : cpu_list(home),
                                             machine.cpu.cpus.empty() ? "none" : cpu_list(machine.cpu.cpus)));
  }
  const auto count = static_cast<int>(groups.size());
  const int64_t group = home.empty() ? static_cast<int64_t>(local_rank) * count / local_world
                                     : turn_of(local_rank, home, machine) % count;
  return groups[static_cast<size_t>(group)];
}

Cpus allowed_of(const Cpus& cpus) {
  Cpus allowed;
  CpuSet set(1 << 14);
  if (!set.read()) return cpus;
  std::copy_if(cpus.begin(), cpus.end(), std::back_inserter(allowed), [&](int cpu) { return set.has(cpu); });
  return allowed;
}

void bind_this_thread(const Cpus& cpus) {
  if (cpus.empty()) return;
  CpuSet set(cpus.back() + 1);
  for (const int cpu : cpus) set.add(cpu);
  if (const int error = set.bind_this_thread()) {
    throw base::IoError(
        432, fmt::format("cannot pin to processors {}: {}; omit --numa-binding, or let this job use them",
                         cpu_list(cpus), std::strerror(error)));
  }
}

}  // namespace lockstep::device

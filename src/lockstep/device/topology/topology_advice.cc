#include "lockstep/device/topology/topology_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lockstep/base/text.h"

namespace lockstep::device {
namespace {

using Advices = std::vector<Advice>;

bool is_set(const Topology& machine, const char* name) { return machine.variables.count(name) > 0; }

bool is_switched_on(const Topology& machine, const char* name) {
  const auto it = machine.variables.find(name);
  return it != machine.variables.end() && it->second == "1";
}

// NCCL's word for a distance. It has none for two host bridges of one node: that is its PHB too.
std::optional<LinkKind> level_of(const std::string& text) {
  if (text == "LOC") return LinkKind::self;
  if (text == "NVL") return LinkKind::nvlink;
  if (text == "PIX") return LinkKind::pix;
  if (text == "PXB") return LinkKind::pxb;
  if (text == "PHB") return LinkKind::node;
  return text == "SYS" ? std::optional(LinkKind::sys) : std::nullopt;
}

// The farthest GPUs that write to each other (ncclTopoCheckP2p): not across a host bridge, but on AMD any two
// when there are no more.
LinkKind peer_limit(const Topology& machine) {
  if (is_switched_on(machine, "NCCL_P2P_DISABLE")) return LinkKind::self;
  if (const auto it = machine.variables.find("NCCL_P2P_LEVEL"); it != machine.variables.end()) {
    if (const auto level = level_of(it->second)) return *level;
  }
  const bool pair_on_amd = machine.cpu_vendor == "AuthenticAMD" && machine.gpus.size() <= 2;
  return pair_on_amd ? LinkKind::sys : LinkKind::pxb;
}

bool can_access(const Topology& machine, int a, int b) {
  return machine.peer_access[static_cast<size_t>(a)][static_cast<size_t>(b)];
}

template <class Body>
void for_pairs(const Topology& machine, const Body& body) {
  const int count = static_cast<int>(machine.gpus.size());
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) body(a, b, machine.link(a, b));
  }
}

std::vector<const Nic*> verbs_cards(const Topology& machine) {
  std::vector<const Nic*> cards;
  if (is_switched_on(machine, "NCCL_IB_DISABLE")) return cards;
  for (const Nic& nic : machine.nics) {
    if (nic.has_verbs() && nic.up) cards.push_back(&nic);
  }
  return cards;
}

// The nearest link of a GPU to a card that is up and has verbs.
LinkKind nearest_card(const Topology& machine, int gpu) {
  LinkKind nearest = LinkKind::sys;
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    if (!machine.nics[i].has_verbs() || !machine.nics[i].up) continue;
    nearest = std::min(nearest, machine.link(gpu, static_cast<int>(machine.gpus.size() + i)).kind);
  }
  return nearest;
}

// What NCCL takes for sockets: it leaves out lo and docker*, and prefers ib*.
std::vector<const NetInterface*> socket_interfaces(const Topology& machine) {
  std::vector<const NetInterface*> found, infiniband;
  for (const NetInterface& interface : machine.interfaces) {
    const std::string& name = interface.name;
    if (!interface.up || !interface.has_route || name.starts_with("lo") || name.starts_with("docker"))
      continue;
    (name.starts_with("ib") ? infiniband : found).push_back(&interface);
  }
  return infiniband.empty() ? found : infiniband;
}

template <class Item>
std::string names_of(const std::vector<const Item*>& items) {
  std::vector<std::string> names;
  for (const Item* item : items) names.push_back(item->name);
  return base::join(names, ",");
}

std::string speed_of(double gbits) { return gbits > 0 ? fmt::format("{:g} Gb/s", gbits) : "unknown speed"; }

void advise_what_to_unset(const Topology& machine, Advices& advices) {
  int nvlink_pairs = 0, peer_pairs = 0;
  for_pairs(machine, [&](int a, int b, const Link& link) {
    nvlink_pairs += link.kind == LinkKind::nvlink ? 1 : 0;
    peer_pairs += link.kind <= LinkKind::pxb && can_access(machine, a, b) ? 1 : 0;
  });
  if (is_switched_on(machine, "NCCL_P2P_DISABLE") && peer_pairs > 0) {
    advices.push_back(
        {"NCCL_P2P_DISABLE", "",
         nvlink_pairs > 0
             ? fmt::format("it is set and keeps {} pairs of GPUs from using NVLink", nvlink_pairs)
             : fmt::format("it is set, but {} pairs of GPUs support peer access", peer_pairs)});
  }
  const auto has_card = [](const Nic& nic) { return nic.has_verbs() && nic.up; };
  if (is_switched_on(machine, "NCCL_IB_DISABLE") &&
      std::any_of(machine.nics.begin(), machine.nics.end(), has_card)) {
    advices.push_back(
        {"NCCL_IB_DISABLE", "", "it is set, but this machine has InfiniBand or RoCE cards that are up"});
  }
}

// Pairs that could write to each other through one host bridge or node, which NCCL does not try by itself.
// Across sockets the way through host memory is as good, so that is not advised.
void advise_peer_level(const Topology& machine, Advices& advices) {
  if (is_set(machine, "NCCL_P2P_LEVEL") || is_set(machine, "NCCL_P2P_DISABLE")) return;
  int pairs = 0, first_a = 0, first_b = 0;
  for_pairs(machine, [&](int a, int b, const Link& link) {
    const bool missed =
        link.kind > peer_limit(machine) && link.kind <= LinkKind::node && can_access(machine, a, b);
    if (!missed) return;
    if (pairs++ == 0) first_a = a, first_b = b;
  });
  if (pairs == 0) return;
  advices.push_back(
      {"NCCL_P2P_LEVEL", "PHB",
       fmt::format(
           "the driver allows peer access between GPU{} and GPU{} ({} such {}), but NCCL by default stops at "
           "{} and copies through host memory; measure both with `lockstep bench collectives`",
           first_a, first_b, pairs, pairs == 1 ? "pair" : "pairs", name_of(peer_limit(machine)))});
}

// Unequal cards: NCCL would use all of them, and each ring is as fast as its slowest card.
void advise_cards(const Topology& machine, Advices& advices) {
  const std::vector<const Nic*> cards = verbs_cards(machine);
  if (is_set(machine, "NCCL_IB_HCA") || cards.size() < 2) return;
  const auto better = [](const Nic* a, const Nic* b) {
    return std::pair(a->gbits, a->kind == Nic::Kind::infiniband) <
           std::pair(b->gbits, b->kind == Nic::Kind::infiniband);
  };
  const Nic* best = *std::max_element(cards.begin(), cards.end(), better);
  std::vector<const Nic*> use, leave;
  for (const Nic* card : cards) (better(card, best) ? leave : use).push_back(card);
  if (leave.empty()) return;
  const Nic* other = leave.front();
  // '=': exact names; without it mlx5_1 would also be mlx5_10.
  advices.push_back(
      {"NCCL_IB_HCA", "=" + names_of(use),
       fmt::format(
           "{} runs {} at {}, the others {} at {}; NCCL would use both kinds at the speed of the slower",
           other->name, name_of(other->kind), speed_of(other->gbits), name_of(best->kind),
           speed_of(best->gbits))});
}

// By itself NCCL lets a card reach into a GPU (GPUDirect RDMA) no farther than PXB.
void advise_gdr_level(const Topology& machine, Advices& advices) {
  if (is_set(machine, "NCCL_NET_GDR_LEVEL") || verbs_cards(machine).empty()) return;
  for (int gpu = 0; gpu < static_cast<int>(machine.gpus.size()); ++gpu) {
    if (nearest_card(machine, gpu) != LinkKind::phb) continue;
    advices.push_back({"NCCL_NET_GDR_LEVEL", "PHB",
                       fmt::format("GPU{} and its nearest network card are connected through the host "
                                   "bridge, one step beyond where NCCL uses GPUDirect RDMA by default; "
                                   "measure both, since not every host bridge handles it well",
                                   gpu)});
    return;
  }
}

void advise_interface(const Topology& machine, Advices& advices) {
  const std::vector<const NetInterface*> candidates = socket_interfaces(machine);
  if (is_set(machine, "NCCL_SOCKET_IFNAME") || candidates.size() < 2) return;
  const auto better = [](const NetInterface* a, const NetInterface* b) {
    return std::pair(a->is_physical, a->gbits) < std::pair(b->is_physical, b->gbits);
  };
  const NetInterface* best = *std::max_element(candidates.begin(), candidates.end(), better);
  std::vector<const NetInterface*> use, leave;
  for (const NetInterface* candidate : candidates)
    (better(candidate, best) ? leave : use).push_back(candidate);
  if (leave.empty()) return;
  const NetInterface* other = leave.front();
  const std::string why =
      other->is_physical ? fmt::format("{} is {}, {} is {}; NCCL would use both and connect over the first",
                                       other->name, speed_of(other->gbits), best->name, speed_of(best->gbits))
                         : fmt::format(
                               "{} also has an address but is not a physical card: other machines may not "
                               "reach it, and NCCL skips only lo and docker*",
                               other->name);
  advices.push_back({"NCCL_SOCKET_IFNAME", "=" + names_of(use), why});
}

}  // namespace

const char* name_of(Transport::Kind kind) {
  if (kind == Transport::Kind::nvlink) return "NVLink";
  return kind == Transport::Kind::peer ? "PCIe, GPU to GPU" : "host memory";
}

Transport nccl_transport(const Topology& machine, int gpu_a, int gpu_b) {
  using Kind = Transport::Kind;
  const LinkKind link = machine.link(gpu_a, gpu_b).kind;
  const LinkKind limit = peer_limit(machine);
  if (link > limit) {
    if (is_switched_on(machine, "NCCL_P2P_DISABLE")) return {Kind::host_memory, "NCCL_P2P_DISABLE is set"};
    return {Kind::host_memory, fmt::format("{} is farther than {}", name_of(link), name_of(limit))};
  }
  if (!can_access(machine, gpu_a, gpu_b)) return {Kind::host_memory, "the driver does not allow peer access"};
  return {link == LinkKind::nvlink ? Kind::nvlink : Kind::peer, ""};
}

std::string nccl_network(const Topology& machine) {
  const std::vector<const Nic*> cards = verbs_cards(machine);
  if (cards.empty()) {
    const std::string names = names_of(socket_interfaces(machine));
    return names.empty() ? "no interface is up: this machine only" : "sockets over " + names;
  }
  int direct = 0;
  const int count = static_cast<int>(machine.gpus.size());
  for (int gpu = 0; gpu < count; ++gpu) direct += nearest_card(machine, gpu) <= LinkKind::pxb ? 1 : 0;
  const std::string reach = count == 0        ? ""
                            : direct == count ? ", GPUDirect RDMA if nvidia_peermem is loaded"
                            : direct == 0     ? ", through host memory"
                                          : fmt::format(", GPUDirect RDMA for {} of {} GPUs", direct, count);
  return fmt::format("verbs over {}{}", names_of(cards), reach);
}

Advices nccl_advice(const Topology& machine) {
  Advices advices;
  if (machine.gpus.empty()) return advices;  // without GPUs, no NCCL
  advise_what_to_unset(machine, advices);
  advise_peer_level(machine, advices);
  advise_cards(machine, advices);
  advise_gdr_level(machine, advices);
  advise_interface(machine, advices);
  return advices;
}

}  // namespace lockstep::device

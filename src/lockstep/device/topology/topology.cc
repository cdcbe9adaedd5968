#include "lockstep/device/topology/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"

namespace lockstep::device {
namespace {

constexpr int kMostCpus = 1 << 16;  // a list that names more is no list of processors

bool are_hex(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

// "0000:07:00.0"; domains of virtual machines have up to eight digits.
bool is_pci_address(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == std::string_view::npos || dot < 9 || !are_hex(text.substr(dot + 1))) return false;
  return text[dot - 3] == ':' && text[dot - 6] == ':' && are_hex(text.substr(dot - 2, 2)) &&
         are_hex(text.substr(dot - 5, 2)) && are_hex(text.substr(0, dot - 6));
}

bool is_host_bridge(std::string_view text) {
  return text.starts_with("pci") && text.size() > 6 && text[text.size() - 3] == ':';
}

bool read_number(std::string_view& text, int& value) {
  value = base::take_number<int>(text).value_or(-1);
  return value >= 0 && value < kMostCpus;
}

}  // namespace

const char* name_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::self:
      return "X";
    case LinkKind::nvlink:
      return "NV#";
    case LinkKind::pix:
      return "PIX";
    case LinkKind::pxb:
      return "PXB";
    case LinkKind::phb:
      return "PHB";
    case LinkKind::node:
      return "NODE";
    case LinkKind::sys:
      break;
  }
  return "SYS";
}

const char* meaning_of(LinkKind kind) {
  switch (kind) {
    case LinkKind::self:
      return "itself";
    case LinkKind::nvlink:
      return "# NVLinks, bonded, directly or through NVSwitch";
    case LinkKind::pix:
      return "one PCIe switch";
    case LinkKind::pxb:
      return "several PCIe switches, not the processor";
    case LinkKind::phb:
      return "the processor's PCIe host bridge";
    case LinkKind::node:
      return "two host bridges of one NUMA node";
    case LinkKind::sys:
      break;
  }
  return "the interconnect between NUMA nodes";
}

std::string label(const Link& link) {
  return link.kind == LinkKind::nvlink ? fmt::format("NV{}", link.nvlinks) : name_of(link.kind);
}

const char* name_of(Nic::Kind kind) {
  if (kind == Nic::Kind::infiniband) return "InfiniBand";
  return kind == Nic::Kind::roce ? "RoCE" : "Ethernet";
}

PciPath parse_pci_path(std::string_view sysfs_path) {
  PciPath path;
  while (!sysfs_path.empty()) {
    const size_t slash = std::min(sysfs_path.find('/'), sysfs_path.size());
    const std::string_view part = sysfs_path.substr(0, slash);
    if (path.empty() ? is_host_bridge(part) : is_pci_address(part)) path.emplace_back(part);
    sysfs_path.remove_prefix(std::min(slash + 1, sysfs_path.size()));
  }
  return path.size() > 1 ? path : PciPath{};
}

Cpus parse_cpu_list(std::string_view text) {
  Cpus cpus;
  int first = 0;
  while (read_number(text, first)) {
    int last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!read_number(text, last)) break;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (!text.starts_with(',')) break;
    text.remove_prefix(1);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string cpu_list(const Cpus& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (end - i > 1) text += "-" + std::to_string(cpus[end - 1]);
    i = end;
  }
  return text;
}

Link pci_link(const PciPath& a, int node_a, const PciPath& b, int node_b) {
  const auto [split_a, split_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto common = split_a - a.begin();
  if (a.empty() || b.empty()) return {LinkKind::sys};
  if (common == 0) return {node_a == node_b ? LinkKind::node : LinkKind::sys};
  if (split_a == a.end() && split_b == b.end()) return {LinkKind::self};
  if (common == 1) return {LinkKind::phb};
  // Left below the split are the switch's port and the device, or, of one card's functions, less.
  const auto deepest = std::max(a.end() - split_a, b.end() - split_b);
  return {deepest <= 2 ? LinkKind::pix : LinkKind::pxb};
}

Link Topology::link(int a, int b) const {
  LS_ASSERT(a >= 0 && b >= 0 && a < devices() && b < devices());
  if (a == b) return {LinkKind::self};
  const int gpu_count = static_cast<int>(gpus.size());
  if (a < gpu_count && b < gpu_count) return gpu_links[static_cast<size_t>(a)][static_cast<size_t>(b)];
  struct Place {
    const PciPath& path;
    int node;
  };
  const auto place = [&](int device) -> Place {
    if (device < gpu_count)
      return {gpus[static_cast<size_t>(device)].path, gpus[static_cast<size_t>(device)].near.node};
    const Nic& nic = nics[static_cast<size_t>(device - gpu_count)];
    return {nic.path, nic.near.node};
  };
  const Link link = pci_link(place(a).path, place(a).node, place(b).path, place(b).node);
  return link.kind == LinkKind::self ? Link{LinkKind::pix} : link;  // two ports of one card
}

std::string Topology::device_name(int device) const {
  const int gpu_count = static_cast<int>(gpus.size());
  return device < gpu_count ? fmt::format("GPU{}", device) : fmt::format("NIC{}", device - gpu_count);
}

int node_with(const std::vector<NumaNode>& nodes, const Cpus& cpus) {
  int found = -1;
  for (const NumaNode& node : nodes) {
    const bool shares = std::any_of(cpus.begin(), cpus.end(), [&](int cpu) {
      return std::binary_search(node.cpus.begin(), node.cpus.end(), cpu);
    });
    if (!shares) continue;
    if (found >= 0) return -1;
    found = node.id;
  }
  return found;
}

}  // namespace lockstep::device

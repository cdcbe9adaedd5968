// lockstep topo: how this machine is wired, what NCCL will make of it, and what is worth telling NCCL.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"
#include "lockstep/device/topology/topology_advice.h"
#include "lockstep/device/topology/topology_bandwidth.h"
#include "lockstep/device/topology/topology_matrix.h"
#include "lockstep/device/topology/topology_read.h"
#include "lockstep/terminal/table.h"
#include "lockstep/terminal/terminal.h"

namespace lockstep::cli {
namespace {

using device::cpu_list;
using device::Topology;
using Json = nlohmann::ordered_json;

struct Pair {  // of GPUs
  int a = 0, b = 0;
  device::Link link;
  device::Transport transport;
  device::LinkSpeed speed;
};

std::vector<Pair> pairs_of(const Topology& machine) {
  std::vector<Pair> pairs;
  const int count = static_cast<int>(machine.gpus.size());
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      pairs.push_back({a, b, machine.link(a, b), device::nccl_transport(machine, a, b),
                       device::expected_bandwidth(machine, a, b)});
    }
  }
  return pairs;
}

std::string counted(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string cpu_text(const Topology& machine, size_t width) {
  const device::CpuParts& cpu = machine.cpu;
  size_t all = 0;
  for (const device::Cpus& core : cpu.cores) all += core.size();
  terminal::Table facts({});
  facts.add({"processor", machine.cpu_model.empty() ? "unknown" : machine.cpu_model});
  facts.add({"threads", fmt::format("{} of {} usable ({})", cpu.cpus.size(), all, cpu_list(cpu.cpus))});
  facts.add(
      {"built of",
       base::join({counted(cpu.sockets.size(), "socket"), counted(cpu.nodes.size(), "NUMA node"),
                   counted(cpu.core_complexes.size(), "shared cache"), counted(cpu.cores.size(), "core")},
                  ", ")});
  facts.add({"source", machine.cpu_source});
  terminal::Table nodes({"NUMA node", "memory", "threads"});
  for (const device::NumaNode& node : cpu.nodes) {
    nodes.add({std::to_string(node.id),
               node.bytes > 0 ? base::human_bytes(static_cast<double>(node.bytes)) : "?",
               cpu_list(node.cpus)});
  }
  return facts.to_text(width) + "\n" + nodes.to_text(width);
}

std::string device_text(const Topology& machine, size_t width) {
  terminal::Table devices({});
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const device::Gpu& gpu = machine.gpus[i];
    const std::string slot =
        gpu.pcie_width > 0 ? fmt::format(", PCIe {} x{}", gpu.pcie_generation, gpu.pcie_width) : "";
    devices.add({machine.device_name(static_cast<int>(i)), gpu.address, gpu.name + slot});
  }
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const device::Nic& nic = machine.nics[i];
    const std::string speed = nic.gbits > 0 ? fmt::format(", {:g} Gb/s", nic.gbits) : "";
    devices.add({machine.device_name(static_cast<int>(machine.gpus.size() + i)),
                 nic.path.empty() ? "" : nic.path.back(),
                 fmt::format("{}, {}{}{}", nic.name, name_of(nic.kind), speed, nic.up ? "" : ", down")});
  }
  return devices.to_text(width);
}

// Pairs that are alike share a line: 28 lines about one NVSwitch say no more than one.
std::string transport_text(const std::vector<Pair>& pairs, size_t width) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::vector<std::string>> members;
  for (const Pair& pair : pairs) {
    const std::string name = fmt::format("{}-{}", pair.a, pair.b);
    const std::string how =
        name_of(pair.transport.kind) + (pair.transport.why.empty() ? "" : " (" + pair.transport.why + ")");
    const std::string speed = pair.speed.expected > 0 ? fmt::format("{:.0f} GB/s", pair.speed.expected) : "?";
    std::vector<std::string> row = {label(pair.link), speed, how};
    const auto at = std::find(rows.begin(), rows.end(), row);
    if (at == rows.end()) members.emplace_back();
    members[static_cast<size_t>(at - rows.begin())].push_back(name);
    if (at == rows.end()) rows.push_back(std::move(row));
  }
  terminal::Table table({"link", "should give", "NCCL's way", "pairs"});
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string all = members[i].size() == pairs.size() ? "all" : base::join(members[i], " ");
    table.add({rows[i][0], rows[i][1], rows[i][2], all});
  }
  return table.to_text(width);
}

std::string advice_text(const std::vector<device::Advice>& advices, size_t width) {
  if (advices.empty()) return "none: NCCL's defaults suit this machine\n";
  terminal::Table table({});
  for (const device::Advice& advice : advices) {
    // Quoted: a shell may make something else of a leading '='.
    const std::string value = advice.value.starts_with('=') ? "'" + advice.value + "'" : advice.value;
    table.add(
        {value.empty() ? "unset " + advice.variable : fmt::format("export {}={}", advice.variable, value),
         advice.why});
  }
  return table.to_text(width);
}

void print_text(const Topology& machine) {
  const size_t width = terminal::terminal_of(STDOUT_FILENO).width;
  if (machine.devices() > 1) {
    print("{}\n", device::aligned(link_matrix(machine)));
    terminal::Table legend({});
    for (const device::LinkKind kind : kinds_in(machine)) legend.add({name_of(kind), meaning_of(kind)});
    print("{}\n", legend.to_text(width));
  }
  if (machine.devices() > 0) print("{}\n", device_text(machine, width));
  print("{}", cpu_text(machine, width));
  if (machine.gpus.empty()) {
    print("\nno NVIDIA GPU: ranks here are processes on the CPU\n");
    return;
  }
  print("\nBetween GPUs\n{}",
        machine.gpus.size() > 1 ? transport_text(pairs_of(machine), width) : "only one GPU\n");
  print("\nTo other machines\n{}\n", nccl_network(machine));
  print("\nWorth setting\n{}", advice_text(nccl_advice(machine), width));
}

Json near_json(const device::Locality& near) {
  return {{"numa_node", near.node < 0 ? Json() : Json(near.node)}, {"cpus", cpu_list(near.cpus)}};
}

Json cpu_json(const Topology& machine) {
  const auto lists = [](const std::vector<device::Cpus>& groups) {
    Json all = Json::array();
    for (const device::Cpus& cpus : groups) all.push_back(cpu_list(cpus));
    return all;
  };
  Json nodes = Json::array();
  for (const device::NumaNode& node : machine.cpu.nodes) {
    nodes.push_back({{"node", node.id}, {"cpus", cpu_list(node.cpus)}, {"bytes", node.bytes}});
  }
  return {{"model", machine.cpu_model},
          {"vendor", machine.cpu_vendor},
          {"source", machine.cpu_source},
          {"usable", cpu_list(machine.cpu.cpus)},
          {"numa_nodes", nodes},
          {"sockets", lists(machine.cpu.sockets)},
          {"core_complexes", lists(machine.cpu.core_complexes)},
          {"cores", machine.cpu.cores.size()}};
}

Json devices_json(const Topology& machine) {
  Json devices = Json::array();
  for (const device::Gpu& gpu : machine.gpus) {
    devices.push_back({{"name", machine.device_name(static_cast<int>(devices.size()))},
                       {"kind", "gpu"},
                       {"model", gpu.name},
                       {"uuid", gpu.uuid},
                       {"pci", gpu.address},
                       {"pcie_generation", gpu.pcie_generation},
                       {"pcie_width", gpu.pcie_width},
                       {"near", near_json(gpu.near)}});
  }
  for (const device::Nic& nic : machine.nics) {
    devices.push_back({{"name", machine.device_name(static_cast<int>(devices.size()))},
                       {"kind", "nic"},
                       {"model", nic.name},
                       {"network", name_of(nic.kind)},
                       {"up", nic.up},
                       {"gbits", nic.gbits},
                       {"pci", nic.path.empty() ? "" : nic.path.back()},
                       {"interfaces", nic.interfaces},
                       {"near", near_json(nic.near)}});
  }
  return devices;
}

Json matrix_json(const Topology& machine) {
  Json matrix = Json::array();
  for (int a = 0; a < machine.devices(); ++a) {
    Json row = Json::array();
    for (int b = 0; b < machine.devices(); ++b) row.push_back(label(machine.link(a, b)));
    matrix.push_back(std::move(row));
  }
  return matrix;
}

Json nccl_json(const Topology& machine) {
  Json pairs = Json::array(), advice = Json::array();
  for (const Pair& pair : pairs_of(machine)) {
    pairs.push_back({{"gpus", {pair.a, pair.b}},
                     {"link", label(pair.link)},
                     {"transport", name_of(pair.transport.kind)},
                     {"why", pair.transport.why},
                     {"expected_gb_per_s", pair.speed.expected}});
  }
  for (const device::Advice& item : nccl_advice(machine)) {
    advice.push_back({{"variable", item.variable}, {"value", item.value}, {"why", item.why}});
  }
  return {{"pairs", pairs}, {"network", nccl_network(machine)}, {"advice", advice}};
}

void print_json(const Topology& machine) {
  Json json = {{"version", base::kVersion},
               {"cpu", cpu_json(machine)},
               {"devices", devices_json(machine)},
               {"matrix", matrix_json(machine)}};
  json["nccl"] = machine.gpus.empty() ? Json() : nccl_json(machine);
  print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

int topo_command(Arguments& arguments) {
  bool json = false;
  arguments.flag("--json", json, "print as JSON");
  arguments.example("lockstep topo", "the matrix of GPUs and network cards, and how NCCL will use it");
  if (!arguments.parse()) return 0;
  const Topology machine = device::read_topology();
  json ? print_json(machine) : print_text(machine);
  return 0;
}

}  // namespace lockstep::cli

#include "lockstep/device/topology/topology_matrix.h"

#include <algorithm>

#include "lockstep/base/text.h"

namespace lockstep::device {

std::vector<std::vector<std::string>> link_matrix(const Topology& machine) {
  std::vector<std::vector<std::string>> rows;
  if (machine.devices() == 0) return rows;
  rows.emplace_back(1);
  for (int device = 0; device < machine.devices(); ++device) rows[0].push_back(machine.device_name(device));
  rows[0].insert(rows[0].end(), {"CPU Affinity", "NUMA Affinity"});
  for (int a = 0; a < machine.devices(); ++a) {
    std::vector<std::string> row = {machine.device_name(a)};
    for (int b = 0; b < machine.devices(); ++b) row.push_back(label(machine.link(a, b)));
    if (static_cast<size_t>(a) < machine.gpus.size()) {
      const Locality& near = machine.gpus[static_cast<size_t>(a)].near;
      row.push_back(near.cpus.empty() ? "N/A" : cpu_list(near.cpus));
      row.push_back(near.node < 0 ? "N/A" : std::to_string(near.node));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], base::display_width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - base::display_width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::vector<LinkKind> kinds_in(const Topology& machine) {
  std::vector<LinkKind> kinds;
  for (const LinkKind kind : kLinkKinds) {
    bool occurs = false;
    for (int a = 0; a < machine.devices(); ++a) {
      for (int b = 0; b < machine.devices(); ++b) occurs = occurs || machine.link(a, b).kind == kind;
    }
    if (occurs) kinds.push_back(kind);
  }
  return kinds;
}

}  // namespace lockstep::device

#include "lockstep/see/histogram_log.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/see/run_events.h"

namespace lockstep::see {

namespace {

using nlohmann::json;

std::optional<std::vector<double>> numbers(const json& line, const char* name) {
  std::vector<double> values;
  if (!line.contains(name) || !line[name].is_array()) return std::nullopt;
  for (const json& one : line[name]) {
    if (!one.is_number()) return std::nullopt;
    values.push_back(one.get<double>());
  }
  return values;
}

double number(const json& line, const char* name) {
  return line.contains(name) && line[name].is_number() ? line[name].get<double>() : 0;
}

}  // namespace

std::optional<HistogramRow> parse_histogram(std::string_view text) {
  const json line = json::parse(text, nullptr, false);
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return std::nullopt;
  if (!line.contains("block") || !line["block"].is_string()) return std::nullopt;
  const auto edges = numbers(line, "edges"), counts = numbers(line, "counts");
  if (!edges || !counts || counts->empty() || edges->size() != counts->size() + 1) return std::nullopt;
  if (!std::is_sorted(edges->begin(), edges->end())) return std::nullopt;
  HistogramRow row{.step = line["step"].get<int64_t>(), .block = line["block"].get<std::string>()};
  if (line.contains("time") && line["time"].is_string())
    row.seconds = unix_seconds(line["time"].get<std::string>());
  row.count = number(line, "count"), row.smallest = number(line, "smallest");
  row.largest = number(line, "largest");
  row.edges = *edges, row.counts = *counts;
  return row;
}

std::vector<HistogramRow> HistogramLog::poll() {
  std::vector<HistogramRow> rows;
  std::ifstream file(path_, std::ios::binary | std::ios::ate);
  if (!file) return rows;
  const auto size = static_cast<int64_t>(file.tellg());
  if (size < offset_) offset_ = 0;  // it was cut; who reads has been told after which step
  file.seekg(offset_);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    offset_ += static_cast<int64_t>(line.size()) + 1;
    const auto row = parse_histogram(line);
    if (!row || row->step <= after_) continue;
    rows.push_back(*row);
  }
  if (!rows.empty()) after_ = std::max(after_, rows.back().step - 1);
  return rows;
}

}  // namespace lockstep::see

#include "lockstep/see/dash/receipt.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/run/folder/receipt.h"
#include "lockstep/see/receipt_parts.h"

namespace lockstep::see {

namespace {

using nlohmann::json;

constexpr int64_t kMostText = 1 << 20;

std::vector<double> numbers(const MetricTable& rows, std::string_view name) {
  std::vector<double> all;
  if (const std::vector<double>* column = rows.find(name))
    std::copy_if(column->begin(), column->end(), std::back_inserter(all),
                 [](double value) { return std::isfinite(value); });
  return all;
}

// [[name, value], ...], the largest first.
json parts_of(const json& forecast, const char* key) {
  std::vector<std::pair<std::string, double>> parts;
  const auto found = forecast.find(key);
  if (found == forecast.end() || !found->is_object()) return json::array();
  for (const auto& [name, value] : found->items()) {
    if (value.is_number() && value.get<double>() > 0) parts.emplace_back(name, value.get<double>());
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& one, const auto& other) { return one.second > other.second; });
  return parts;
}

json or_null(double value) { return std::isfinite(value) ? json(value) : json(); }

}  // namespace

json receipt_of(const std::string& folder, const MetricTable& rows) {
  std::error_code error;
  if (!std::filesystem::exists(folder + "/forecast.json", error)) return nullptr;
  try {
    const std::vector<double> memory = numbers(rows, "mem_gib");
    const run::Receipt r = run::compare_with_forecast(
        folder, {.step_ms = numbers(rows, "step_ms"),
                 .data_wait_ms = numbers(rows, "data_wait_ms"),
                 .memory_gib = memory.empty() ? 0 : *std::max_element(memory.begin(), memory.end())});
    const json forecast =
        json::parse(base::try_read_file(folder + "/forecast.json", kMostText).text, nullptr, false);
    json by_part = json::array();
    for (const ReceiptPart& part : receipt_parts(folder, r))
      by_part.push_back({{"part", part.name},
                         {"predicted_ms", part.predicted_ms},
                         {"actual_ms", part.actual_ms ? json(*part.actual_ms) : json()}});
    const bool memory_known = r.actual_memory_gib > 0;
    return {{"machine", r.machine},
            {"measured", r.measured},
            {"steps", r.steps},
            {"predicted_step_ms", or_null(r.predicted_step_ms)},
            {"actual_step_ms", or_null(r.actual_step_ms)},
            {"step_error", or_null(r.step_error())},
            {"predicted_memory_gib", or_null(r.predicted_memory_gib)},
            {"actual_memory_gib", memory_known ? json(r.actual_memory_gib) : json()},
            {"memory_error", memory_known ? or_null(r.memory_error()) : json()},
            {"why", r.why()},
            {"by_part", by_part},
            {"parts", forecast.is_object() ? parts_of(forecast, "parts") : json::array()},
            {"memory", forecast.is_object() ? parts_of(forecast, "memory") : json::array()}};
  } catch (const std::exception& wrong) {
    return {{"problem", wrong.what()}};
  }
}

}  // namespace lockstep::see

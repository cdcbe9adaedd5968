#include "lockstep/run/folder/receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::run {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr double kGib = 1 << 30;
constexpr double kNear = 0.03;

// Lines of steps; a line that is cut off or of another version is left out.
Logged read_metrics(const std::string& path) {
  Logged read;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const json row = json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("step_ms") || !row["step_ms"].is_number()) continue;
    read.step_ms.push_back(row["step_ms"].get<double>());
    if (row.contains("data_wait_ms") && row["data_wait_ms"].is_number())
      read.data_wait_ms.push_back(row["data_wait_ms"].get<double>());
    if (row.contains("mem_gib") && row["mem_gib"].is_number())
      read.memory_gib = std::max(read.memory_gib, row["mem_gib"].get<double>());
  }
  return read;
}

void leave_out_warm_up(std::vector<double>& step_ms) {
  const auto warm_up = static_cast<ptrdiff_t>(std::clamp<size_t>(step_ms.size() / 10, 1, 10));
  if (step_ms.size() > 1) step_ms.erase(step_ms.begin(), step_ms.begin() + warm_up);
}

double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const size_t at =
      std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

}  // namespace

void write_forecast(const std::string& folder, const Forecast& f, const ForecastFor& what) {
  ordered_json parts = ordered_json::object(), memory = ordered_json::object(),
               verbs = ordered_json::object();
  for (const plan::TimePart& part : f.verbs) verbs[part.name] = part.seconds * 1e3;
  for (const plan::TimePart& part : f.parts) parts[part.name] = part.seconds * 1e3;
  for (const plan::MemoryPart& part : f.memory) memory[part.name] = static_cast<double>(part.bytes) / kGib;
  const ordered_json text{{"machine", what.machine},
                          {"measured", what.measured},
                          {"layout", f.layout},
                          {"step_ms", f.step_seconds * 1e3},
                          {"parts", parts},
                          {"verbs", verbs},
                          {"memory_gib", static_cast<double>(f.peak_bytes) / kGib},
                          {"memory", memory},
                          {"mfu", f.mfu},
                          {"tokens_per_s", f.units_per_second()},
                          {"steps", f.steps},
                          {"hours", f.hours},
                          {"usd_per_hour", what.usd_per_hour},
                          {"error", f.error}};
  base::write_file_durable(folder + "/forecast.json", text.dump(2) + "\n");
}

Receipt read_receipt(const std::string& folder) {
  return compare_with_forecast(folder, read_metrics(folder + "/metrics.jsonl"));
}

Receipt compare_with_forecast(const std::string& folder, Logged logged) {
  const std::string path = folder + "/forecast.json";
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw base::ConfigError(
        573, fmt::format("{} has no forecast.json, which a run writes when it ends or is stopped: wait for "
                         "that, or name another run folder",
                         folder));
  }
  const json forecast = json::parse(base::read_file(path), nullptr, false);
  const auto number = [&](const char* key) {
    if (forecast.is_object() && forecast.contains(key) && forecast[key].is_number())
      return forecast[key].get<double>();
    throw base::ConfigError(573, fmt::format("{} is damaged: {} is missing; remove it", path, key));
  };
  Receipt receipt{.run = fs::path(folder).lexically_normal().filename().string()};
  if (receipt.run.empty())
    receipt.run = fs::path(folder).lexically_normal().parent_path().filename().string();
  receipt.predicted_step_ms = number("step_ms");
  receipt.predicted_memory_gib = number("memory_gib");
  const auto found = [&](const char* key) { return forecast.contains(key) ? forecast[key] : json(); };
  if (const json machine = found("machine"); machine.is_string())
    receipt.machine = machine.get<std::string>();
  receipt.measured = found("measured") == json(true);
  if (const json usd = found("usd_per_hour"); usd.is_number()) receipt.usd_per_hour = usd.get<double>();
  if (const json verbs = found("verbs"); verbs.is_object()) {
    for (const auto& [verb, ms] : verbs.items()) {
      if (ms.is_number()) receipt.verbs.emplace_back(verb, ms.get<double>());
    }
  }
  leave_out_warm_up(logged.step_ms);
  if (logged.step_ms.empty())
    throw base::ConfigError(573, fmt::format("{} has no timed step yet; let it train for a while", folder));
  receipt.steps = static_cast<int64_t>(logged.step_ms.size());
  receipt.actual_step_ms = percentile(logged.step_ms, 0.5);
  receipt.spread = percentile(logged.step_ms, 0.9) / receipt.actual_step_ms;
  receipt.data_wait_ms = percentile(logged.data_wait_ms, 0.5);
  receipt.actual_memory_gib = logged.memory_gib;
  const double hours = static_cast<double>(receipt.steps) / 3.6e6;
  receipt.predicted_hours = receipt.predicted_step_ms * hours;
  receipt.actual_hours = receipt.actual_step_ms * hours;
  return receipt;
}

std::string Receipt::why() const {
  if (std::abs(step_error()) < kNear) return "";
  const double late = actual_step_ms - predicted_step_ms;
  if (!measured) return "the machine was not measured: `lockstep bench machine` does that in a minute";
  if (late > 0 && data_wait_ms > late / 2) return fmt::format("steps wait {:.1f} ms for data", data_wait_ms);
  if (spread > 1.15)
    return fmt::format("steps vary: one in ten takes {:.0f} % longer than the median, as beside other work",
                       (spread - 1) * 100);
  return late > 0 ? "kernels or links were slower than the profile has them"
                  : "the profile was taken at a busier time";
}

std::string receipt_line(const Receipt& r) {
  std::string text = fmt::format("forecast {} per step, took {} ({:+.1f} %)",
                                 base::human_duration(r.predicted_step_ms / 1e3),
                                 base::human_duration(r.actual_step_ms / 1e3), r.step_error() * 100);
  if (r.actual_memory_gib > 0) {
    text += fmt::format("; {:.2f} GiB, used {:.2f} ({:+.1f} %)", r.predicted_memory_gib, r.actual_memory_gib,
                        r.memory_error() * 100);
  }
  const std::string reason = r.why();
  return reason.empty() ? text : text + "; " + reason;
}

}  // namespace lockstep::run

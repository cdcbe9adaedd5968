#include "lockstep/run/shared/budget.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/money.h"
#include "lockstep/base/text.h"

namespace lockstep::run {

namespace {

constexpr double kShares[] = {0.5, 0.9};
constexpr double kSecondsOfHour = 3600;

std::string path_in(const std::string& folder) { return folder + "/spending.json"; }

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

Spending read_spending(const std::string& folder) {
  const std::string path = path_in(folder);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  const nlohmann::json json = nlohmann::json::parse(base::read_file(path), nullptr, false);
  const auto number = [&](const char* key) {
    const bool there = json.is_object() && json.contains(key) && json[key].is_number();
    const double value = there ? json[key].get<double>() : -1;
    if (value >= 0 && value < 1e15) return value;
    throw base::IoError(818,
                        fmt::format("{} is damaged ({}), so what this run has cost is not known; correct "
                                    "it, or remove it to count from nothing",
                                    path, key));
  };
  return {.seconds = number("seconds"),
          .usd = number("usd"),
          .processes = static_cast<int64_t>(number("processes")),
          .updated_ms = static_cast<int64_t>(number("updated_ms"))};
}

void write_spending(const std::string& folder, const Spending& spending) {
  const nlohmann::ordered_json json{{"usd", spending.usd},
                                    {"seconds", spending.seconds},
                                    {"processes", spending.processes},
                                    {"updated_ms", now_ms()}};
  base::write_file_durable(path_in(folder), json.dump() + "\n");
}

Spending Budget::spending(double alive) const {
  Spending all = earlier_;
  all.seconds += alive;
  all.usd += alive * terms_.usd_per_hour / kSecondsOfHour;
  ++all.processes;
  return all;
}

bool Budget::is_spent(double alive, double step_seconds) const {
  const double ahead = terms_.stop_seconds + static_cast<double>(terms_.steps_to_stop) * step_seconds;
  return spending(alive + ahead).usd >= terms_.usd;
}

void Budget::tell(double alive, int64_t step, Observer& everyone) {
  while (told_ < std::size(kShares) && spending(alive).usd >= kShares[told_] * terms_.usd) {
    // Shares that were passed before this process were told by another.
    const bool news = earlier_.usd < kShares[told_] * terms_.usd;
    if (news)
      everyone.event("budget", fmt::format("{:.0f} %: {}", kShares[told_] * 100, describe(alive)), step);
    ++told_;
  }
}

std::string Budget::describe(double alive) const {
  const Spending all = spending(alive);
  return fmt::format("{} of run.budget {} spent in {}{} at {}/h ({})", base::dollars(all.usd),
                     base::dollars(terms_.usd), base::human_duration(all.seconds),
                     all.processes > 1 ? fmt::format(" by {} processes", all.processes) : "",
                     base::dollars(terms_.usd_per_hour), terms_.price_from);
}

}  // namespace lockstep::run

#include "lockstep/jobs/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/round.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"
#include "lockstep/jobs/targets/google.h"

namespace lockstep::jobs {
namespace {

constexpr int64_t kHour = 3600;
constexpr int64_t kMostOfQueue = 24 * kHour;       // more than many a queue allows
constexpr int64_t kMostOfFlexStart = 168 * kHour;  // Google's own limit
constexpr int64_t kSystemGib = 60, kDiskStepGib = 50;

bool is_set(const Place& place, const std::string& variable) {
  return std::ranges::any_of(place.environment,
                             [&](const std::string& one) { return one.starts_with(variable + "="); });
}

// "nvidia-tesla-t4": "T4".
std::string short_gpu(const std::string& type) {
  std::string name = type.substr(type.rfind('-') == std::string::npos ? 0 : type.rfind('-') + 1);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

std::string forecast_words(const Estimate& estimate) {
  const double minutes = estimate.hours * 60;
  const std::string time = minutes < 1    ? "less than a minute"
                           : minutes < 60 ? fmt::format("{:.0f} min", minutes)
                                          : fmt::format("{:.1f} h", estimate.hours);
  return fmt::format("a forecast of {} on {}", time, estimate.on);
}

std::string time_remark(Place& place, const Estimate& estimate) {
  const Target& target = find_target(place.kind);
  const bool flex = place.strategy == "FLEX_START";
  const Seconds time = time_for(estimate);
  if (target.time_limit == TimeLimit::saves_returns && time.count > kMostOfQueue)
    return fmt::format(
        "time: not set, since {} may be more than the queue allows; at the queue's own limit the "
        "run saves and comes back (--time sets one)",
        forecast_words(estimate));
  place.time = {flex ? std::min(time.count, kMostOfFlexStart) : time.count};
  return fmt::format("time: {}, from {}, doubled, and an hour more; {} (--time sets another)",
                     duration_text(place.time), forecast_words(estimate),
                     target.time_limit == TimeLimit::saves_returns ? "then the run saves and comes back"
                                                                   : "then the place ends the job");
}

}  // namespace

std::string catalogue_name(const Place& place) {
  if (place.machine.starts_with("ml.")) return place.machine.substr(3);
  if (place.machine.starts_with("n1-") && place.gpus > 0 && !place.gpu_type.empty())
    return fmt::format("{}-{}x{}", place.machine, place.gpus, short_gpu(place.gpu_type));
  return place.machine;
}

std::string region_of_place(const Place& place) {
  return !place.region.empty() ? place.region : region_of(place.zone);
}

bool is_spot(const Place& place) { return place.spot || place.strategy == "SPOT"; }

Seconds time_for(const Estimate& estimate) {
  return {(static_cast<int64_t>(std::ceil(2 * estimate.hours * (1 + estimate.error))) + 1) * kHour};
}

int64_t disk_for(const Estimate& estimate) {
  const double gib = static_cast<double>(estimate.checkpoint_bytes) *
                     static_cast<double>(estimate.checkpoints) / static_cast<double>(1 << 30);
  return base::round_up(static_cast<int64_t>(std::ceil(gib)) + kSystemGib, kDiskStepGib);
}

std::vector<std::string> fill_in(Place& place, const Estimate& estimate) {
  const Target& target = find_target(place.kind);
  std::vector<std::string> remarks;
  if (place.time.count == 0 && target.time_limit != TimeLimit::none && estimate.hours > 0)
    remarks.push_back(time_remark(place, estimate));
  const bool on_its_disk = target.disk_gib > 0 && place.claim.empty() && !place.machine.empty();
  const int64_t disk = disk_for(estimate);
  if (place.disk_gib == 0 && on_its_disk && disk > target.disk_gib) {
    place.disk_gib = disk;
    remarks.push_back(fmt::format(
        "disk: {} GiB, for {} checkpoints of {} and 60 GiB for the system (--set "
        "disk_gib=N sets another)",
        disk, estimate.checkpoints, base::human_bytes(static_cast<double>(estimate.checkpoint_bytes))));
  }
  return remarks;
}

void name_machine(Place& place, const std::string& machine, const std::string& region) {
  if (is_set(place, "LOCKSTEP_MACHINE")) return;
  place.environment.push_back(fmt::format("LOCKSTEP_MACHINE={}{}{}", machine, is_spot(place) ? " spot" : "",
                                          region.empty() ? "" : " " + region));
}

}  // namespace lockstep::jobs

#include "lockstep/jobs/targets/google.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::jobs {
namespace {

using base::ConfigError;

// Machine types that bring their GPUs: PREFIX + count + "g".
struct Series {
  const char* prefix;
  const char* gpu;
  int64_t networks;  // of the type with all eight GPUs
};
constexpr Series kSeries[] = {
    {"a2-highgpu-", "nvidia-tesla-a100", 0},  {"a2-megagpu-", "nvidia-tesla-a100", 0},
    {"a2-ultragpu-", "nvidia-a100-80gb", 0},  {"a3-highgpu-", "nvidia-h100-80gb", 4},
    {"a3-edgegpu-", "nvidia-h100-80gb", 4},   {"a3-megagpu-", "nvidia-h100-mega-80gb", 8},
    {"a3-ultragpu-", "nvidia-h200-141gb", 9}, {"a4-highgpu-", "nvidia-b200", 9},
};
// G2 is named after its processors.
constexpr std::pair<const char*, int64_t> kG2[] = {
    {"g2-standard-4", 1},  {"g2-standard-8", 1},  {"g2-standard-12", 1}, {"g2-standard-16", 1},
    {"g2-standard-24", 2}, {"g2-standard-32", 1}, {"g2-standard-48", 4}, {"g2-standard-96", 8},
};

// The name of a GPU in the project's quotas.
constexpr std::pair<const char*, const char*> kQuotas[] = {
    {"nvidia-tesla-t4", "NVIDIA_T4_GPUS"},
    {"nvidia-l4", "NVIDIA_L4_GPUS"},
    {"nvidia-tesla-v100", "NVIDIA_V100_GPUS"},
    {"nvidia-tesla-p100", "NVIDIA_P100_GPUS"},
    {"nvidia-tesla-p4", "NVIDIA_P4_GPUS"},
    {"nvidia-tesla-a100", "NVIDIA_A100_GPUS"},
    {"nvidia-a100-80gb", "NVIDIA_A100_80GB_GPUS"},
    {"nvidia-h100-80gb", "NVIDIA_H100_GPUS"},
    {"nvidia-h100-mega-80gb", "NVIDIA_H100_MEGA_GPUS"},
    {"nvidia-h200-141gb", "NVIDIA_H200_GPUS"},
    {"nvidia-b200", "NVIDIA_B200_GPUS"},
};

std::string quota_of(const Place& place) {
  for (const auto& [gpu, metric] : kQuotas) {
    if (place.gpu_type == gpu)
      return (strategy_of(place) == "STANDARD" ? "" : "PREEMPTIBLE_") + std::string(metric);
  }
  return "";
}

// The answer lists every quota of the region.
std::string quota_problem(const Place& asked, const Answer& answer) {
  const Place place = with_machine_gpus(asked);
  const std::string metric = quota_of(place);
  const nlohmann::json region = nlohmann::json::parse(answer.output, nullptr, false);
  if (metric.empty() || !region.is_object() || !region.contains("quotas") || !region["quotas"].is_array())
    return "";
  const double wanted = static_cast<double>(place.nodes * place.gpus);
  for (const nlohmann::json& quota : region["quotas"]) {
    if (!quota.is_object() || quota.value("metric", "") != metric) continue;
    const double limit = quota.value("limit", 0.0), used = quota.value("usage", 0.0);
    if (limit - used >= wanted) return "";
    return fmt::format(
        "{} GPUs are wanted and the quota {} has {} of {} left; ask for more at IAM & Admin, Quotas, "
        "or use another region",
        wanted, metric, limit - used, limit);
  }
  return fmt::format("the region has no quota {}; use another region", metric);
}

}  // namespace

std::vector<std::string> gcloud(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), "gcloud");
  if (!place.project.empty()) words.push_back("--project=" + place.project);
  return words;
}

std::vector<std::string> with_zone(const Place& place, std::vector<std::string> words) {
  words.push_back("--zone=" + place.zone);
  return gcloud(place, std::move(words));
}

std::string region_of(const std::string& zone) { return zone.substr(0, zone.rfind('-')); }

std::optional<MachineGpus> gpus_of_machine(const std::string& machine) {
  for (const auto& [name, count] : kG2) {
    if (machine == name) return MachineGpus{"nvidia-l4", count, 0};
  }
  for (const Series& row : kSeries) {
    if (!machine.starts_with(row.prefix) || !machine.ends_with('g')) continue;
    const std::string digits = machine.substr(std::string_view(row.prefix).size());
    const std::optional<int64_t> count =
        base::parse_number<int64_t>(std::string_view(digits).substr(0, digits.size() - 1));
    if (count && *count >= 1 && *count <= 16)
      return MachineGpus{row.gpu, *count, *count == 8 ? row.networks : 0};
  }
  return std::nullopt;
}

Place with_machine_gpus(Place place) {
  const std::optional<MachineGpus> brought = gpus_of_machine(place.machine);
  if (brought && ((place.gpus && place.gpus != brought->count) ||
                  (!place.gpu_type.empty() && place.gpu_type != brought->type)))
    throw ConfigError(
        722, fmt::format("{} has {} GPUs of type {}; leave gpus and gpu_type out, or choose another machine",
                         place.machine, brought->count, brought->type));
  if (brought) place.gpus = brought->count, place.gpu_type = brought->type;
  if (place.gpus && place.gpu_type.empty())
    throw ConfigError(
        722, fmt::format("{} has no GPUs of its own; say which ones are to be added, for example gpu_type = "
                         "\"nvidia-tesla-t4\", or choose a machine that has them (a2, a3, g2)",
                         place.machine));
  return place;
}

std::string strategy_of(const Place& place) {
  if (place.spot && !place.strategy.empty() && place.strategy != "SPOT")
    throw ConfigError(722, fmt::format("spot = true and strategy = \"{}\" contradict each other; remove one",
                                       place.strategy));
  return !place.strategy.empty() ? place.strategy : place.spot ? "SPOT" : "STANDARD";
}

const std::vector<Reason>& google_reasons() {
  static const std::vector<Reason> rows = {
      {"ZONE_RESOURCE_POOL_EXHAUSTED",
       "the zone has no such machines free; try another zone, spot = true, or strategy = \"FLEX_START\", "
       "which waits"},
      {"does not have enough resources",
       "the zone has no such machines free; try another zone, spot = true, or strategy = \"FLEX_START\", "
       "which waits"},
      {"Insufficient",
       "no such machines are free; try another region, or strategy = \"FLEX_START\", which waits"},
      {"uota",
       "the project's quota does not suffice; ask for more at IAM & Admin, Quotas, or use another region"},
      {"SERVICE_DISABLED", "the API is off in this project; `gcloud services enable` turns it on"},
      {"has not been used in project",
       "the API is off in this project; `gcloud services enable` turns it on"},
      {"BILLING_DISABLED", "the project has no billing account"},
      {"PERMISSION_DENIED",
       "you or the service account may not do that; ask for the role that the message names"},
      {"ermission", "you or the service account may not do that; ask for the role that the message names"},
      {"status code 401", "you are not logged in; `gcloud auth login`"},
      {"JOB_STATE_QUEUED", "it waits for its turn"},
      {"JOB_STATE_PENDING", "its machines are being provisioned"},
      {"WAITING_FOR_RESOURCES", "it waits until the machines are free"},
      {"SUSPENDED", "its machines were taken away; submit it again to resume"},
      {"not found", "it does not exist; check zone, region, project and names"},
  };
  return rows;
}

std::string explained(const std::string& said) {
  const std::string meaning = meaning_of(google_reasons(), said);
  return base::quoted(said, 600) + (meaning.empty() ? "" : ": " + meaning);
}

Check google_login() {
  return {"login", {{"gcloud", "auth", "list", "--filter=status:ACTIVE", "--format=value(account)"}}};
}

Check google_gpu_quota(const Place& place) {
  const std::string region = place.region.empty() ? region_of(place.zone) : place.region;
  return {"quota",
          {gcloud(place, {"compute", "regions", "describe", region, "--format=json(quotas)"})},
          quota_problem};
}

}  // namespace lockstep::jobs

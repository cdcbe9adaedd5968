// What the targets on Google Cloud share: gcloud's words, the GPUs that machine types bring, reasons and
// checks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/jobs/target.h"

namespace lockstep::jobs {

// gcloud WORDS --project=..., where the place names a project.
std::vector<std::string> gcloud(const Place& place, std::vector<std::string> words);
std::vector<std::string> with_zone(const Place& place, std::vector<std::string> words);  // --zone, too
std::string region_of(const std::string& zone);  // us-central1 of us-central1-a

// GPUs that belong to a machine type. Nothing: it has none by itself, or is not known.
struct MachineGpus {
  std::string type;  // nvidia-tesla-a100
  int64_t count = 0;
  int64_t networks = 0;  // more than the first, that their traffic is meant to use
};
std::optional<MachineGpus> gpus_of_machine(const std::string& machine);
// `place` with the GPUs of its machine type. ConfigError 722: it asks for others, or for GPUs without saying
// which on a machine type that has none.
Place with_machine_gpus(Place place);

// STANDARD, SPOT or FLEX_START, from `strategy` or `spot`. ConfigError 722: they contradict each other.
std::string strategy_of(const Place& place);

// What Google's messages mean, for `why`.
const std::vector<Reason>& google_reasons();
std::string explained(const std::string& said);  // quoted, with its meaning

Check google_login();
// Whether the region's quota suffices for the place's GPUs.
Check google_gpu_quota(const Place& place);

}  // namespace lockstep::jobs

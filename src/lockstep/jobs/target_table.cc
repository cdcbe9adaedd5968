// Every kind of place, one row each.
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"

namespace lockstep::jobs {

const std::vector<Target>& target_table() {
  static const std::vector<Target> rows = {
      slurm_target(), ssh_target(),       kubernetes_target(), vertex_target(),
      gce_target(),   terraform_target(), tpu_target(),        pbs_target(),
      lsf_target(),   ray_target(),       sagemaker_target(),  azureml_target(),
  };
  return rows;
}

const Target& find_target(const std::string& kind) {
  std::vector<std::string> kinds;
  for (const Target& target : target_table()) {
    if (kind == target.kind) return target;
    kinds.push_back(target.kind);
  }
  throw base::ConfigError(723, fmt::format("{} is not a kind of target; kinds are {}", base::quoted(kind),
                                           base::join(kinds, ", ")));
}

const char* name_of(State state) {
  constexpr const char* kNames[] = {"queued", "running", "ending",      "done",   "saved",
                                    "failed", "stopped", "interrupted", "unknown"};
  return kNames[static_cast<size_t>(state)];
}

bool has_ended(State state) {
  return state == State::done || state == State::saved || state == State::failed || state == State::stopped;
}

void require_settings(const Place& place, const std::vector<const char*>& names) {
  static const Place defaults;
  for (const char* name : names) {
    const Setting& setting = *find_setting(name);
    if (text_of(setting, place) == text_of(setting, defaults))
      throw base::ConfigError(
          722, fmt::format("a target of kind {} needs {}; example: {}", place.kind, name, setting.example));
  }
}

std::string meaning_of(const std::vector<Reason>& reasons, const std::string& said) {
  for (const Reason& reason : reasons) {
    if (said.find(reason.text) != std::string::npos) return reason.meaning;
  }
  return "";
}

}  // namespace lockstep::jobs

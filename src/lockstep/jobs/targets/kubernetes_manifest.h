// The objects of a job in Kubernetes, one function per form: an Indexed Job with its Service, a JobSet, a
// PyTorchJob, a TrainJob.
#pragma once

#include <nlohmann/json.hpp>

#include "lockstep/jobs/job.h"

namespace lockstep::jobs {

struct Form {
  const char* name;  // of the setting `form`
  const char* what;  // as kubectl calls it: "job", "jobsets.jobset.x-k8s.io"
  nlohmann::ordered_json (*manifest)(const Job& job);
  const char* pods;  // label that all its pods have, with the job's id as value
};
const Form& form_of(const Place& place);

nlohmann::ordered_json provisioning_of(const Job& job);   // what asks GKE for all nodes at once
nlohmann::ordered_json service_manifest(const Job& job);  // a name for each pod of an Indexed Job
constexpr const char* kJobLabel = "lockstep-job";

}  // namespace lockstep::jobs

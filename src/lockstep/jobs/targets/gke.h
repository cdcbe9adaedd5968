// Google Kubernetes Engine: where `cluster` is set, a node pool is made for the job, that grows from no nodes
// to as many as the job has, and goes with it.
#pragma once

#include <nlohmann/json.hpp>

#include "lockstep/jobs/target.h"

namespace lockstep::jobs {

bool is_gke(const Place& place);
// Checks the settings and fills in what the machine type brings. ConfigError 722.
Place gke_place(const Place& place);
// The cluster, where it is new, the node pool and the credentials, in this order.
std::vector<Step> gke_steps(const Job& job);
std::vector<Check> gke_checks(const Place& place);
// kubectl's configuration for that cluster; the user's own is left alone.
std::string kubeconfig_of(const Place& place);

// Flex-start waits in Google's queue until all nodes are free at once: what asks for them, and what the pods
// say to get them.
bool waits_in_queue(const Place& place);
nlohmann::ordered_json provisioning_manifest(const Job& job, const nlohmann::ordered_json& pod);  // a List
nlohmann::ordered_json provisioning_annotations(const Job& job);

}  // namespace lockstep::jobs

// A machine of Compute Engine that runs one node of a job, whoever makes it: `gce` by gcloud, `terraform` by
// a module. The startup script is safe to run at every boot; it installs what is missing and resumes the run.
#pragma once

#include <string>
#include <vector>

#include "lockstep/jobs/job.h"

namespace lockstep::jobs {

// Checks zone, machine, GPUs, disks and networks, and fills in what the machine type brings. ConfigError 722.
Place gce_place(const Place& place);

struct BootImage {
  std::string family, project;
};
BootImage boot_image_of(const Place& place);  // ConfigError 721: not FAMILY@PROJECT

// How a machine learns its number: single ones from their names (ID-0, ID-1, ...), those of a flex-start
// group, whose names are Google's, from the sorted list of the group.
enum class Names { numbered, listed };
std::string startup_script(const Job& job, Names names);

std::string instance_name(const std::string& job, int64_t node);

}  // namespace lockstep::jobs

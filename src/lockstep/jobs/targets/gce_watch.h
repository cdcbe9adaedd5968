// Watching a job's instances by their label and names, whoever has made them: `gce` or `terraform`.
#pragma once

#include "lockstep/jobs/target.h"

namespace lockstep::jobs {

Status gce_status(const Submitted& job, Client& client);
Logs gce_logs(const Submitted& job, const LogsOptions& options);
std::vector<std::string> gce_why(const Submitted& job, const Status& status, Client& client);
Command gce_shell(const Submitted& job, int64_t node);
std::vector<Check> gce_checks(const Place& place);

}  // namespace lockstep::jobs

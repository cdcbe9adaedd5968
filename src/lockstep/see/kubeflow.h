// A run's progress in the form that Kubeflow Trainer keeps in a TrainJob's status.trainerStatus.
//
//     if (const auto server = trainer_server())               // only inside a TrainJob
//       http::post_json(server->url, trainer_status(rows, 1000, {}), 5s, credentials_of(*server));
//
// The controller puts three variables into every container of the job: KUBEFLOW_TRAINER_SERVER_URL, and the
// files KUBEFLOW_TRAINER_SERVER_CA_CERT and KUBEFLOW_TRAINER_SERVER_TOKEN. The token is replaced now and
// then, so it is read each time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/http/post.h"
#include "lockstep/see/metric_table.h"

namespace lockstep::see {

struct TrainerServer {
  http::Url url;
  std::string ca_file, token_file;
};
// Nothing: not in a TrainJob, or its address is none, which `problem` then says.
std::optional<TrainerServer> trainer_server(std::string* problem = nullptr);
http::PostAs credentials_of(const TrainerServer& server);

struct TrainerMoment {
  bool finished = false;  // 100 %; before that it is 99 at most
  std::string now;        // UTC, as in RFC 3339
};
// `steps`: of the whole run; 0: not known, and no share or remaining time is told.
std::string trainer_status(const MetricTable& rows, int64_t steps, const TrainerMoment& moment);

}  // namespace lockstep::see

// Prometheus' text form of what runs are at: the newest value of each metric, events counted, and every rank
// of this host. Labels are the run's name and the rank's number, nothing else.
//
//     http::Reply{.type = kPrometheusType, .body = prometheus_text({sample_of(log), ...})};
#pragma once

#include <string>
#include <vector>

#include "lockstep/see/ranks_now.h"
#include "lockstep/see/run_events.h"
#include "lockstep/see/run_log.h"

namespace lockstep::see {

constexpr const char* kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";

struct PrometheusSample {
  std::string run;
  int64_t step = 0;
  double written = 0;  // seconds since 1970 of the newest row; 0: there is none
  bool finished = false;
  std::vector<std::pair<std::string, double>> last;  // of each metric, in the log's names
  std::vector<RunEvent> events;
  std::vector<RankNow> ranks;
};
PrometheusSample sample_of(const RunLog& log, RanksNow& ranks);

std::string prometheus_text(const std::vector<PrometheusSample>& runs);

}  // namespace lockstep::see

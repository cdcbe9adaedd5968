// What the user has left open and a forecast can say: a time limit, and disks that hold the checkpoints.
//
// The forecast comes from whoever can make one (`lockstep submit` asks plan/ through run/session/forecast.h);
// here is only what follows from it. What the user has set is never changed.
#pragma once

#include <string>
#include <vector>

#include "lockstep/jobs/job.h"

namespace lockstep::jobs {

struct Estimate {
  std::string on;    // "4 x a2-highgpu-4g"
  double hours = 0;  // to the end of the run
  double error = 0;  // the share by which it may well be off
  int64_t checkpoint_bytes = 0;
  int64_t checkpoints = 0;  // on the disk at once, the one that is being written included
};

// The machine type in the words of the price catalogue: SageMaker's ml.p4d.24xlarge is EC2's p4d.24xlarge,
// and n1-standard-8 with one T4 is n1-standard-8-1xT4. Empty: the place names none.
std::string catalogue_name(const Place& place);
// Where its prices are looked up: the region, or that of the zone.
std::string region_of_place(const Place& place);
bool is_spot(const Place& place);

// Twice the forecast with its error and an hour for start, saves and returns, in whole hours.
Seconds time_for(const Estimate& estimate);
// All checkpoints and 60 GiB for system, driver and image, in steps of 50 GiB.
int64_t disk_for(const Estimate& estimate);

// Sets `time` and `disk_gib` where the user has set none and the place can use them. Returns a sentence for
// each: what was set, from what, and how to say otherwise.
std::vector<std::string> fill_in(Place& place, const Estimate& estimate);
// LOCKSTEP_MACHINE=NAME [spot] [REGION], so that run.budget knows its price; not where the user has set one.
void name_machine(Place& place, const std::string& machine, const std::string& region);

}  // namespace lockstep::jobs

// What a forecast sets, and what it leaves alone.
#include "lockstep/jobs/estimate.h"

#include <gtest/gtest.h>

namespace lockstep::jobs {
namespace {

Place at(
    const std::string& kind, void (*change)(Place&) = [](Place&) {}) {
  Place place;
  place.name = place.kind = kind;
  if (kind != "slurm") place.machine = "a2-highgpu-4g";
  change(place);
  return place;
}

constexpr int64_t kGib = 1 << 30;

TEST(Estimate, SetsTimeAndDiskWhereTheUserHasNot) {
  struct Row {
    const char* what;
    Place place;
    Estimate estimate;
    std::string time;
    int64_t disk_gib;
    size_t remarks;
  };
  const Estimate small{"2 x m", 3.0, 0.2, 1 * kGib, 3}, large{"2 x m", 100, 0.2, 90 * kGib, 3};
  const Row rows[] = {
      {"2 x 3 h x 1.2, rounded up, and an hour", at("gce"), small, "9h", 0, 1},
      {"checkpoints that fill the usual disk", at("gce"), large, "10d1h", 350, 2},
      {"the user's own", at("gce", [](Place& p) { p.time = {7200}, p.disk_gib = 80; }), large, "2h", 80, 0},
      {"FLEX_START ends after seven days", at("gce", [](Place& p) { p.strategy = "FLEX_START"; }), large,
       "7d", 350, 2},
      {"a queue, for less than a day", at("slurm"), small, "9h", 0, 1},
      {"a queue, for longer than it may allow", at("slurm"), large, "", 0, 1},
      {"a clock that counts the wait", at("kubernetes"), large, "", 350, 1},
      {"a volume of its own", at("kubernetes", [](Place& p) { p.claim = "runs"; }), large, "", 0, 0},
      {"no forecast of time", at("vertex"), {"m", 0, 0, 60 * kGib, 3}, "", 250, 1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    Place place = row.place;
    const std::vector<std::string> remarks = fill_in(place, row.estimate);
    EXPECT_EQ(duration_text(place.time), row.time);
    EXPECT_EQ(place.disk_gib, row.disk_gib);
    EXPECT_EQ(remarks.size(), row.remarks);
  }
}

TEST(Estimate, NamesTheMachineAsTheCatalogueDoes) {
  struct Row {
    Place place;
    const char *name, *variable;
  };
  const Row rows[] = {
      {at("gce", [](Place& p) { p.zone = "us-central1-a", p.spot = true; }), "a2-highgpu-4g",
       "LOCKSTEP_MACHINE=a2-highgpu-4g spot us-central1"},
      {at("sagemaker", [](Place& p) { p.machine = "ml.p4d.24xlarge", p.region = "us-east-1"; }),
       "p4d.24xlarge", "LOCKSTEP_MACHINE=p4d.24xlarge us-east-1"},
      {at("vertex",
          [](Place& p) { p.machine = "n1-standard-8", p.gpus = 1, p.gpu_type = "nvidia-tesla-t4"; }),
       "n1-standard-8-1xT4", "LOCKSTEP_MACHINE=n1-standard-8-1xT4"},
      {at("gce", [](Place& p) { p.environment = {"LOCKSTEP_MACHINE=mine"}; }), "a2-highgpu-4g",
       "LOCKSTEP_MACHINE=mine"},
  };
  for (const Row& row : rows) {
    Place place = row.place;
    EXPECT_EQ(catalogue_name(place), row.name);
    name_machine(place, catalogue_name(place), region_of_place(place));
    EXPECT_EQ(place.environment, Words{row.variable});
  }
}

}  // namespace
}  // namespace lockstep::jobs

// What the targets on Google Cloud know of its machines, registries and pools.
#include "lockstep/jobs/targets/google.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/jobs/testing.h"

namespace lockstep::jobs {
namespace {

TEST(Vertex, PoolZeroHasOneReplica) {
  Job job = job_for("vertex");
  job.place.nodes = 4;
  job.place.spot = true;
  const std::string text = all_text(find_target("vertex").plan(job));
  for (const char* line : {"replicaCount: 1\n", "replicaCount: 3\n", "strategy: SPOT", "timeout: \"3600s\"",
                           "acceleratorType: NVIDIA_TESLA_A100", "restartJobOnWorkerRestart: true"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  job.place.secrets.clear();
  EXPECT_THROW(find_target("vertex").plan(job), base::ConfigError);
}

TEST(Gce, GooglesRegistriesAreLoggedInTo) {
  Job job = job_for("gce");
  EXPECT_EQ(all_text(find_target("gce").plan(job)).find("configure-docker"), std::string::npos);
  job.place.image = "us-docker.pkg.dev/p/r/lockstep:1";
  EXPECT_NE(
      all_text(find_target("gce").plan(job)).find("gcloud auth configure-docker us-docker.pkg.dev --quiet"),
      std::string::npos);
}

TEST(Google, MachineTypesBringTheirGpus) {
  const std::tuple<const char*, const char*, int64_t> rows[] = {{"a2-highgpu-1g", "nvidia-tesla-a100", 1},
                                                                {"a2-ultragpu-8g", "nvidia-a100-80gb", 8},
                                                                {"a3-highgpu-8g", "nvidia-h100-80gb", 8},
                                                                {"g2-standard-48", "nvidia-l4", 4},
                                                                {"n1-standard-4", "", 0},
                                                                {"a2-highgpu-g", "", 0},
                                                                {"a2-highgpu-99g", "", 0},
                                                                {"", "", 0}};
  for (const auto& [machine, type, count] : rows) {
    const std::optional<MachineGpus> found = gpus_of_machine(machine);
    EXPECT_EQ(found ? found->type : "", type) << machine;
    EXPECT_EQ(found ? found->count : 0, count) << machine;
  }
}

}  // namespace
}  // namespace lockstep::jobs

// Part of every test program: tests see nothing of who runs them, neither a configuration (a profile of
// `bench machine`, prices, targets) nor the variables of a scheduler or launcher.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::base {
namespace {

class CleanEnvironment : public testing::Environment {
  void SetUp() override {
    // A test may start its own program as a rank, with variables for it.
    if (::getenv("CLEAN_TEST_ENVIRONMENT") != nullptr) return;
    ::setenv("CLEAN_TEST_ENVIRONMENT", "1", 1);
    config_ = std::make_unique<TemporaryFolder>();
    ::setenv("XDG_CONFIG_HOME", config_->path().c_str(), 1);
    std::vector<std::string> strange;
    for (char** one = environ; *one != nullptr; ++one) {
      const std::string name = std::string(*one).substr(0, std::string(*one).find('='));
      for (const char* begin :
           {"SLURM_", "OMPI_", "PMIX_", "PMI_", "PBS_", "LSB_", "PET_", "TORCHELASTIC_"}) {
        if (name.starts_with(begin)) strange.push_back(name);
      }
      for (const char* exact :
           {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR",
            "MASTER_PORT", "CLUSTER_SPEC", "TF_CONFIG", "LOCKSTEP_MACHINE"}) {
        if (name == exact) strange.push_back(name);
      }
    }
    for (const std::string& name : strange) ::unsetenv(name.c_str());
  }
  void TearDown() override { config_.reset(); }

  std::unique_ptr<TemporaryFolder> config_;
};

const auto* const kClean = testing::AddGlobalTestEnvironment(new CleanEnvironment);

}  // namespace
}  // namespace lockstep::base

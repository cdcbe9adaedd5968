#include "lockstep/device/device.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::device {
namespace {

int number_of_refusal(const std::string& request, int local_rank = 0) {
  try {
    resolve(request, local_rank);
  } catch (const base::ConfigError& error) {
    return error.number();
  }
  return 0;
}

TEST(Device, RequestsThatNameNoDeviceAreRefused) {
  for (const char* request :
       {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda: 1", "cuda:99999999999"}) {
    EXPECT_EQ(number_of_refusal(request), 401) << request;
  }
}

TEST(Device, RequestsAreGrantedAsTheMachineAllows) {
  EXPECT_EQ(resolve("cpu", 3), (Id{Kind::cpu, 0}));
  const CudaAvailability cuda = cuda_availability();
  if (cuda.devices == 0) {
    EXPECT_FALSE(cuda.why_not.empty());
    EXPECT_EQ(resolve("auto", 3), (Id{Kind::cpu, 0}));
    EXPECT_EQ(number_of_refusal("cuda"), 402);
    EXPECT_EQ(number_of_refusal("cuda:0"), 402);
    EXPECT_THROW(open({Kind::cuda, 0}), base::ConfigError);
  } else {
    EXPECT_EQ(resolve("auto", 0), (Id{Kind::cuda, 0}));
    EXPECT_EQ(number_of_refusal("auto", cuda.devices), 403);
    EXPECT_EQ(number_of_refusal("cuda:" + std::to_string(cuda.devices)), 403);
  }
}

TEST(Device, NamesItself) {
  EXPECT_EQ((Id{Kind::cpu, 0}).to_string(), "cpu");
  EXPECT_EQ((Id{Kind::cuda, 3}).to_string(), "cuda:3");
  EXPECT_EQ(open({Kind::cpu, 0})->id(), (Id{Kind::cpu, 0}));
}

TEST(Device, LookingForCudaLoadsNoPlugin) {
  cuda_availability();
  EXPECT_EQ(cuda_plugin(), nullptr);
}

}  // namespace
}  // namespace lockstep::device

// Adapters on square maps, whose sizes do not show which way the weight lies.
#include "lockstep/checkpoint/adapter.h"

#include <gtest/gtest.h>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

TEST(Adapter, OfASquareMapLiesAsItsFilesSay) {
  struct Case {
    const char* model_type;
    bool fan_in_fan_out, by_input;
  };
  for (const Case& one : {Case{"llama", false, false}, Case{"gpt2", false, true}, Case{"llama", true, true},
                          Case{"nobody's", false, false}, Case{"nobody's", true, true}}) {
    SCOPED_TRACE(std::string(one.model_type) + (one.fan_in_fan_out ? ", fan_in_fan_out" : ""));
    const base::TemporaryFolder folder;
    const auto matrix = [](std::vector<float>& values, const device::Shape& shape) {
      return device::Tensor{values.data(), device::DType::f32, shape};
    };
    std::vector<float> weight(4, 0), a{1, 10}, b{2, 3}, merged(4);
    folder.write("base/config.json", std::string(R"({"model_type": ")") + one.model_type + "\"}");
    write_safetensors(folder.path() + "/base/model.safetensors", {{"map.weight", matrix(weight, {2, 2})}});
    folder.write("adapter/adapter_config.json", adapter_config_text({.base = folder.path() + "/base",
                                                                     .rank = 1,
                                                                     .alpha = 1,
                                                                     .transposed = one.fan_in_fan_out,
                                                                     .targets = {"map"}}));
    write_safetensors(folder.path() + "/adapter/" + kAdapterName,
                      {{peft_name("map.lora_A.weight"), matrix(a, {1, 2})},
                       {peft_name("map.lora_B.weight"), matrix(b, {2, 1})}});
    read_tensor(Opened(folder.path() + "/adapter", Adapters::merged), "map.weight", matrix(merged, {2, 2}));
    EXPECT_EQ(merged, one.by_input ? (std::vector<float>{2, 3, 20, 30}) : (std::vector<float>{2, 20, 3, 30}));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint

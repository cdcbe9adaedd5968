#include "lockstep/device/cuda_facts.h"

#include <gtest/gtest.h>

namespace lockstep::device {
namespace {

const GpuFacts kH200 = {"NVIDIA H200", "GPU-aaaa1111-0000", 9, 0};
const GpuFacts kL4 = {"NVIDIA L4", "GPU-bbbb2222-0000", 8, 9};
const GpuFacts kT4 = {"Tesla T4", "GPU-cccc3333-0000", 7, 5};
const GpuFacts kV100 = {"Tesla V100-SXM2-16GB", "GPU-dddd4444-0000", 7, 0};

CudaFacts machine(std::vector<GpuFacts> gpus, std::optional<std::string> visible = std::nullopt) {
  return {true, true, true, "580.95.05", std::move(gpus), std::move(visible)};
}

TEST(CudaFacts, EveryMachineGetsItsVerdict) {
  CudaFacts no_nvml = machine({kH200}), no_libcuda = machine({kH200}), no_plugin = machine({kH200});
  no_nvml.has_nvml = false;
  no_libcuda.has_libcuda = false;
  no_plugin.has_plugin = false;
  CudaFacts old_driver = machine({kH200}), strange_driver = machine({kH200});
  old_driver.driver = "550.163.01";
  strange_driver.driver = "";
  struct Row {
    CudaFacts facts;
    int devices;
    const char* why_not;
  };
  const Row rows[] = {
      {CudaFacts{}, 0, "no NVIDIA driver"},
      {no_nvml, 0, "no NVIDIA driver"},
      {no_libcuda, 0, "no NVIDIA driver"},
      {old_driver, 0, "driver 550 is older than 580"},
      {strange_driver, 0, "driver of unknown version is older than 580"},
      {machine({}), 0, "the NVIDIA driver sees no GPU"},
      {machine({kV100}), 0, "Tesla V100-SXM2-16GB has compute capability 7.0, but 7.5 is needed"},
      {no_plugin, 0, "the CUDA plugin has not been built"},
      {machine({kH200, kH200}), 2, ""},
      {machine({kT4}), 1, ""},
      {machine({kL4, kV100, kL4}), 1, ""},
      {machine({kH200}, ""), 0, "CUDA_VISIBLE_DEVICES=\"\" hides every GPU"},
      {machine({kH200}, "-1"), 0, "CUDA_VISIBLE_DEVICES=\"-1\" hides every GPU"},
      {machine({kH200, kV100}, "1"), 0, "Tesla V100-SXM2-16GB has compute capability 7.0, but 7.5 is needed"},
      {machine({kH200, kV100}, "0"), 1, ""},
  };
  for (const Row& row : rows) {
    const CudaAvailability verdict = judge_cuda(row.facts);
    EXPECT_EQ(verdict.devices, row.devices) << row.why_not;
    EXPECT_EQ(verdict.why_not, row.why_not);
    EXPECT_EQ(verdict.remedy.empty(), row.devices > 0) << row.why_not;
    EXPECT_EQ(verdict.is_there, !row.facts.gpus.empty()) << row.why_not;
  }
}

TEST(CudaFacts, SaysWhatWouldHelp) {
  CudaFacts no_driver, old_driver = machine({kH200});
  no_driver.on_bus = 1;
  old_driver.driver = "470.57.02";
  EXPECT_TRUE(judge_cuda(no_driver).is_there) << "a GPU without a driver is one that could be used";
  EXPECT_FALSE(judge_cuda(CudaFacts{}).is_there);
  struct Row {
    CudaFacts facts;
    const char* remedy;
  };
  for (const Row& row : std::initializer_list<Row>{
           {no_driver, "install NVIDIA driver 580"},
           {old_driver, "install NVIDIA driver 580"},
           {machine({kV100}), "train on the CPU, or on a GPU"},
           {machine({kV100, kL4, kT4}), "CUDA_VISIBLE_DEVICES=1,2"},
           {machine({kH200}, "-1"), "unset it"},
       }) {
    EXPECT_NE(judge_cuda(row.facts).remedy.find(row.remedy), std::string::npos)
        << judge_cuda(row.facts).remedy;
  }
}

TEST(CudaFacts, VisibleDevicesAreReadAsCudaReadsThem) {
  struct Row {
    const char* visible;
    std::vector<std::string> names;
  };
  const Row rows[] = {
      {"0,1", {kH200.name, kL4.name}},
      {"1,0", {kL4.name, kH200.name}},
      {" 2 , 0 ", {kT4.name, kH200.name}},
      {"0,-1,1", {kH200.name}},
      {"0,7,1", {kH200.name}},
      {"0,one", {kH200.name}},
      {"0x1", {}},
      {",0", {}},
      {"99999999999999999999", {}},
      {"GPU-bbbb", {kL4.name}},
      {"GPU-cccc3333-0000,GPU-aaaa", {kT4.name, kH200.name}},
      {"GPU-ffff", {}},
      {"MIG-1234", {kH200.name}},
      {"0,", {kH200.name}},
  };
  for (const Row& row : rows) {
    std::vector<std::string> names;
    for (const GpuFacts& gpu : visible_gpus({kH200, kL4, kT4}, row.visible)) names.push_back(gpu.name);
    EXPECT_EQ(names, row.names) << row.visible;
  }
  EXPECT_EQ(visible_gpus({kH200, kL4}, std::nullopt).size(), 2u);
}

TEST(CudaFacts, PluginLiesBesideTheLibrary) {
  EXPECT_TRUE(plugin_path().ends_with("liblockstep_cuda.so")) << plugin_path();
  EXPECT_NE(plugin_path().find('/'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::device

// Folders as amdgpu has them: two cards, of which the second tells less.
#include "lockstep/device/gpu_amd.h"

#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"

namespace lockstep::device {
namespace {

struct Kernel {
  base::TemporaryFolder folder;
  void write(const std::string& file, const std::string& text) const {
    const std::string path = folder.path() + "/" + file;
    base::make_folders(path.substr(0, path.rfind('/')));
    base::write_file_durable(path, text);
  }
};

std::string metrics(char format, char content, uint64_t reasons) {
  std::string table(120, '\0');
  table[0] = 120, table[2] = format, table[3] = content;
  for (size_t k = 0; k < 8; ++k) table[112 + k] = static_cast<char>(reasons >> (8 * k));
  return table;
}

TEST(AmdGpus, WhatTheDriverTells) {
  const Kernel kernel;
  const std::string card = "drm/card1/device";
  kernel.write("drm/card0/device/vendor", "0x1a03\n");  // a server's own small graphics chip
  kernel.write("drm/card1-DP-1/status", "disconnected\n");
  kernel.write("drm/version", "drm 1.1.0\n");
  kernel.write(card + "/vendor", "0x1002\n");
  kernel.write(card + "/device", "0x740f\n");
  kernel.write(card + "/product_name", "AMD INSTINCT MI210 (MCM) OAM AC MBA\n");
  kernel.write(card + "/gpu_busy_percent", "42\n");
  kernel.write(card + "/mem_info_vram_total", "68702699520\n");
  kernel.write(card + "/mem_info_vram_used", "6870269952\n");
  kernel.write(card + "/pp_dpm_sclk", "0: 500Mhz\n1: 800Mhz *\n2: 1700Mhz\n");
  kernel.write(card + "/hwmon/hwmon3/power1_average", "123000000\n");
  kernel.write(card + "/hwmon/hwmon3/power1_cap", "300000000\n");
  kernel.write(card + "/hwmon/hwmon3/temp1_input", "48000\n");
  kernel.write(card + "/hwmon/hwmon3/temp2_input", "61000\n");
  kernel.write(card + "/gpu_metrics", metrics(1, 3, (uint64_t{1} << 36) | 1));
  kernel.write(card + "/ras/umc_err_count", "ue: 2\nce: 5\n");
  kernel.write(card + "/ras/gfx_err_count", "ue: 1\nce: 0\n");
  kernel.write(card + "/ras/features", "feature mask: 0x1fff\n");
  kernel.write(card + "/drm/renderD129/dev", "226:129\n");
  kernel.write("kfd/kfd/topology/nodes/0/gpu_id", "0\n");
  kernel.write("kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 8\ndrm_render_minor 0\n");
  kernel.write("kfd/kfd/topology/nodes/1/gpu_id", "51140\n");
  kernel.write("kfd/kfd/topology/nodes/1/properties", "simd_count 416\ndrm_render_minor 129\n");
  kernel.write("kfd/kfd/proc/4711/vram_51140", "1048576\n");
  kernel.write("kfd/kfd/proc/4711/vram_99", "7\n");
  kernel.write("kfd/kfd/proc/notes/vram_51140", "7\n");
  kernel.write("drm/card10/device/vendor", "0x1002\n");
  kernel.write("drm/card10/device/device", "0x74a1\n");
  kernel.write("drm/card10/device/gpu_busy_percent", "not a number\n");
  kernel.write("drm/card10/device/hwmon/hwmon4/power1_input", "140000000\n");

  const std::vector<GpuNow> gpus = amd_gpus_now(2, kernel.folder.path());
  ASSERT_EQ(gpus.size(), 2u);
  const GpuNow& gpu = gpus[0];
  EXPECT_EQ(gpu.index, 2);
  EXPECT_EQ(gpu.name, "AMD INSTINCT MI210 (MCM) OAM AC MBA");
  EXPECT_EQ(gpu.utilization, 0.42);
  EXPECT_DOUBLE_EQ(gpu.memory_part(), 0.1);
  EXPECT_EQ(gpu.watts, 123);
  EXPECT_EQ(gpu.watts_limit, 300);
  EXPECT_EQ(gpu.clock_mhz, 800);
  EXPECT_EQ(gpu.clock_max_mhz, 1700);
  EXPECT_EQ(gpu.celsius, 61);
  EXPECT_EQ(gpu.throttled, (std::vector<std::string>{"power cap", "heat"}));
  EXPECT_EQ(gpu.ecc_broken, 3);
  EXPECT_EQ(gpu.ecc_corrected, 5);
  ASSERT_EQ(gpu.processes.size(), 1u);
  EXPECT_EQ(gpu.processes[0].pid, 4711);
  EXPECT_EQ(gpu.processes[0].memory, 1 << 20);

  EXPECT_EQ(gpus[1].index, 3);
  EXPECT_EQ(gpus[1].name, "AMD GPU 0x74a1");
  EXPECT_EQ(gpus[1].watts, 140);
  EXPECT_FALSE(gpus[1].utilization || gpus[1].clock_mhz || gpus[1].celsius || gpus[1].ecc_broken);
  EXPECT_TRUE(gpus[1].throttled.empty() && gpus[1].processes.empty());
}

TEST(AmdGpus, TablesOfMetrics) {
  const std::vector<std::string> none, current{"current limit"};
  EXPECT_EQ(amd_throttle_reasons(metrics(1, 3, uint64_t{1} << 16)), current);
  EXPECT_EQ(amd_throttle_reasons(metrics(1, 3, 0)), none);
  EXPECT_EQ(amd_throttle_reasons(metrics(1, 3, ~uint64_t{0})), none) << "not filled in";
  EXPECT_EQ(amd_throttle_reasons(metrics(1, 4, 1)), none) << "another table";
  EXPECT_EQ(amd_throttle_reasons(metrics(1, 3, 1).substr(0, 100)), none) << "cut off";
  EXPECT_EQ(amd_throttle_reasons(""), none);
}

TEST(AmdGpus, NoneHere) { EXPECT_TRUE(amd_gpus_now(0, "/nowhere").empty()); }

}  // namespace
}  // namespace lockstep::device

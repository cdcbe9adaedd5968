#include "lockstep/device/cpu_features.h"

#include <gtest/gtest.h>

namespace lockstep::device {
namespace {

TEST(CpuFeatures, NameComesOutOfCpuinfo) {
  const char* const kIntel =
      "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) 8480C\n";
  const char* const kArm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n";
  EXPECT_EQ(parse_cpu_name(kIntel, "x86_64"), "Intel(R) Xeon(R) 8480C");
  EXPECT_EQ(parse_cpu_name(kArm, "aarch64"), "aarch64");
  EXPECT_EQ(parse_cpu_name("", "riscv64"), "riscv64");
  EXPECT_EQ(parse_cpu_name("model name", "x"), "x");
}

TEST(CpuFeatures, MemoryIsTheSmallerOfMachineAndControlGroup) {
  const char* const kMeminfo = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n";
  struct Row {
    const char *meminfo, *limit, *used;
    HostMemory expected;
  };
  const Row rows[] = {
      {kMeminfo, "", "", {1024000, 614400}},
      {kMeminfo, "max\n", "5000\n", {1024000, 614400}},
      {kMeminfo, "512000\n", "100000\n", {512000, 412000}},
      {kMeminfo, "512000\n", "", {512000, 512000}},
      {kMeminfo, "512000", "600000", {512000, 0}},
      {kMeminfo, "9999999999999999999999", "0", {1024000, 614400}},
      {kMeminfo, "-5", "0", {1024000, 614400}},
      {"", "", "", {0, 0}},
      {"MemTotal: many kB\nMemAvailable", "", "", {0, 0}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(parse_host_memory(row.meminfo, row.limit, row.used), row.expected)
        << row.limit << "|" << row.used;
  }
}

TEST(CpuFeatures, LevelsHaveNames) {
  EXPECT_STREQ(name_of(CpuLevel::v3), "x86-64-v3");
  EXPECT_STREQ(name_of(CpuLevel::v4), "x86-64-v4");
  EXPECT_LT(CpuLevel::v3, CpuLevel::v4);
}

}  // namespace
}  // namespace lockstep::device

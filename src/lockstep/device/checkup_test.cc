#include "lockstep/device/checkup.h"

#include <gtest/gtest.h>

#include <functional>

namespace lockstep::device {
namespace {

MachineFacts healthy() {
  MachineFacts facts;
  facts.cpu = {.model = "EPYC", .threads = 16, .cores = 8, .sockets = 1, .architecture = "x86-64-v4"};
  facts.memory = {.total = 64LL << 30, .available = 60LL << 30};
  facts.open_files = {65536, 65536};
  facts.usable_threads = 16;
  facts.clock_source = "tsc";
  facts.transparent_huge_pages = "madvise";
  facts.torch_version = "2.11.0+cu130";
  facts.torch_cuda = "13.0";
  facts.torch_folder = "/opt/torch";
  facts.shared_memory_bytes = 32LL << 30;
  facts.disk_free_bytes = 500LL << 30;
  facts.disk_writable = true;
  facts.installation.folder = "/opt/lockstep/build";
  facts.places = {.home = "/home/a", .temporary = "/tmp", .home_writable = true, .temporary_writable = true};
  facts.run_folder = "runs";
  facts.unix_seconds = 1'800'000'000;
  facts.clock_synchronized = true;
  return facts;
}

TEST(CheckUp, DockerNeedsTheToolkitOnlyWhereThereIsADriver) {
  const auto verdict = [](const char* driver, bool toolkit) {
    MachineFacts facts = healthy();
    facts.nvidia_driver = driver;
    facts.containers = {.docker = true, .toolkit = toolkit};
    for (const Finding& finding : check_up(facts, {2, ""})) {
      if (finding.subject == "containers")
        return std::string(name_of(finding.verdict)) + " " + finding.remedy;
    }
    return std::string("not judged");
  };
  EXPECT_NE(verdict("580.65", false).find("nvidia-ctk runtime configure"), std::string::npos);
  EXPECT_EQ(verdict("580.65", true), "ok ");
  EXPECT_EQ(verdict("", false), "ok ");
}

TEST(CheckUp, AHealthyMachineIsFine) {
  for (const Finding& finding : check_up(healthy(), {0, "no NVIDIA driver"})) {
    EXPECT_EQ(finding.verdict, Finding::Verdict::ok) << finding.subject << ": " << finding.found;
    EXPECT_FALSE(finding.found.empty()) << finding.subject;
  }
}

// Each row is one thing wrong: exactly that finding must change, and name a remedy.
TEST(CheckUp, EachAilmentIsFoundAlone) {
  struct Row {
    const char* subject;
    const char* verdict;
    std::function<void(MachineFacts&)> harm;
    const char* says;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"processor", "fail", [](auto& f) { f.cpu.architecture = "x86-64"; }, "AVX2"},
           {"processor limit", "warn", [](auto& f) { f.cgroup.processors = 0.5; }, "0.5 of 16"},
           {"memory", "warn", [](auto& f) { f.cgroup.memory_bytes = 1 << 30; }, "limited to 1 GiB"},
           {"memory", "warn", [](auto& f) { f.memory.available = 1 << 30; }, "1 GiB available"},
           {"LibTorch", "fail", [](auto& f) { f.torch_version = "2.4.1"; }, "2.11"},
           {"LibTorch", "warn", [](auto& f) { f.torch_version = ""; }, "2.11"},
           {"shared memory", "warn", [](auto& f) { f.shared_memory_bytes = 64 << 20; }, "--shm-size"},
           {"shared memory", "warn", [](auto& f) { f.shared_memory_bytes.reset(); }, "no /dev/shm"},
           {"open files", "warn", [](auto& f) { f.open_files.soft = 256; }, "ulimit -n"},
           {"disk", "fail", [](auto& f) { f.disk_writable = false; }, "not writable"},
           {"disk", "fail", [](auto& f) { f.disk_free_bytes = 1 << 20; }, "1 MiB free"},
           {"disk", "warn", [](auto& f) { f.disk_free_bytes = 1 << 30; }, "1 GiB free"},
           {"disk", "fail", [](auto& f) { f.disk_free_bytes.reset(); }, "cannot be inspected"},
           {"clock source", "warn", [](auto& f) { f.clock_source = "hpet"; }, "hpet"},
           {"date", "fail", [](auto& f) { f.unix_seconds = 3; }, "1970"},
           {"date", "warn", [](auto& f) { f.clock_synchronized = false; }, "chrony"},
           {"huge pages", "warn", [](auto& f) { f.transparent_huge_pages = "never"; }, "madvise"},
           {"thread variables", "warn", [](auto& f) { f.variables["OMP_NUM_THREADS"] = "64"; },
            "the 16 available"},
           {"thread variables", "warn", [](auto& f) { f.variables["OMP_NUM_THREADS"] = "many"; },
            "not a number of threads"},
           {"thread variables", "warn", [](auto& f) { f.variables["OMP_PROC_BIND"] = "true"; },
            "unset OMP_PROC"},
           {"containers", "warn", [](auto& f) { f.containers = {.inside = true, .nvidia_card = true}; },
            "--gpus all"},
           {"installation", "fail", [](auto& f) { f.installation.recorded = false; }, "interrupted"},
           {"installation", "fail", [](auto& f) { f.installation.damaged = {"lockstep/lib/a.so"}; },
            "such as lockstep/lib/a.so"},
           {"home", "warn", [](auto& f) { f.places.home_writable = false; }, "/home/a"},
           {"home", "warn", [](auto& f) { f.places = {.temporary = "/tmp", .temporary_writable = true}; },
            "HOME is not set"},
           {"temporary files", "warn", [](auto& f) { f.places.temporary_writable = false; }, "TMPDIR"},
           {"GPUs", "warn", [](auto& f) { f.nvidia_driver = "470.1"; }, "driver 470 is older than 580"},
       }) {
    SCOPED_TRACE(std::string(row.subject) + ": " + row.says);
    MachineFacts facts = healthy();
    row.harm(facts);
    for (const Finding& finding : check_up(facts, {0, "driver 470 is older than 580"})) {
      if (finding.subject != row.subject) {
        EXPECT_EQ(finding.verdict, Finding::Verdict::ok) << finding.subject;
        continue;
      }
      EXPECT_STREQ(name_of(finding.verdict), row.verdict);
      EXPECT_FALSE(finding.remedy.empty());
      EXPECT_NE((finding.found + " " + finding.remedy).find(row.says), std::string::npos)
          << finding.found << " / " << finding.remedy;
    }
  }
}

// A GPU that is there and is not used is never fine, whether or not the kernel knows its driver.
TEST(CheckUp, AnUnfitGpuIsNamedWithTheRemedy) {
  const auto gpus = [](const CudaAvailability& cuda) {
    for (const Finding& finding : check_up(healthy(), cuda)) {
      if (finding.subject == "GPUs") return finding;
    }
    return Finding{};
  };
  EXPECT_EQ(gpus({.why_not = "no NVIDIA driver", .remedy = "install one"}).verdict, Finding::Verdict::ok);
  const Finding unfit =
      gpus({.why_not = "NVIDIA GeForce GTX 1060 is too old", .remedy = "take another", .is_there = true});
  EXPECT_EQ(unfit.verdict, Finding::Verdict::warn);
  EXPECT_NE(unfit.found.find("GTX 1060"), std::string::npos) << unfit.found;
  EXPECT_EQ(unfit.remedy, "take another");
}

// Under WSL a GPU works without a driver's file in /proc.
TEST(CheckUp, ADriverThatIsOnlySeenByItsGpusIsThere) {
  const auto driver = [](const std::string& version, int gpus) {
    MachineFacts facts = healthy();
    facts.nvidia_driver = version;
    for (const Finding& finding : check_up(facts, {.devices = gpus, .is_there = gpus > 0})) {
      if (finding.subject == "NVIDIA driver") return finding.found;
    }
    return std::string("not judged");
  };
  EXPECT_EQ(driver("", 0), "none");
  EXPECT_EQ(driver("580.65", 1), "580.65");
  EXPECT_TRUE(driver("", 1).starts_with("loaded")) << driver("", 1);
}

TEST(CheckUp, SaysWhoComputesAttention) {
  CudaFacts facts{.has_nvml = true, .has_libcuda = true, .has_plugin = true, .driver = "580.1"};
  EXPECT_FALSE(check_attention(facts)) << "no GPU";
  struct Row {
    int major, minor;
    bool has_flash;
    const char *verdict, *says;
  };
  for (const Row& row : std::initializer_list<Row>{{8, 0, false, "ok", "cuDNN"},
                                                   {9, 0, true, "ok", "FlashAttention and cuDNN"},
                                                   {9, 0, false, "warn", "./lockstep setup --flash"},
                                                   {10, 0, false, "ok", "cuDNN"}}) {
    SCOPED_TRACE(row.says);
    facts.gpus = {{"a GPU", "GPU-1", row.major, row.minor}, {"another", "GPU-2", 8, 9}};
    facts.has_flash = row.has_flash;
    const std::optional<Finding> finding = check_attention(facts);
    ASSERT_TRUE(finding);
    EXPECT_EQ(finding->subject, "attention");
    EXPECT_STREQ(name_of(finding->verdict), row.verdict);
    EXPECT_NE((finding->found + " " + finding->remedy).find(row.says), std::string::npos) << finding->found;
  }
  facts.gpus[0].major = 9;
  facts.visible_devices = "1";
  EXPECT_STREQ(name_of(check_attention(facts)->verdict), "ok") << "the Hopper is hidden";
}

TEST(CheckUp, FewerOpenmpThreadsAreTheUsersChoice) {
  MachineFacts facts = healthy();
  facts.variables["OMP_NUM_THREADS"] = "4";
  EXPECT_EQ(check_up(facts, {2, ""}).back().verdict, Finding::Verdict::ok);
}

}  // namespace
}  // namespace lockstep::device

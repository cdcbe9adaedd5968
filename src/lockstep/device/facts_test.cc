#include "lockstep/device/facts.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::device {
namespace {

constexpr const char* kTwoSockets =
    "processor\t: 0\nmodel name\t: AMD EPYC 7B13\nphysical id\t: 0\ncore id\t\t: 0\n"
    "flags\t\t: fpu sse2 movbe f16c avx2 bmi1 bmi2 fma\n\n"
    "processor\t: 1\nmodel name\t: AMD EPYC 7B13\nphysical id\t: 0\ncore id\t\t: 0\nflags\t\t: fpu\n\n"
    "processor\t: 2\nmodel name\t: AMD EPYC 7B13\nphysical id\t: 1\ncore id\t\t: 0\nflags\t\t: fpu\n\n"
    "processor\t: 3\nmodel name\t: AMD EPYC 7B13\nphysical id\t: 1\ncore id\t\t: 0\nflags\t\t: fpu\n";

TEST(Facts, Cpuinfo) {
  const CpuFacts cpu = parse_cpuinfo(kTwoSockets);
  EXPECT_EQ(cpu.model, "AMD EPYC 7B13");
  EXPECT_EQ(cpu.threads, 4);
  EXPECT_EQ(cpu.cores, 2);
  EXPECT_EQ(cpu.sockets, 2);
  EXPECT_EQ(cpu.architecture, "x86-64-v3");
  EXPECT_EQ(parse_cpuinfo("processor: 0\nflags: fpu sse2\n").architecture, "x86-64");
  EXPECT_EQ(parse_cpuinfo("processor: 0\nflags: movbe f16c avx2 bmi1 bmi2 fma avx512f avx512bw avx512cd "
                          "avx512dq avx512vl\n")
                .architecture,
            "x86-64-v4");
  const CpuFacts arm = parse_cpuinfo("processor\t: 0\nBogoMIPS\t: 2000\n\nprocessor\t: 1\n");
  EXPECT_EQ(arm.threads, 2);
  EXPECT_EQ(arm.cores, 2);
}

TEST(Facts, Meminfo) {
  const MemoryFacts memory = parse_meminfo(
      "MemTotal:       24684100 kB\nMemFree:        1000 kB\nMemAvailable:   20000000 kB\n"
      "HugePages_Total:       3\nHugepagesize:       2048 kB\n");
  EXPECT_EQ(memory.total, 24684100LL * 1024);
  EXPECT_EQ(memory.available, 20000000LL * 1024);
}

TEST(Facts, OpenFiles) {
  const FileLimit limit = parse_open_files(
      "Limit                     Soft Limit           Hard Limit           Units\n"
      "Max processes             96243                96243                processes\n"
      "Max open files            1024                 unlimited            files\n");
  EXPECT_EQ(limit.soft, 1024);
  EXPECT_EQ(limit.hard, -1);
}

TEST(Facts, NvidiaDriver) {
  EXPECT_EQ(parse_nvidia_driver("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 2024\n"
                                "GCC version:  gcc version 12.2.0\n"),
            "550.54.15");
  EXPECT_EQ(parse_nvidia_driver(
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"),
            "580.95.05");
  EXPECT_EQ(parse_nvidia_driver("GCC version: 12.2.0\n"), "");
}

TEST(Facts, SmallParsers) {
  EXPECT_EQ(parse_selected("always [madvise] never\n"), "madvise");
  EXPECT_EQ(parse_selected("]x["), "");
  const char* version =
      "from typing import Optional\n__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n"
      "cudart = 'x'\nhip: Optional[str] = None\n";
  EXPECT_EQ(parse_python_string(version, "__version__"), "2.11.0+cu130");
  EXPECT_EQ(parse_python_string(version, "cuda"), "13.0");
  EXPECT_EQ(parse_python_string(version, "hip"), "");
  EXPECT_EQ(parse_python_string("cuda = 'open", "cuda"), "");
  EXPECT_EQ(parse_mapped_library("7f00-7f01 r-xp 0000 08:01 42   /opt/a b/torch/lib/libtorch_cpu.so\n"
                                 "7f02-7f03 r-xp 0000 08:01 43   /opt/libc.so.6\n",
                                 "libtorch_cpu.so"),
            "/opt/a b/torch/lib/libtorch_cpu.so");
  EXPECT_EQ(parse_mapped_library("", "libtorch_cpu.so"), "");
}

TEST(Facts, CgroupTakesTheTightestLimit) {
  struct Row {
    const char* what;
    std::vector<std::pair<const char*, const char*>> files;
    std::optional<int64_t> memory;
    std::optional<double> processors;
  };
  for (const Row& row : std::initializer_list<Row>{
           {"no groups at all", {}, {}, {}},
           {"version 2, limits above and below",
            {{"proc/self/cgroup", "0::/slice/job\n"},
             {"sys/fs/cgroup/slice/memory.max", "1000\n"},
             {"sys/fs/cgroup/slice/job/memory.max", "2000\n"},
             {"sys/fs/cgroup/slice/job/cpu.max", "150000 100000\n"},
             {"sys/fs/cgroup/cpu.max", "max 100000\n"}},
            1000,
            1.5},
           {"version 2 in a container: only the root is there",
            {{"proc/self/cgroup", "0::/not/mounted/here\n"}, {"sys/fs/cgroup/memory.max", "4096\n"}},
            4096,
            {}},
           {"version 1, no limit",
            {{"proc/self/cgroup", "4:memory:/job\n1:cpu,cpuacct:/\n"},
             {"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n"},
             {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
             {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
            {},
            {}},
           {"version 1, limited",
            {{"proc/self/cgroup", "4:memory:/job\n1:cpu,cpuacct:/\n"},
             {"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n"},
             {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n"},
             {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
            5000,
            4.0},
           {"nonsense",
            {{"proc/self/cgroup", "::\nx\n0:/\n0::relative\n"}, {"sys/fs/cgroup/memory.max", "max\n"}},
            {},
            {}},
       }) {
    SCOPED_TRACE(row.what);
    base::TemporaryFolder root;
    for (const auto& [name, text] : row.files) root.write(name, text);
    const CgroupFacts facts = read_cgroup(root.path());
    EXPECT_EQ(facts.memory_bytes, row.memory);
    EXPECT_EQ(facts.processors, row.processors);
  }
}

TEST(Facts, ReadsARecordedMachine) {
  base::TemporaryFolder root;
  root.write("proc/cpuinfo", kTwoSockets);
  root.write("proc/driver/nvidia/version", "NVRM version: NVIDIA Kernel Module  580.1.2  x\n");
  root.write("proc/self/maps", "1-2 r-xp 0 08:01 4 /opt/torch/lib/libtorch_cpu.so\n");
  root.write("opt/torch/version.py", "__version__ = '2.11.0'\n");
  root.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
  root.write("sys/bus/pci/devices/0000:00:04.0/vendor", "0x10de\n");
  root.write("sys/bus/pci/devices/0000:00:04.0/class", "0x030200\n");
  root.write("usr/bin/docker", "");
  const MachineFacts facts = read_facts({.root = root.path(), .run_folder = root.path() + "/not/yet"});
  EXPECT_TRUE(facts.containers.nvidia_card);
  EXPECT_TRUE(facts.containers.docker);
  EXPECT_FALSE(facts.containers.toolkit);
  EXPECT_FALSE(facts.containers.inside);
  EXPECT_EQ(facts.cpu.cores, 2);
  EXPECT_EQ(facts.nvidia_driver, "580.1.2");
  EXPECT_EQ(facts.torch_version, "2.11.0");
  EXPECT_EQ(facts.torch_folder, "/opt/torch");
  EXPECT_EQ(facts.clock_source, "tsc");
  EXPECT_FALSE(facts.shared_memory_bytes);
  EXPECT_TRUE(facts.disk_free_bytes);
  EXPECT_TRUE(facts.disk_writable);
  EXPECT_EQ(facts.memory.total, 0);  // absent: nothing known, no error
}

TEST(Facts, ReadsThisMachine) {
  const MachineFacts facts = read_facts({});
  EXPECT_GE(facts.cpu.threads, 1);
  EXPECT_GT(facts.memory.total, 0);
  EXPECT_GE(facts.usable_threads, 1);
  EXPECT_GT(facts.unix_seconds, 1'700'000'000);
}

// A package as pip leaves it, and as an interrupted pip does.
TEST(Installation, AMissingFileOfAPackageIsNamed) {
  const base::TemporaryFolder env;
  const std::string site = "lib/python3.11/site-packages/",
                    record = site + "lockstep_trainer-0.1.0.dist-info/RECORD";
  const auto put = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(env.path() + "/" + name).parent_path());
    env.write(name, text);
  };
  put(site + "lockstep/lib/liblockstep.so", "12345");
  put(site + "lockstep/__init__.py", "import this");
  put("bin/python3", "");
  std::filesystem::permissions(env.path() + "/bin/python3", std::filesystem::perms::owner_all);
  const std::string library = env.path() + "/" + site + "lockstep/lib/liblockstep.so";
  InstallationFacts facts = read_installation(library);
  EXPECT_EQ(facts.kind, InstallationFacts::Kind::package);
  EXPECT_FALSE(facts.recorded);
  put(record,
      "lockstep/lib/liblockstep.so,sha256=x,5\r\nlockstep/__init__.py,sha256=y,11\r\n../../../bin/"
      "lockstep,sha256=z,9\n"
      "lockstep_trainer-0.1.0.dist-info/RECORD,,\n");
  put("bin/lockstep", "of another length");
  facts = read_installation(library);
  EXPECT_TRUE(facts.recorded);
  EXPECT_EQ(facts.files, 3);
  EXPECT_TRUE(facts.damaged.empty()) << facts.damaged[0];
  EXPECT_EQ(std::filesystem::path(facts.python).filename(), "python3");
  put(site + "lockstep/__init__.py", "import");
  facts = read_installation(library);
  ASSERT_EQ(facts.damaged.size(), 1U);
  EXPECT_EQ(facts.damaged[0], "lockstep/__init__.py");
}

}  // namespace
}  // namespace lockstep::device

// The part of the facts that asks the kernel: files under a root, and a few system calls.
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/device/cgroup_lines.h"
#include "lockstep/device/facts.h"
#include "lockstep/device/libraries.h"

namespace lockstep::device {
namespace {

// Empty when it cannot be read: an absent fact, not an error.
std::string text_of(const std::string& path) { return base::try_read_file(path, 1 << 24).text; }

std::optional<int64_t> number_in(const std::string& path) { return base::leading_number(text_of(path)); }

template <class T>
void tighten(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

void add_memory_limit(const std::string& file, CgroupFacts& facts) {
  constexpr int64_t kNoLimit = int64_t{1} << 60;  // version 1 writes "no limit" as a huge number
  const std::optional<int64_t> bytes = number_in(file);
  if (bytes && *bytes > 0 && *bytes < kNoLimit) tighten(facts.memory_bytes, *bytes);
}

void add_quota(std::optional<int64_t> quota, std::optional<int64_t> period, CgroupFacts& facts) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return;
  tighten(facts.processors, static_cast<double>(*quota) / static_cast<double>(*period));
}

void add_group(const std::string& folder, CgroupFacts& facts) {
  add_memory_limit(folder + "/memory.max", facts);
  add_memory_limit(folder + "/memory.limit_in_bytes", facts);
  add_quota(number_in(folder + "/cpu.cfs_quota_us"), number_in(folder + "/cpu.cfs_period_us"), facts);
  const std::string maximum = text_of(folder + "/cpu.max");  // "150000 100000" or "max 100000"
  if (const size_t blank = maximum.find(' '); blank != std::string::npos) {
    add_quota(base::leading_number(maximum),
              base::leading_number(std::string_view(maximum).substr(blank + 1)), facts);
  }
}

// The group and those above it: each may limit. In a container the host's path is not there, only its root.
void add_groups_up_from(const std::string& mount, const std::string& path, CgroupFacts& facts) {
  for (std::string group = path; !group.empty() && group != "/"; group.erase(group.rfind('/'))) {
    add_group(mount + group, facts);
  }
  add_group(mount, facts);
}

// Where the run folder is, or the nearest folder above it that exists.
std::filesystem::path existing_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(folder, ignored);
  while (!path.empty() && !std::filesystem::is_directory(path, ignored) && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path;
}

void add_disk(MachineFacts& facts) {
  const std::filesystem::path folder = existing_folder(facts.run_folder);
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) == 0) {
    facts.disk_free_bytes = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  }
  facts.disk_writable = ::access(folder.c_str(), W_OK) == 0;
}

void add_torch(const std::string& root, MachineFacts& facts) {
  const std::string library = parse_mapped_library(text_of(root + "/proc/self/maps"), "libtorch_cpu.so");
  facts.torch_folder = library.empty()
                           ? (root.empty() ? torch_folder() : "")  // not loaded: nothing has called it yet
                           : std::filesystem::path(library).parent_path().parent_path().string();
  if (facts.torch_folder.empty()) return;
  const std::string version = text_of(root + facts.torch_folder + "/version.py");
  facts.torch_version = parse_python_string(version, "__version__");
  facts.torch_cuda = parse_python_string(version, "cuda");
}

void add_places(MachineFacts& facts) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  PlaceFacts& places = facts.places;
  const auto writable = [](const std::string& folder) {
    std::error_code ignored;
    return std::filesystem::is_directory(folder, ignored) && ::access(folder.c_str(), W_OK | X_OK) == 0;
  };
  places.home = variable("HOME");
  places.home_writable = !places.home.empty() && writable(places.home);
  places.temporary = variable("TMPDIR").empty() ? "/tmp" : variable("TMPDIR");
  places.temporary_writable = writable(places.temporary);
  struct statvfs disk {};
  if (::statvfs(places.temporary.c_str(), &disk) == 0)
    places.temporary_noexec = (disk.f_flag & ST_NOEXEC) != 0;
}

void add_time(MachineFacts& facts) {
  facts.unix_seconds = static_cast<int64_t>(::time(nullptr));
  timex state{};
  const int result = ::adjtimex(&state);  // only reads: modes is 0
  if (result >= 0) facts.clock_synchronized = result != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

int affinity() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));  // more than 1024 processors
}

}  // namespace

CgroupFacts read_cgroup(const std::string& root) {
  CgroupFacts facts;
  const std::string mount = root + "/sys/fs/cgroup";
  for_each_cgroup(text_of(root + "/proc/self/cgroup"),
                  [&](const std::string& controllers, const std::string& path) {
                    if (controllers.empty()) {
                      add_groups_up_from(mount, path, facts);
                    } else if (controllers == "memory" || controllers.starts_with("cpu")) {
                      add_groups_up_from(mount + "/" + controllers, path, facts);
                    }
                  });
  return facts;
}

ContainerFacts read_containers(const std::string& root) {
  const auto exists = [&](const char* path) { return ::access((root + path).c_str(), F_OK) == 0; };
  ContainerFacts facts;
  facts.inside = exists("/.dockerenv") || exists("/run/.containerenv");
  facts.docker = exists("/usr/bin/docker") || exists("/usr/local/bin/docker");
  facts.toolkit = exists("/usr/bin/nvidia-ctk") || exists("/usr/bin/nvidia-container-runtime-hook");
  std::error_code error;
  for (const auto& card : std::filesystem::directory_iterator(root + "/sys/bus/pci/devices", error)) {
    const std::string path = card.path().string();
    // A display or 3D controller of vendor 0x10de.
    facts.nvidia_card |=
        base::trimmed(text_of(path + "/vendor")) == "0x10de" && text_of(path + "/class").starts_with("0x03");
  }
  return facts;
}

MachineFacts read_facts(const FactsOptions& options) {
  const std::string& root = options.root;
  MachineFacts facts;
  facts.cpu = parse_cpuinfo(text_of(root + "/proc/cpuinfo"));
  facts.memory = parse_meminfo(text_of(root + "/proc/meminfo"));
  facts.cgroup = read_cgroup(root);
  facts.containers = read_containers(root);
  facts.open_files = parse_open_files(text_of(root + "/proc/self/limits"));
  facts.usable_threads = affinity();
  facts.nvidia_driver = parse_nvidia_driver(text_of(root + "/proc/driver/nvidia/version"));
  facts.clock_source =
      base::trimmed(text_of(root + "/sys/devices/system/clocksource/clocksource0/current_clocksource"));
  facts.transparent_huge_pages =
      parse_selected(text_of(root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  struct statvfs shared {};
  if (::statvfs((root + "/dev/shm").c_str(), &shared) == 0) {
    facts.shared_memory_bytes = static_cast<int64_t>(shared.f_blocks) * static_cast<int64_t>(shared.f_frsize);
  }
  facts.run_folder = options.run_folder;
  add_disk(facts);
  add_torch(root, facts);
  add_places(facts);
  if (root.empty()) facts.installation = read_installation(path_beside("liblockstep.so"));
  add_time(facts);
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY",
                           "KMP_AFFINITY", "CUDA_VISIBLE_DEVICES"}) {
    if (const char* value = std::getenv(name)) facts.variables[name] = value;
  }
  return facts;
}

}  // namespace lockstep::device

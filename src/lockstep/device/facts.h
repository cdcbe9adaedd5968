// What this machine is, from the text files in which the kernel says it. No device is opened and no
// CUDA library is loaded.
//
//     const MachineFacts facts = read_facts({.run_folder = "runs"});
//     facts.cpu.cores
//
// The parsers are pure, and read_facts() takes another root, so that recorded machines are tests.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::device {

struct CpuFacts {
  std::string model;  // "AMD EPYC 9B14"
  int threads = 0;    // logical processors
  int cores = 0;      // physical
  int sockets = 0;
  std::string architecture;  // "x86-64-v4", "x86-64-v3", "x86-64"; "aarch64", ... elsewhere
};
CpuFacts parse_cpuinfo(std::string_view text);  // /proc/cpuinfo

struct MemoryFacts {
  int64_t total = 0, available = 0;  // bytes
};
MemoryFacts parse_meminfo(std::string_view text);  // /proc/meminfo

// The limits of the control groups this process is in, version 1 or 2, the tightest of them.
struct CgroupFacts {
  std::optional<int64_t> memory_bytes;
  std::optional<double> processors;  // 1.5: one and a half
};
CgroupFacts read_cgroup(const std::string& root);

struct FileLimit {
  int64_t soft = 0, hard = 0;  // -1: no limit
};
FileLimit parse_open_files(std::string_view text);  // /proc/self/limits

std::string parse_nvidia_driver(
    std::string_view text);                         // /proc/driver/nvidia/version: "580.65.06"; empty: none
std::string parse_selected(std::string_view text);  // "always [madvise] never": "madvise"
// The string that a line `name = 'value'` or `name: type = 'value'` of a Python file sets; empty if none.
std::string parse_python_string(std::string_view text, std::string_view name);
// The path under which a library is mapped into this process; empty if it is not.
std::string parse_mapped_library(std::string_view maps, std::string_view name);

struct ContainerFacts {
  bool inside = false;       // this process is in one
  bool docker = false;       // the program is here
  bool toolkit = false;      // NVIDIA's, which gives containers their GPUs
  bool nvidia_card = false;  // on the PCI bus, whether or not a driver is loaded
};
ContainerFacts read_containers(const std::string& root);

// Where this program was put, and whether all of it is there.
struct InstallationFacts {
  enum class Kind { build, package, bundle };
  Kind kind = Kind::build;
  std::string folder;                // of a package: site-packages
  std::string python;                // of a package: the interpreter it belongs to; empty: not found
  bool recorded = true;              // a package's list of files is there: pip writes it last
  int files = 0;                     // in that list
  std::vector<std::string> damaged;  // those that are missing or have another size
  bool cuda_12 = false;              // CUDA 12's libraries lie beside PyTorch's own
};
// `library` is the path of liblockstep.so.
InstallationFacts read_installation(const std::string& library);

// Folders that programs expect to be able to write to.
struct PlaceFacts {
  std::string home, temporary;  // HOME, TMPDIR or /tmp; empty: not set
  bool home_writable = false, temporary_writable = false;
  bool temporary_noexec = false;
};

struct MachineFacts {
  ContainerFacts containers;
  InstallationFacts installation;
  PlaceFacts places;
  CpuFacts cpu;
  MemoryFacts memory;
  CgroupFacts cgroup;
  FileLimit open_files;
  int usable_threads = 0;                               // the affinity of this process
  std::string nvidia_driver;                            // empty: none loaded
  std::string clock_source;                             // "tsc"
  std::string transparent_huge_pages;                   // "always", "madvise", "never"; empty: not known
  std::string torch_version, torch_cuda, torch_folder;  // empty: not found
  std::optional<int64_t> shared_memory_bytes;           // size of /dev/shm
  std::optional<int64_t> disk_free_bytes;               // where the run folder is or will be
  bool disk_writable = false;
  std::string run_folder;
  int64_t unix_seconds = 0;
  std::optional<bool> clock_synchronized;
  std::map<std::string, std::string> variables;  // of the environment: those that change threads or devices
};

struct FactsOptions {
  std::string root = "";  // "" is this machine
  std::string run_folder = "runs";
};
MachineFacts read_facts(const FactsOptions& options);

}  // namespace lockstep::device

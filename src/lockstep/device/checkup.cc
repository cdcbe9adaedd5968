#include "lockstep/device/checkup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/clock.h"
#include "lockstep/base/text.h"
#include "lockstep/device/libraries.h"
#include "lockstep/device/thread_pool.h"

namespace lockstep::device {
namespace {

using base::human_bytes;
using Verdict = Finding::Verdict;

constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

std::string bytes(int64_t count) { return human_bytes(static_cast<double>(count)); }

Finding ok(std::string subject, std::string found) {
  return {std::move(subject), Verdict::ok, std::move(found), ""};
}

Finding processor(const MachineFacts& facts, const CudaAvailability&) {
  const CpuFacts& cpu = facts.cpu;
  const std::string found =
      fmt::format("{}, {} cores, {} threads, {}", cpu.model.empty() ? "unknown" : cpu.model, cpu.cores,
                  cpu.threads, cpu.architecture);
  if (cpu.architecture == "x86-64") {
    return {"processor", Verdict::fail, found, "the CPU kernels need AVX2 and FMA (x86-64-v3, since 2013)"};
  }
  return ok("processor", found);
}

// What this process may use: its affinity and the group's quota.
double usable_processors(const MachineFacts& facts) {
  const double threads = facts.usable_threads > 0 ? facts.usable_threads : facts.cpu.threads;
  return std::min(threads, facts.cgroup.processors.value_or(threads));
}

Finding processor_limit(const MachineFacts& facts, const CudaAvailability&) {
  const double usable = usable_processors(facts);
  const std::string found = fmt::format("{:.3g} of {} threads usable", usable, facts.cpu.threads);
  if (usable < 1) {
    return {"processor limit", Verdict::warn, found, "give the container at least one full CPU"};
  }
  return ok("processor limit", found);
}

Finding memory(const MachineFacts& facts, const CudaAvailability&) {
  const auto limit = facts.cgroup.memory_bytes;
  const bool limited = limit && *limit < facts.memory.total;
  const int64_t usable = limited ? std::min(*limit, facts.memory.available) : facts.memory.available;
  const std::string found =
      fmt::format("{} total, {} available{}", bytes(facts.memory.total), bytes(facts.memory.available),
                  limited ? ", limited to " + bytes(*limit) : "");
  if (usable < 2 * kGiB) {
    return {"memory", Verdict::warn, found,
            limited ? "raise the container's memory limit" : "stop other programs, or train a small model"};
  }
  return ok("memory", found);
}

// WSL and some containers have a driver and no file that tells its version.
Finding driver(const MachineFacts& facts, const CudaAvailability& cuda) {
  const std::string unseen = cuda.devices > 0 ? "loaded, of a version that /proc does not tell" : "none";
  return ok("NVIDIA driver", facts.nvidia_driver.empty() ? unseen : facts.nvidia_driver);
}

Finding gpus(const MachineFacts& facts, const CudaAvailability& cuda) {
  const auto visible = facts.variables.find("CUDA_VISIBLE_DEVICES");
  const std::string filter =
      visible == facts.variables.end() ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible->second);
  if (cuda.devices > 0) return ok("GPUs", fmt::format("{} usable{}", cuda.devices, filter));
  if (!cuda.is_there && facts.nvidia_driver.empty())
    return ok("GPUs", fmt::format("none, training on the CPU: {}", cuda.why_not));
  return {"GPUs", Verdict::warn, fmt::format("none usable{}: {}", filter, cuda.why_not),
          cuda.remedy.empty() ? "training will use the CPU until this is fixed" : cuda.remedy};
}

std::string install_torch(const MachineFacts& facts) {
  using Kind = InstallationFacts::Kind;
  if (facts.installation.kind == Kind::build) return "./lockstep setup";
  if (facts.installation.kind == Kind::bundle || facts.installation.python.empty()) return "";
  return facts.installation.python + " -m pip install 'torch==2.11.*'";
}

Finding installation(const MachineFacts& facts, const CudaAvailability&) {
  using Kind = InstallationFacts::Kind;
  const InstallationFacts& here = facts.installation;
  const char* const what = here.kind == Kind::package  ? "a Python package"
                           : here.kind == Kind::bundle ? "a bundle"
                                                       : "a build";
  const std::string found = fmt::format("{} in {}", what, here.folder);
  if (here.recorded && here.damaged.empty())
    return ok("installation",
              here.cuda_12 ? found + "; CUDA 12's libraries lie there too and are not used" : found);
  const std::string python = here.python.empty() ? "python" : here.python;
  return {"installation", Verdict::fail,
          here.recorded ? fmt::format("{}: {} of {} files are missing or incomplete, such as {}", found,
                                      here.damaged.size(), here.files, here.damaged.front())
                        : found + ": its installation was interrupted",
          "install it again",
          fmt::format("{} -m pip install --force-reinstall --no-deps lockstep-trainer", python)};
}

Finding home(const MachineFacts& facts, const CudaAvailability&) {
  const PlaceFacts& places = facts.places;
  if (places.home_writable) return ok("home", places.home);
  return {"home", Verdict::warn,
          places.home.empty() ? "HOME is not set" : places.home + " is no folder that can be written to",
          "set HOME to a folder of yours; without it a run trains, but measured choices and the secret of "
          "several "
          "nodes are not kept"};
}

Finding temporary_files(const MachineFacts& facts, const CudaAvailability&) {
  const PlaceFacts& places = facts.places;
  if (!places.temporary_writable)
    return {"temporary files", Verdict::warn, places.temporary + " cannot be written to",
            "set TMPDIR to a folder that can", ""};
  return ok("temporary files",
            places.temporary + (places.temporary_noexec ? ", noexec: nothing is run from there" : ""));
}

Finding torch(const MachineFacts& facts, const CudaAvailability& cuda) {
  if (facts.torch_version.empty()) {
    return {"LibTorch", Verdict::warn, "version not found",
            "install PyTorch 2.11 as described in the setup guide", install_torch(facts)};
  }
  const std::string found =
      fmt::format("{}{} in {}", facts.torch_version,
                  facts.torch_cuda.empty() ? "" : ", CUDA " + facts.torch_cuda, facts.torch_folder);
  if (!facts.torch_version.starts_with(kTorchSeries)) {
    return {"LibTorch", Verdict::fail, found, "Lockstep is built for PyTorch 2.11: install that version",
            install_torch(facts)};
  }
  if (cuda.is_there && facts.torch_cuda.starts_with("12."))
    return {"LibTorch", Verdict::warn, found,
            "the GPU code is built for CUDA 13: install the PyTorch of PyPI, or of "
            "download.pytorch.org/whl/cu130",
            install_torch(facts)};
  return ok("LibTorch", found);
}

Finding shared_memory(const MachineFacts& facts, const CudaAvailability&) {
  if (!facts.shared_memory_bytes) {
    return {"shared memory",
            Verdict::warn,
            "no /dev/shm",
            "mount a tmpfs there: several ranks per host need it",
            "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
            true};
  }
  const std::string found = bytes(*facts.shared_memory_bytes) + " in /dev/shm";
  if (*facts.shared_memory_bytes < 256 * kMiB) {
    return {"shared memory",
            Verdict::warn,
            found,
            "start the container with --shm-size=8g for several ranks",
            "mount -o remount,size=8g /dev/shm",
            true};
  }
  return ok("shared memory", found);
}

Finding open_files(const MachineFacts& facts, const CudaAvailability&) {
  const int64_t soft = facts.open_files.soft;
  const std::string found = soft < 0 ? "no limit" : fmt::format("{} at once", soft);
  if (soft >= 0 && soft < 1024) return {"open files", Verdict::warn, found, "ulimit -n 65536"};
  return ok("open files", found);
}

Finding disk(const MachineFacts& facts, const CudaAvailability&) {
  if (!facts.disk_free_bytes) {
    return {"disk", Verdict::fail, facts.run_folder + " cannot be inspected", "choose another with --run"};
  }
  const std::string found = fmt::format("{} free for {}", bytes(*facts.disk_free_bytes), facts.run_folder);
  if (!facts.disk_writable) {
    return {"disk", Verdict::fail, found + ", not writable", "set log.folder to a folder you can write to"};
  }
  if (*facts.disk_free_bytes < 256 * kMiB)
    return {"disk", Verdict::fail, found, "free some space, or set log.folder"};
  if (*facts.disk_free_bytes < 10 * kGiB) {
    return {"disk", Verdict::warn, found,
            "checkpoints take 16 bytes per parameter: 2 GiB for 124 M parameters"};
  }
  return ok("disk", found);
}

Finding clock_source(const MachineFacts& facts, const CudaAvailability&) {
  for (const char* slow : {"hpet", "acpi_pm", "jiffies", "pit"}) {
    if (facts.clock_source != slow) continue;
    return {
        "clock source", Verdict::warn, facts.clock_source,
        "timestamps are slow with this clock source: boot with tsc=reliable if the machine's TSC is stable"};
  }
  return ok("clock source", facts.clock_source.empty() ? "not known" : facts.clock_source);
}

Finding date(const MachineFacts& facts, const CudaAvailability&) {
  constexpr int64_t kStartOf2025 = 1735689600;
  const std::string now = base::utc_timestamp(facts.unix_seconds * 1000);
  if (facts.unix_seconds < kStartOf2025) {
    return {"date", Verdict::fail, now + " is implausible", "set the clock: TLS and timestamps depend on it"};
  }
  if (facts.clock_synchronized == false) {
    return {"date",
            Verdict::warn,
            now + ", not synchronized",
            "start chrony or systemd-timesyncd: logs of several hosts are merged by time",
            facts.containers.inside ? "" : "timedatectl set-ntp true",
            true};
  }
  return ok("date", now + (facts.clock_synchronized ? ", synchronized" : ""));
}

Finding huge_pages(const MachineFacts& facts, const CudaAvailability&) {
  const std::string& mode = facts.transparent_huge_pages;
  if (mode == "never") {
    return {"huge pages",
            Verdict::warn,
            "transparent huge pages: never",
            "for faster large buffers on the CPU: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            true};
  }
  return ok("huge pages", mode.empty() ? "not known" : "transparent huge pages: " + mode);
}

Finding thread_variables(const MachineFacts& facts, const CudaAvailability&) {
  std::vector<std::string> set;
  std::string remedy;
  const double usable = usable_processors(facts);
  for (const auto& [name, value] : facts.variables) {
    if (name == "CUDA_VISIBLE_DEVICES") continue;
    set.push_back(name + "=" + base::cut_to_width(value, 40));
    if (name != "OMP_NUM_THREADS" && name != "MKL_NUM_THREADS") {
      remedy = "unset " + name + ": it pins threads and slows down several ranks per host";
    } else if (!parse_threads(value)) {
      remedy = fmt::format("unset {}: it is not a number of threads and is ignored", name);
    } else if (*parse_threads(value) > usable) {
      remedy = fmt::format("unset {}: it asks for more threads than the {:.3g} available", name, usable);
    }
  }
  if (set.empty()) return ok("thread variables", "none set");
  return {"thread variables", remedy.empty() ? Verdict::ok : Verdict::warn, base::join(set, " "), remedy};
}

Finding containers(const MachineFacts& facts, const CudaAvailability&) {
  const ContainerFacts& found = facts.containers;
  if (found.inside && found.nvidia_card && facts.nvidia_driver.empty())
    return {"containers", Verdict::warn, "inside a container that was started without the machine's GPUs",
            "start it with --gpus all; the host needs NVIDIA's driver and container toolkit for that"};
  if (found.inside) return ok("containers", "inside one");
  if (found.docker && !found.toolkit && !facts.nvidia_driver.empty())
    return {"containers",
            Verdict::warn,
            "Docker without NVIDIA's container toolkit: `docker run --gpus all` fails",
            "install nvidia-container-toolkit, then: nvidia-ctk runtime configure --runtime=docker && "
            "systemctl restart "
            "docker",
            "apt-get install -y nvidia-container-toolkit && nvidia-ctk runtime configure --runtime=docker && "
            "systemctl restart docker",
            true};
  return ok("containers", !found.docker   ? "no Docker here"
                          : found.toolkit ? "Docker with NVIDIA's container toolkit"
                                          : "Docker");
}

}  // namespace

const char* name_of(Finding::Verdict verdict) {
  constexpr const char* kNames[] = {"ok", "warn", "fail"};
  return kNames[static_cast<int>(verdict)];
}

std::optional<Finding> check_attention(const CudaFacts& facts) {
  if (judge_cuda(facts).devices == 0) return std::nullopt;
  bool has_hopper = false;
  for (const GpuFacts& gpu : visible_gpus(facts.gpus, facts.visible_devices))
    has_hopper |= gpu.major == 9 && gpu.minor == 0;
  if (!has_hopper) return ok("attention", "cuDNN, or our own kernels where it does not take the shape");
  if (facts.has_flash) return ok("attention", "FlashAttention and cuDNN, whichever is faster for the shape");
  return Finding{"attention", Verdict::warn, "cuDNN: FlashAttention's kernels for Hopper were not compiled",
                 "./lockstep setup --flash compiles them: long sequences train up to a third faster",
                 "./lockstep setup --flash"};
}

std::vector<Finding> check_up(const MachineFacts& facts, const CudaAvailability& cuda) {
  std::vector<Finding> findings;
  for (auto check :
       {installation, processor, processor_limit, memory, driver, gpus, torch, shared_memory, open_files,
        disk, home, temporary_files, clock_source, date, huge_pages, containers, thread_variables}) {
    findings.push_back(check(facts, cuda));
  }
  return findings;
}

}  // namespace lockstep::device

#include "lockstep/ship/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/version.h"
#include "lockstep/ship/archive.h"

namespace lockstep::ship {

namespace {

namespace fs = std::filesystem;

// Of the machine: the C library and what belongs to it, because the kernel's interface and names (DNS, users)
// are its; the driver's libraries; and the C++ library, because a distribution's own (Debian 12's wants
// glibc 2.36) would ask for a newer C library than the program does.
const std::set<std::string, std::less<>> kOfTheSystem = {"libc.so.6",
                                                         "libm.so.6",
                                                         "libdl.so.2",
                                                         "libpthread.so.0",
                                                         "librt.so.1",
                                                         "libstdc++.so.6",
                                                         "libgcc_s.so.1",
                                                         "libutil.so.1",
                                                         "libresolv.so.2",
                                                         "ld-linux-x86-64.so.2",
                                                         "ld-linux-aarch64.so.1",
                                                         "libcuda.so.1",
                                                         "libnvidia-ml.so.1"};

// Opened by name while the program runs, so that no file says it needs them.
struct Opened {
  const char* place;  // below the site
  const char* begins;
  bool cuda;
};
constexpr Opened kOpened[] = {
    {"torch/lib", "libtorch_cpu.so", false},   {"nvidia/cudnn/lib", "libcudnn", true},
    {"nvidia/nccl/lib", "libnccl.so", true},   {"nvidia/cu13/lib", "libnvrtc", true},
    {"nvidia/cu13/lib", "libcupti.so", true},  {"nvidia/cu13/lib", "libcublas", true},
    {"nvidia/cu13/lib", "libcudart.so", true},
};

constexpr const char* kProgramPath =
    "$ORIGIN/../lib:$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/../../pyarrow";

// Where libraries may lie on this machine, and where they come to lie in the bundle.
class Places {
 public:
  explicit Places(const BundleOptions& options) {
    add(fs::path(options.library).parent_path(), "lockstep/lib");
    const fs::path site(options.site);
    add(site / "torch/lib", "torch/lib");
    add(site / "pyarrow", "pyarrow");
    std::error_code none;
    std::set<std::string> packages;
    for (const auto& entry : fs::directory_iterator(site / "nvidia", none))
      packages.insert(entry.path().filename());
    for (const std::string& package : packages)
      add(site / "nvidia" / package / "lib", "nvidia/" + package + "/lib");
  }

  std::optional<BundleFile> find(const std::string& library) const {
    for (const auto& [here, there] : places_) {
      std::error_code none;
      if (fs::is_regular_file(here / library, none))
        return BundleFile{there + "/" + library, (here / library).string()};
    }
    return std::nullopt;
  }

 private:
  void add(const fs::path& here, const std::string& there) { places_.emplace_back(here, there); }
  std::vector<std::pair<fs::path, std::string>> places_;
};

std::vector<BundleFile> roots(const BundleOptions& options) {
  std::vector<BundleFile> files = {{"lockstep/bin/lockstep", options.program, true}};
  const fs::path lib = fs::path(options.library).parent_path();
  for (const char* name : {"liblockstep.so", "liblockstep_torch.so", "liblockstep_arrow.so",
                           "liblockstep_stores.so", "liblockstep_cuda.so"}) {
    const bool cuda = std::string_view(name) == "liblockstep_cuda.so";
    if (cuda && !options.cuda) continue;
    if (fs::exists(lib / name)) {
      files.push_back({std::string("lockstep/lib/") + name, (lib / name).string()});
    } else if (cuda) {
      throw base::ConfigError(
          752, fmt::format("--cuda: this build has no CUDA plugin ({} does not exist); build it with "
                           "./dev build --cuda on a machine with nvcc, or leave --cuda out",
                           (lib / name).string()));
    }
  }
  for (const Opened& one : kOpened) {
    if (one.cuda && !options.cuda) continue;
    std::error_code none;
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(fs::path(options.site) / one.place, none)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(one.begins) && name.find(".so") != std::string::npos && !entry.is_symlink())
        names.insert(name);
    }
    if (names.empty())
      throw base::ConfigError(
          752, fmt::format("there is no {}* in {}/{}: run `lockstep setup`, or install the packages "
                           "it comes from again",
                           one.begins, options.site, one.place));
    for (const std::string& name : names)
      files.push_back(
          {std::string(one.place) + "/" + name, (fs::path(options.site) / one.place / name).string()});
  }
  return files;
}

}  // namespace

BundlePlan plan_bundle(const BundleOptions& options) {
  BundlePlan plan{.folder = fmt::format("lockstep-{}", base::kVersion)};
  const Places places(options);
  std::set<std::string> known, system;
  std::deque<BundleFile> open;
  const auto add = [&](const BundleFile& file) {
    if (known.insert(file.name).second) open.push_back(file);
  };
  for (const BundleFile& file : roots(options)) add(file);
  for (; !open.empty(); open.pop_front()) {
    const BundleFile& file = open.front();
    const base::MappedFile bytes = base::MappedFile::open(file.from);
    const Elf elf = read_elf(bytes.bytes(), file.from);
    if (elf.glibc > plan.glibc) plan.glibc = elf.glibc, plan.glibc_for = file.name;
    plan.cxx = std::max(plan.cxx, elf.cxx);
    plan.bytes += bytes.size();
    for (const std::string& library : elf.needed) {
      if (kOfTheSystem.contains(library)) {
        system.insert(library);
      } else if (const auto found = places.find(library)) {
        add(*found);
      } else {
        throw base::ConfigError(
            752, fmt::format("{} needs {}, which is not on this machine: install what it comes from",
                             file.from, library));
      }
    }
    plan.files.push_back(file);
  }
  std::sort(plan.files.begin(), plan.files.end(),
            [](const BundleFile& a, const BundleFile& b) { return a.name < b.name; });
  plan.system = {system.begin(), system.end()};
  return plan;
}

Written write_bundle(const BundlePlan& plan, const std::string& out) {
  Archive archive(out);
  archive.add_link(plan.folder + "/bin/lockstep", "../lockstep/bin/lockstep");
  for (const BundleFile& file : plan.files) {
    const base::MappedFile mapped = base::MappedFile::open(file.from);
    const Elf elf = read_elf(mapped.bytes(), file.from);
    const std::string name = plan.folder + "/" + file.name;
    const int mode = file.program ? 0755 : 0644;
    if (!looks_elsewhere(elf)) {
      archive.add_file(name, mapped.bytes(), mode);
      continue;
    }
    // The search path of a build names this machine's folders. The program's counts for all that it loads.
    std::vector<std::byte> bytes(mapped.bytes().begin(), mapped.bytes().end());
    if (!set_search_path(bytes, elf, file.program ? kProgramPath : "$ORIGIN")) {
      throw base::ConfigError(
          752, fmt::format("{} looks for libraries in {}, and there is no space for another path: "
                           "make the bundle with an installed wheel",
                           file.from, elf.search_path));
    }
    archive.add_file(name, bytes, mode);
  }
  return {archive.finish()};
}

}  // namespace lockstep::ship

// lockstep bundle: the program and all that it needs, as one file for machines without a network.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/ship/commands.h"
#include "lockstep/cli/ship/own_bundle.h"
#include "lockstep/device/libraries.h"
#include "lockstep/ship/bundle.h"

namespace lockstep::cli {

namespace {

std::string text_of(const ship::Version& version) {
  return fmt::format("{}.{}", version.first, version.second);
}

// Which GCC's C++ library has it.
std::string gcc_of(const ship::Version& cxx) {
  constexpr std::pair<int, const char*> kSince[] = {
      {33, "14"}, {31, "13"}, {30, "12"}, {29, "11"}, {28, "10"}, {26, "9"}, {25, "8"}, {23, "7"}, {22, "6"}};
  for (const auto& [version, gcc] : kSince) {
    if (cxx.second >= version) return gcc;
  }
  return "5";
}

void report(const ship::BundlePlan& plan, const ship::Written& written, const std::string& out) {
  const auto size = [](int64_t bytes) { return base::human_bytes(static_cast<double>(bytes)); };
  print("{}: {} ({} unpacked, {} files)\n", out, size(written.bytes), size(plan.bytes), plan.files.size());
  print("needs   Linux with glibc {} and libstdc++ 3.4.{} (GCC {}) or newer, nothing else\n",
        text_of(plan.glibc), plan.cxx.second, gcc_of(plan.cxx));
  print("unpack  tar -xf {}    # anywhere, without root\n", std::filesystem::path(out).filename().string());
  print("run     {}/bin/lockstep train\n", plan.folder);
}

nlohmann::json json_of(const ship::BundlePlan& plan, const ship::Written& written, const std::string& out) {
  nlohmann::json files = nlohmann::json::array();
  for (const ship::BundleFile& file : plan.files) files.push_back(file.name);
  return {{"file", out},
          {"bytes", written.bytes},
          {"unpacked_bytes", plan.bytes},
          {"folder", plan.folder},
          {"glibc", text_of(plan.glibc)},
          {"glibc_for", plan.glibc_for},
          {"libstdcxx", fmt::format("3.4.{}", plan.cxx.second)},
          {"files", files},
          {"system", plan.system}};
}

}  // namespace

ship::BundlePlan own_bundle(bool cuda) {
  const std::string torch = device::torch_folder();
  if (torch.empty())
    throw base::ConfigError(752, "LibTorch was not found beside the program: run `lockstep setup`");
  return ship::plan_bundle({.program = std::filesystem::read_symlink("/proc/self/exe").string(),
                            .library = device::path_beside("liblockstep.so"),
                            .site = std::filesystem::path(torch).parent_path().string(),
                            .cuda = cuda});
}

int bundle_command(Arguments& arguments) {
  std::string out = "lockstep.tar.zst";
  bool cuda = false, json = false;
  arguments.option("--out", out, "where to write it: .tar.zst, .tar.gz or .tar; default: lockstep.tar.zst");
  arguments.flag("--cuda", cuda, "with CUDA's libraries (about 3 GB), for machines with GPUs");
  arguments.flag("--json", json, "print one JSON object");
  arguments.example("lockstep bundle --out lockstep.tar.zst",
                    "copy it to a node without a network, unpack, run");
  arguments.example("lockstep submit first.toml --to ssh --hosts gpu1 --set bundle=lockstep.tar.zst",
                    "copied and unpacked there by submit");
  if (!arguments.parse()) return 0;
  const ship::BundlePlan plan = own_bundle(cuda);
  const ship::Written written = ship::write_bundle(plan, out);
  json ? print("{}\n", json_of(plan, written, out).dump()) : report(plan, written, out);
  return 0;
}

}  // namespace lockstep::cli

// lockstep image: a folder with a Dockerfile and a bundle, built where a container engine is.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/ship/commands.h"
#include "lockstep/cli/ship/own_bundle.h"
#include "lockstep/jobs/client.h"
#include "lockstep/plan/catalogue/catalogue.h"
#include "lockstep/ship/image.h"

namespace lockstep::cli {

namespace {

constexpr const char* kBundle = "lockstep.tar.gz";

// Whether the device wants CUDA. ConfigError 753 where nothing of ours runs on it.
bool wants_cuda(const std::string& device) {
  if (device == "cpu") return false;
  const plan::DeviceRow* row = plan::built_in_catalogue().find_device(device);
  if (row == nullptr)
    throw base::ConfigError(
        753, fmt::format("--for {}: no such device in the catalogue; use cpu, or a GPU that `lockstep "
                         "prices` lists",
                         base::quoted(device)));
  if (row->maker == "nvidia" && row->trains()) return true;
  throw base::ConfigError(
      753, fmt::format("--for {}: {} is not run by Lockstep ({}); use cpu or an NVIDIA GPU", device,
                       row->title, row->note.empty() ? "only NVIDIA's GPUs and CPUs are" : row->note));
}

// An engine that answers.
std::optional<std::string> find_engine(jobs::Client& client) {
  for (const char* name : {"docker", "podman", "buildah"}) {
    if (jobs::is_in_path(name) && client.run({.words = {name, "info"}, .patience_s = 20}).ok()) return name;
  }
  return std::nullopt;
}

std::vector<std::string> build_words(const std::string& engine, const std::string& tag,
                                     const std::string& folder) {
  return {engine, "build", "-t", tag, folder};
}

}  // namespace

int image_command(Arguments& arguments) {
  std::string device = "cpu", out = "lockstep-image", tag = fmt::format("lockstep:{}", base::kVersion);
  bool build = false, json = false;
  arguments.option("--for", device,
                   "what it runs on: cpu (default), or a GPU such as h100, with CUDA's libraries");
  arguments.option("--out", out, "the folder to write; default: lockstep-image");
  arguments.flag("--build", build, "build it with docker, podman or buildah");
  arguments.option("--tag", tag, "of the image that is built");
  arguments.flag("--json", json, "print one JSON object");
  arguments.example("lockstep image", "a Dockerfile and all that it adds, for CPUs");
  arguments.example("lockstep image --for h100 --build --tag registry/me/lockstep", "built, ready to push");
  if (!arguments.parse()) return 0;
  const bool cuda = wants_cuda(device);
  jobs::ProcessClient client;
  const std::optional<std::string> engine = build ? find_engine(client) : std::nullopt;
  if (build && !engine)
    throw base::ConfigError(
        754,
        "--build: neither docker nor podman nor buildah answers here; leave --build out, and build "
        "the folder where one does");
  const ship::BundlePlan plan = own_bundle(cuda);
  base::make_folders(out);
  ship::write_bundle(plan, out + "/" + kBundle);
  const std::string text =
      ship::dockerfile({.bundle = kBundle, .folder = plan.folder, .glibc = plan.glibc, .cuda = cuda});
  base::write_file_durable(out + "/Dockerfile", text);
  base::write_file_durable(out + "/.dockerignore", fmt::format("*\n!{}\n", kBundle));
  const std::vector<std::string> words = build_words(engine.value_or("docker"), tag, out);
  if (engine && client.attach({.words = words}) != 0)
    throw base::IoError(754, fmt::format("{} could not build the image; it says why above", *engine));
  if (json) {
    print("{}\n", nlohmann::json{{"folder", out},
                                 {"base", ship::base_image(plan.glibc)},
                                 {"cuda", cuda},
                                 {"built", engine.has_value()},
                                 {"tag", tag},
                                 {"build", words}}
                      .dump());
  } else {
    print("{}: Dockerfile (from {}) and {}\n", out, ship::base_image(plan.glibc), kBundle);
    if (!engine) print("build   {}\n", jobs::shell_line(words));
    print("run     docker run --rm {}-v $PWD:/work {} lockstep train\n", cuda ? "--gpus all " : "", tag);
  }
  return 0;
}

}  // namespace lockstep::cli

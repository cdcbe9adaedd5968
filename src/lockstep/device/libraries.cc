#include "lockstep/device/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/working_directory.h"
#include "lockstep/device/device.h"
#include "lockstep/device/facts.h"
#include "lockstep/device/plugin.h"

namespace lockstep::device {
namespace {

constexpr const char* kTorch = "libtorch_cpu.so";
constexpr const char* kUsesTorch = "liblockstep_torch.so";

std::string loaded_torch() {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const std::string_view name = info->dlpi_name != nullptr ? info->dlpi_name : "";
        if (name.ends_with(std::string("/") + kTorch)) *static_cast<std::string*>(found) = name;
        return 0;
      },
      &path);
  return path;
}

// Where the loader would look for what this library opens by its name alone.
std::vector<std::string> search_folders() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<void*>(&torch_folder), &here) == 0 || here.dli_fname == nullptr) return {};
  void* self = ::dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (self == nullptr) self = ::dlopen(nullptr, RTLD_LAZY);  // a program that holds the library itself
  std::vector<std::string> folders;
  Dl_serinfo size{};
  if (self != nullptr && ::dlinfo(self, RTLD_DI_SERINFOSIZE, &size) == 0) {
    std::vector<char> room(size.dls_size);
    auto* paths = reinterpret_cast<Dl_serinfo*>(room.data());
    if (::dlinfo(self, RTLD_DI_SERINFOSIZE, paths) == 0 && ::dlinfo(self, RTLD_DI_SERINFO, paths) == 0) {
      for (unsigned i = 0; i < paths->dls_cnt; ++i) folders.emplace_back(paths->dls_serpath[i].dls_name);
    }
  }
  if (self != nullptr) ::dlclose(self);
  return folders;
}

}  // namespace

std::string product_library() {
  void* plugin = cuda_plugin();
  if (plugin == nullptr) return "";
  const auto version = reinterpret_cast<PluginProducts>(::dlsym(plugin, "lockstep_cuda_products"));
  if (version == nullptr) return "";
  const int number = version();  // 130100
  return fmt::format("cublasLt {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

std::string torch_folder() {
  namespace fs = std::filesystem;
  if (const std::string loaded = loaded_torch(); !loaded.empty())
    return fs::path(loaded).parent_path().parent_path().string();
  std::error_code ignored;
  for (const std::string& folder : search_folders()) {
    if (fs::exists(fs::path(folder) / kTorch, ignored)) return fs::path(folder).parent_path().string();
  }
  return "";
}

std::string path_beside(const std::string& file) {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<void*>(&torch_folder), &here) == 0 || here.dli_fname == nullptr) return file;
  return (std::filesystem::path(here.dli_fname).parent_path() / file).string();
}

void require_torch_series(const std::string& folder) {
  const std::string text = base::try_read_file(folder + "/version.py", 1 << 16).text;
  const std::string version = parse_python_string(text, "__version__");
  if (version.empty() || version.starts_with(kTorchSeries)) return;  // a bundle has no such file
  throw base::ConfigError(
      406, fmt::format("{} is PyTorch {}, and this program is built for {}x: `lockstep doctor` says how "
                       "to install that",
                       folder, version, kTorchSeries));
}

void* load_library(const std::string& path_or_name) {
  base::require_working_directory();
  if (path_or_name.ends_with(kTorch) || path_or_name.ends_with(kUsesTorch))
    require_torch_series(torch_folder());
  void* library = ::dlopen(path_or_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* reason = ::dlerror();
  throw base::ConfigError(406, fmt::format("{} cannot be loaded ({}): `lockstep doctor` says what to do",
                                           path_or_name, reason != nullptr ? reason : "no reason given"));
}

void* find_in_library(void* library, const std::string& name, const char* symbol) {
  if (void* found = ::dlsym(library, symbol)) return found;
  throw base::ConfigError(
      406, fmt::format("{} does not export {}: `lockstep doctor` says what to do", name, symbol));
}

}  // namespace lockstep::device

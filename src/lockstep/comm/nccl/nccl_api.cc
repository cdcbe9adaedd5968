#include "lockstep/comm/nccl/nccl_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/libraries.h"

namespace lockstep::comm {
namespace {

// LibTorch's wheel keeps NCCL beside itself: site/torch, site/nvidia/nccl/lib/libnccl.so.2.
std::string beside_torch() {
  const std::string torch = device::torch_folder();
  if (torch.empty()) return "";
  return (std::filesystem::path(torch).parent_path() / "nvidia/nccl/lib/libnccl.so.2").string();
}

// Like the CUDA plugin, it is opened once and stays: it keeps threads of its own.
void* open_nccl() {
  std::vector<std::string> reasons;
  for (const std::string& path : {beside_torch(), std::string("libnccl.so.2")}) {
    if (path.empty()) continue;
    if (void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* reason = ::dlerror();
    reasons.push_back(reason != nullptr ? reason : path);
  }
  throw base::ConfigError(
      527,
      fmt::format("NCCL cannot be loaded ({}): run `lockstep setup`, or add its folder to LD_LIBRARY_PATH",
                  fmt::join(reasons, "; ")));
}

template <class Function>
void find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (*function == nullptr) {
    throw base::ConfigError(527, fmt::format("this NCCL lacks {}: version 2.17 or newer is needed", name));
  }
}

NcclApi load() {
  void* handle = open_nccl();
  NcclApi api{};
  find(handle, "ncclGetUniqueId", &api.GetUniqueId);
  find(handle, "ncclCommInitRankConfig", &api.CommInitRankConfig);
  find(handle, "ncclCommDestroy", &api.CommDestroy);
  find(handle, "ncclCommAbort", &api.CommAbort);
  find(handle, "ncclCommGetAsyncError", &api.CommGetAsyncError);
  find(handle, "ncclGetErrorString", &api.GetErrorString);
  find(handle, "ncclGetLastError", &api.GetLastError);
  find(handle, "ncclAllReduce", &api.AllReduce);
  find(handle, "ncclReduce", &api.Reduce);
  find(handle, "ncclReduceScatter", &api.ReduceScatter);
  find(handle, "ncclAllGather", &api.AllGather);
  find(handle, "ncclBroadcast", &api.Broadcast);
  find(handle, "ncclSend", &api.Send);
  find(handle, "ncclRecv", &api.Recv);
  find(handle, "ncclGroupStart", &api.GroupStart);
  find(handle, "ncclGroupEnd", &api.GroupEnd);
  return api;
}

}  // namespace

const NcclApi& nccl_api() {
  static const NcclApi api = load();  // tried again when it threw
  return api;
}

}  // namespace lockstep::comm

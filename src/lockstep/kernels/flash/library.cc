#include "lockstep/kernels/flash/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "lockstep/device/libraries.h"

namespace lockstep::kernels::cuda {
namespace {

FlashState load() {
  const std::string path = device::path_beside("liblockstep_flash.so");
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return {nullptr, reason != nullptr ? reason : path + " cannot be opened"};
  }
  const auto table_of =
      reinterpret_cast<decltype(&lockstep_flash_table)>(::dlsym(handle, "lockstep_flash_table"));
  if (table_of == nullptr) return {nullptr, path + " has no lockstep_flash_table"};
  const LockstepFlashTable* table = table_of();
  if (table->abi != LOCKSTEP_FLASH_ABI)
    return {nullptr, fmt::format("{} is from another version of Lockstep (its table is of kind {}, not {})",
                                 path, table->abi, LOCKSTEP_FLASH_ABI)};
  return {table, ""};
}

}  // namespace

// Opened once and kept: kernels stay loaded until the process ends.
const FlashState& flash_state() {
  static const FlashState& opened = *new FlashState(load());
  return opened;
}

}  // namespace lockstep::kernels::cuda

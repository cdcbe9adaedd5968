// libFuzzer: whatever bytes a safetensors file holds, it is refused in words or handed out within its bounds.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = ::memfd_create("safetensors", 0);
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const lockstep::checkpoint::SafetensorsFile opened("/proc/self/fd/" + std::to_string(file));
    for (const auto& [name, entry] : opened.entries()) {
      const int64_t bytes = entry.end - entry.begin;
      if (opened.file().text(entry.begin, bytes).size() != static_cast<size_t>(bytes)) std::abort();
    }
  } catch (const lockstep::base::DataError&) {
  }
  return 0;
}

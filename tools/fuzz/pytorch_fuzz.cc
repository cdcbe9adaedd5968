// libFuzzer: whatever bytes a pytorch_model.bin or its pickle holds, they are refused in words or handed out
// within their bounds.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/formats/pickle.h"
#include "lockstep/checkpoint/formats/pytorch.h"

namespace {

using lockstep::checkpoint::PytorchFile;

void read_all(const PytorchFile& opened) {
  for (const auto& [name, entry] : opened.entries()) {
    if (entry.begin < 0 || entry.end < entry.begin || entry.end > opened.file().size()) std::abort();
    const int64_t count = std::min<int64_t>(entry.elements(), 4096);
    if (entry.strides.empty()) {
      if (entry.end - entry.begin != entry.bytes()) std::abort();
    } else if (opened.gather(entry, entry.elements() - count, count, &name).empty()) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = ::memfd_create("pytorch", 0);
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    read_all(PytorchFile("/proc/self/fd/" + std::to_string(file)));
  } catch (const lockstep::base::DataError&) {
  }
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    lockstep::checkpoint::Pickle(text, "data.pkl").tensors();
  } catch (const lockstep::base::DataError&) {
  }
  return 0;
}

#include "lockstep/data/formats/kept.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/device/cpu_features.h"

namespace lockstep::data {

KeptInMemory::KeptInMemory() : most_(device::host_memory().available_bytes / 10 * 8) {}

void KeptInMemory::add(size_t bytes, const std::string& file) {
  kept_ += static_cast<int64_t>(bytes);
  if (kept_ <= most_ || most_ <= 0) return;
  throw base::DataError(
      281, fmt::format("{} does not fit: the data takes more than {} when it is read into memory; make token "
                       "files of it with `lockstep tokenize`, which are read where they lie",
                       file, base::human_bytes(static_cast<double>(most_))));
}

}  // namespace lockstep::data

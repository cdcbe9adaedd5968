#include "lockstep/checkpoint/formats/tensor_file.h"

#include <cstring>

namespace lockstep::checkpoint {

int64_t TensorFile::Entry::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// All that lies between the first element and the last is read, also what belongs to none of them: views with
// gaps are rare and small.
std::vector<std::byte> TensorFile::gather(const Entry& entry, int64_t first, int64_t count,
                                          const std::string* tensor) const {
  const auto size = static_cast<size_t>(device::size_of(entry.dtype));
  std::vector<std::byte> stored(static_cast<size_t>(entry.end - entry.begin));
  file_.read({{.at = entry.begin,
               .bytes = entry.end - entry.begin,
               .to = stored.data(),
               .widen = {},
               .tensor = tensor}});
  std::vector<std::byte> row_by_row(static_cast<size_t>(count) * size);
  for (int64_t k = 0; k < count; ++k) {
    int64_t rest = first + k, at = 0;
    for (size_t d = entry.shape.size(); d-- > 0; rest /= entry.shape[d])
      at += rest % entry.shape[d] * entry.strides[d];
    std::memcpy(row_by_row.data() + static_cast<size_t>(k) * size,
                stored.data() + static_cast<size_t>(at) * size, size);
  }
  return row_by_row;
}

}  // namespace lockstep::checkpoint

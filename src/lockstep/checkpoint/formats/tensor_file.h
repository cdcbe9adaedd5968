// A file of named tensors, whatever its format: where each of them lies, checked before a byte is handed out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checked_file.h"
#include "lockstep/device/tensor.h"

namespace lockstep::checkpoint {

class TensorFile {
 public:
  struct Entry {
    device::DType dtype;
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0;      // bytes in the file, from its first element to its last
    std::vector<int64_t> strides{};  // in elements, as PyTorch stores views; empty: row by row without gaps
    int64_t elements() const;
    int64_t bytes() const { return elements() * device::size_of(dtype); }
  };
  virtual ~TensorFile() = default;
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  const std::string& path() const { return file_.path(); }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const CheckedFile& file() const { return file_; }

  // Elements [first, first + count) of an entry with strides, row by row, as they are stored.
  std::vector<std::byte> gather(const Entry& entry, int64_t first, int64_t count,
                                const std::string* tensor) const;

 protected:
  explicit TensorFile(const std::string& path, std::optional<std::vector<uint32_t>> sums = {},
                      std::optional<int64_t> bytes = {})
      : file_(path, std::move(sums), bytes) {}
  CheckedFile file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace lockstep::checkpoint

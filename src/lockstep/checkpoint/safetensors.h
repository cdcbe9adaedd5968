// The safetensors format: a header of names, types, shapes and byte ranges, then the bytes.
//
// The reader trusts nothing: header length, JSON, types, shapes, ranges (in bounds, without overlap or gaps)
// are checked before a byte of data is handed out, and an error names file and tensor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/device/tensor.h"

namespace lockstep::checkpoint {

struct HostTensor {
  std::string name;
  device::Tensor tensor;  // host memory that the caller owns
};

// Writes, then fsyncs file and folder. IoError (LS08xx) when the disk is full or fails; the file is then
// removed. Returns a checksum of the whole file, made while writing.
struct FileSummary {
  std::string name;  // without folder
  int64_t bytes = 0;
  std::string checksum;  // hex, 64 bit
};
FileSummary write_safetensors(const std::string& path, const std::vector<HostTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

class SafetensorsFile {
 public:
  struct Entry {
    device::DType dtype;
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0;  // bytes in the file
  };
  explicit SafetensorsFile(const std::string& path);  // DataError (LS03xx)
  ~SafetensorsFile();
  const std::string& path() const;
  const std::map<std::string, Entry>& entries() const;
  const std::map<std::string, std::string>& metadata() const;
  const void* data(const Entry& entry) const;  // mapped memory, read-only
  FileSummary summary() const;                 // reads the whole file

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::checkpoint

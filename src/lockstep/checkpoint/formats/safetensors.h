// The safetensors format: a header of names, types, shapes and byte ranges, then the bytes.
//
// The reader trusts nothing: header length, JSON, types, shapes, ranges (in bounds, without overlap or gaps)
// are checked before a byte of data is handed out, and an error names file and tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/formats/tensor_file.h"
#include "lockstep/checkpoint/saving/piece.h"
#include "lockstep/device/tensor.h"

namespace lockstep::checkpoint {

// A file of a checkpoint, as the manifest lists it.
struct FileSummary {
  std::string name;  // without folder
  int64_t bytes = 0;
  std::vector<uint32_t> sums;  // CRC32C of each chunk (chunk_sums.h)
};

// What a file of these tensors begins with, up to the first byte of data: a multiple of 4 KiB.
std::string safetensors_header(const std::vector<Whole>& tensors,
                               const std::map<std::string, std::string>& metadata);

class SafetensorsFile : public TensorFile {
 public:
  // DataError (LS03xx). With sums, the header is checked now and the rest as it is read.
  explicit SafetensorsFile(const std::string& path, std::optional<FileSummary> expected = {});
};

}  // namespace lockstep::checkpoint

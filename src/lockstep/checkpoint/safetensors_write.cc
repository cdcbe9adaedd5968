#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/file_writer.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/safetensors_dtype.h"

namespace lockstep::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

std::string in_json(const std::string& text) { return nlohmann::json(text).dump(); }

std::string shape_in_json(const device::Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) text += fmt::format("{}{}", i ? "," : "", shape[i]);
  return fmt::format("[{}]", text);
}

// Padded with spaces so that the data start at a multiple of 8.
std::string header_of(const std::vector<HostTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  const auto separate = [&] {
    if (header.size() > 1) header += ',';
  };
  if (!metadata.empty()) header += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::set<std::string> names{"__metadata__"};
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    LS_ASSERT(names.insert(name).second, name + " is saved twice");
    separate();
    header +=
        fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", in_json(name),
                    safetensors_name(tensor.dtype), shape_in_json(tensor.shape), at, at + tensor.bytes());
    at += tensor.bytes();
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

}  // namespace

FileSummary write_safetensors(const std::string& path, const std::vector<HostTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  const std::string header = header_of(tensors, metadata);
  const uint64_t length = header.size();
  FileWriter file = FileWriter::create(path);
  file.append(std::as_bytes(std::span(&length, 1)));
  file.append(header);
  for (const HostTensor& one : tensors) {
    file.append(std::span(one.tensor.as<const std::byte>(), static_cast<size_t>(one.tensor.bytes())));
  }
  return file.finish();
}

}  // namespace lockstep::checkpoint

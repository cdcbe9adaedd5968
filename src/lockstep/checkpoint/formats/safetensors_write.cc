#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/checkpoint/formats/safetensors.h"
#include "lockstep/checkpoint/formats/safetensors_dtype.h"

namespace lockstep::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

std::string in_json(const std::string& text) { return nlohmann::json(text).dump(); }

std::string shape_in_json(const device::Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) text += fmt::format("{}{}", i ? "," : "", shape[i]);
  return fmt::format("[{}]", text);
}

constexpr size_t kDataAlignment = 4096;  // the header is padded with spaces

}  // namespace

std::string safetensors_header(const std::vector<Whole>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  const auto separate = [&] {
    if (header.size() > 1) header += ',';
  };
  if (!metadata.empty()) header += "\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::set<std::string> names{"__metadata__"};
  int64_t at = 0;
  for (const Whole& one : tensors) {
    LS_ASSERT(names.insert(one.name).second, one.name + " is saved twice");
    separate();
    header += fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", in_json(one.name),
                          safetensors_name(one.dtype), shape_in_json(one.shape), at, at + one.bytes());
    at += one.bytes();
  }
  header += '}';
  const size_t total = base::round_up(sizeof(uint64_t) + header.size(), kDataAlignment);
  header.resize(total - sizeof(uint64_t), ' ');
  std::string length(sizeof(uint64_t), '\0');
  const uint64_t size = header.size();
  std::memcpy(length.data(), &size, sizeof size);
  return length + header;
}

}  // namespace lockstep::checkpoint

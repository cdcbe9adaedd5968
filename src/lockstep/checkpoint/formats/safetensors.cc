#include "lockstep/checkpoint/formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/formats/safetensors_dtype.h"
#include "lockstep/checkpoint/formats/strict_json.h"
#include "lockstep/checkpoint/saving/piece.h"

namespace lockstep::checkpoint {
namespace {

using Json = nlohmann::json;
using Entry = SafetensorsFile::Entry;

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMostHeader = 100'000'000;  // the reference implementation's limit
constexpr const char* kMetadata = "__metadata__";

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
  throw CheckpointError(
      301, fmt::format("{} is not a valid safetensors file: {}; download or export it again", path, why));
}

[[noreturn]] void refuse_tensor(const std::string& path, const std::string& name, const std::string& why) {
  throw CheckpointError(
      302, fmt::format("{}: tensor {} {}; download or export the file again", path, base::quoted(name), why));
}

std::string header_text(const CheckedFile& file) {
  if (file.size() < kLengthBytes) refuse_file(file.path(), fmt::format("it has only {} bytes", file.size()));
  uint64_t length = 0;
  std::memcpy(&length, file.text(0, kLengthBytes).data(), sizeof length);
  if (length > kMostHeader) {
    refuse_file(file.path(), fmt::format("its header length is {}, but the format allows at most {} bytes",
                                         length, kMostHeader));
  }
  if (length > static_cast<uint64_t>(file.size() - kLengthBytes)) {
    refuse_file(file.path(),
                fmt::format("its header of {} bytes does not fit in its {}", length, file.size()));
  }
  std::string header = file.text(kLengthBytes, static_cast<int64_t>(length));
  if (!header.starts_with('{')) refuse_file(file.path(), "its header does not begin with {");
  return header;
}

// A non-negative integer that fits into int64_t, or -1.
int64_t as_size(const Json& value) {
  if (!value.is_number_unsigned()) return -1;
  const uint64_t size = value.get<uint64_t>();
  return size <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ? static_cast<int64_t>(size) : -1;
}

// The member of an entry, or null.
const Json& member(const Json& entry, const char* key) {
  static const Json kNone;
  const auto found = entry.find(key);
  return found == entry.end() ? kNone : *found;
}

class Parser {
 public:
  Parser(const std::string& path, int64_t data_begin, int64_t file_size)
      : path_(path), data_begin_(data_begin), file_size_(file_size) {}

  Entry entry(const std::string& name, const Json& from) const {
    if (!from.is_object()) refuse_tensor(path_, name, "has an entry that is not an object");
    Entry entry;
    entry.dtype = dtype(name, member(from, "dtype"));
    const int64_t bytes = shape(name, member(from, "shape"), entry);
    range(name, member(from, "data_offsets"), entry);
    if (entry.end - entry.begin != bytes) {
      refuse_tensor(
          path_, name,
          fmt::format("of shape {} and type {} needs {} bytes, but its range has {}", shape_text(entry.shape),
                      device::name_of(entry.dtype), bytes, entry.end - entry.begin));
    }
    return entry;
  }

 private:
  device::DType dtype(const std::string& name, const Json& value) const {
    if (!value.is_string()) refuse_tensor(path_, name, "has no dtype");
    const std::string& text = value.get_ref<const std::string&>();
    const auto type = type_of_safetensors_name(text);
    if (!type) refuse_tensor(path_, name, fmt::format("has unknown dtype {}", base::quoted(text)));
    return *type;
  }

  // Returns the bytes that the shape asks for.
  int64_t shape(const std::string& name, const Json& value, Entry& entry) const {
    if (!value.is_array()) refuse_tensor(path_, name, "has no shape");
    int64_t bytes = device::size_of(entry.dtype);
    for (const Json& one : value) {
      const int64_t size = as_size(one);
      if (size < 0) refuse_tensor(path_, name, "has a shape with something other than sizes");
      if (__builtin_mul_overflow(bytes, size, &bytes)) {
        refuse_tensor(path_, name, "has an impossibly large shape");
      }
      entry.shape.push_back(size);
    }
    return bytes;
  }

  void range(const std::string& name, const Json& value, Entry& entry) const {
    const bool pair = value.is_array() && value.size() == 2;
    const int64_t begin = pair ? as_size(value[0]) : -1, end = pair ? as_size(value[1]) : -1;
    if (begin < 0 || end < begin) refuse_tensor(path_, name, "has no valid data_offsets");
    if (end > file_size_ - data_begin_) {
      refuse_tensor(path_, name,
                    fmt::format("ends at byte {} of {} bytes of data", end, file_size_ - data_begin_));
    }
    entry.begin = data_begin_ + begin;
    entry.end = data_begin_ + end;
  }

  const std::string& path_;
  int64_t data_begin_, file_size_;
};

// Nothing here reads it, but others who are given the file do.
void check_metadata(const std::string& path, const Json& metadata) {
  if (!metadata.is_object()) refuse_file(path, "its __metadata__ is not an object");
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string())
      refuse_file(path, fmt::format("its metadata {} is not a string", base::quoted(key)));
  }
}

// The tensors must tile the data: an overlap or a gap can hide bytes from those who look.
void check_tiling(const std::string& path, const std::map<std::string, Entry>& entries, int64_t at,
                  int64_t size) {
  std::vector<const std::pair<const std::string, Entry>*> order;
  for (const auto& one : entries) order.push_back(&one);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  for (const auto* one : order) {
    if (one->second.begin < at) refuse_tensor(path, one->first, "overlaps another tensor");
    if (one->second.begin > at) refuse_tensor(path, one->first, "leaves a gap before it");
    at = one->second.end;
  }
  if (at != size)
    refuse_file(path, fmt::format("{} bytes after its last tensor belong to no tensor", size - at));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path, std::optional<FileSummary> expected)
    : TensorFile(path, expected ? std::optional(expected->sums) : std::nullopt,
                 expected ? std::optional(expected->bytes) : std::nullopt) {
  const std::string header = header_text(file_);
  const Json json = parse_strict(header, 301, path + ": the safetensors header");
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header.size());
  const Parser parser(path, data_begin, file_.size());
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      check_metadata(path, value);
    } else {
      entries_.emplace(name, parser.entry(name, value));
    }
  }
  check_tiling(path, entries_, data_begin, file_.size());
}

}  // namespace lockstep::checkpoint

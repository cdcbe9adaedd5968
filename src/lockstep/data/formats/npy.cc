#include "lockstep/data/formats/npy.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct Type {
  std::string_view name;
  int width;
};
// Signed ones too: a negative token is refused as one that is too large.
constexpr Type kTypes[] = {{"|u1", 1}, {"<u2", 2}, {"<u4", 4}, {"<i4", 4}, {"<u8", 8}, {"<i8", 8}};

[[noreturn]] void refuse(const base::MappedFile& file, const std::string& why) {
  throw base::DataError(235, fmt::format("{} {}", file.path(), why));
}

// Behind the magic number: version, length of the header (2 or 4 bytes), and a Python dictionary as text.
std::string_view header_of(const base::MappedFile& file, size_t& data) {
  const std::string_view text = file.text();
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  const unsigned version = byte(6);
  const size_t begin = version == 1 ? 10 : 12;
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= size_t{byte(10)} << 16 | size_t{byte(11)} << 24;
  if (version < 1 || version > 3) refuse(file, fmt::format("has unknown .npy version {}", version));
  data = begin + length;
  if (data > text.size())
    refuse(file, fmt::format("ends at byte {}, inside its .npy header; it is truncated: download it again",
                             text.size()));
  return text.substr(begin, length);
}

// What stands behind 'name': in the dictionary, up to the end of the value.
std::string_view value_of(std::string_view header, std::string_view name) {
  const size_t found = header.find(fmt::format("'{}':", name));
  if (found == std::string_view::npos) return {};
  const std::string_view rest = base::trimmed(header.substr(found + name.size() + 3));
  const size_t end = rest.starts_with('(') ? rest.find(')') : rest.find_first_of(",}");
  return end == std::string_view::npos ? std::string_view{}
                                       : base::trimmed(rest.substr(0, end + rest.starts_with('(')));
}

// "(1000, 28)": both. Nothing: no such list.
std::optional<std::vector<int64_t>> sizes_of(std::string_view shape) {
  std::vector<int64_t> sizes;
  if (!shape.starts_with('(') || !shape.ends_with(')')) return std::nullopt;
  shape = base::trimmed(shape.substr(1, shape.size() - 2));
  while (!shape.empty()) {
    const std::optional<int64_t> size = base::take_number(shape);
    if (!size || *size < 0 || sizes.size() == 32) return std::nullopt;
    sizes.push_back(*size);
    shape = base::trimmed(shape);
    if (shape.empty()) break;
    if (!shape.starts_with(',')) return std::nullopt;
    shape = base::trimmed(shape.substr(1));
  }
  return sizes;
}

}  // namespace

bool is_npy(const base::MappedFile& file) { return file.text().starts_with(kMagic); }

NpyHeader read_npy_header(const base::MappedFile& file) {
  size_t data = 0;
  const std::string_view header = header_of(file, data);
  const std::string_view descr = value_of(header, "descr"), shape = value_of(header, "shape");
  const std::optional<std::vector<int64_t>> sizes = sizes_of(shape);
  if (descr.size() < 2 || descr.front() != '\'' || !sizes)
    refuse(file, "has an .npy header without a simple dtype and a shape; save it with np.save");
  if (sizes->size() > 1 && value_of(header, "fortran_order") == "True") {
    refuse(file, "contains an array in Fortran's order; save np.ascontiguousarray of it");
  }
  return {.type = std::string(descr.substr(1, descr.size() - 2)),
          .shape_text = std::string(base::cut_to_width(shape, 40)),
          .shape = *sizes,
          .data = static_cast<int64_t>(data)};
}

TokenSegment open_npy(base::MappedFile file) {
  const NpyHeader header = read_npy_header(file);
  if (header.shape.size() != 1) {
    refuse(file, fmt::format("contains an array of shape {}, but tokens must be one-dimensional; save "
                             "tokens.reshape(-1), or set data.kind=arrays for samples with labels",
                             header.shape_text));
  }
  const int64_t count = header.shape.front();
  for (const Type& type : kTypes) {
    if (header.type != type.name) continue;
    const int64_t there = file.size() - header.data;
    if (count > there / type.width || count * type.width != there) {
      refuse(file, fmt::format("contains {} bytes of data, but its .npy header promises {} tokens of {} "
                               "bytes; it was truncated or modified: download it again",
                               there, count, type.width));
    }
    return file_segment(std::move(file), header.data, type.width);
  }
  refuse(file, fmt::format("contains values of type {}, but tokens must be integers; save "
                           "tokens.astype(np.uint16), or np.uint32 for vocabularies above 65536",
                           base::quoted(header.type, 20)));
}

}  // namespace lockstep::data

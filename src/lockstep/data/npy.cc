#include "lockstep/data/npy.h"

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

// "(1000,)": 1000. Nothing: not of one dimension.
std::optional<int64_t> count_of(std::string_view shape) {
  shape.remove_prefix(1);
  const std::optional<int64_t> count = base::take_number(shape);
  return shape == ",)" && count >= 0 ? count : std::nullopt;
}

}  // namespace

bool is_npy(const base::MappedFile& file) { return file.text().starts_with(kMagic); }

TokenSegment open_npy(base::MappedFile file) {
  size_t data = 0;
  const std::string_view header = header_of(file, data);
  std::string_view descr = value_of(header, "descr");
  const std::string_view shape = value_of(header, "shape");
  if (descr.size() < 2 || descr.front() != '\'' || shape.size() < 2)
    refuse(file, "has an .npy header without a simple dtype and a shape; save it with np.save");
  descr = descr.substr(1, descr.size() - 2);
  const std::optional<int64_t> count = count_of(shape);
  if (!count) {
    refuse(file,
           fmt::format(
               "contains an array of shape {}, but tokens must be one-dimensional; save tokens.reshape(-1)",
               base::cut_to_width(shape, 40)));
  }
  for (const Type& type : kTypes) {
    if (descr != type.name) continue;
    const int64_t there = file.size() - static_cast<int64_t>(data);
    if (*count > there / type.width || *count * type.width != there) {
      refuse(file, fmt::format("contains {} bytes of data, but its .npy header promises {} tokens of {} "
                               "bytes; it was truncated or modified: download it again",
                               there, *count, type.width));
    }
    return file_segment(std::move(file), static_cast<int64_t>(data), type.width);
  }
  refuse(file, fmt::format("contains values of type {}, but tokens must be integers; save "
                           "tokens.astype(np.uint16), or np.uint32 for vocabularies above 65536",
                           base::quoted(descr, 20)));
}

}  // namespace lockstep::data

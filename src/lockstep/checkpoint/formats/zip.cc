#include "lockstep/checkpoint/formats/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"

namespace lockstep::checkpoint {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr int64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56;
constexpr int64_t kMostComment = 0xffff, kMostDirectory = int64_t{64} << 20;
constexpr uint64_t kIn64 = 0xffffffff;  // the true value stands in the ZIP64 field

[[noreturn]] void refuse(const CheckedFile& file, const std::string& why) {
  throw CheckpointError(
      312,
      fmt::format("{} is not a valid PyTorch file: {}; download it again, or save the model as safetensors",
                  file.path(), why));
}

// Little-endian, wherever it lies.
template <class T>
T number(std::string_view text, int64_t at) {
  uint64_t value = 0;
  for (size_t k = 0; k < sizeof(T); ++k)
    value |= uint64_t{static_cast<unsigned char>(text[static_cast<size_t>(at) + k])} << 8 * k;
  return static_cast<T>(value);
}

struct Directory {
  int64_t begin = 0, bytes = 0;
  uint64_t entries = 0;
};

Directory checked(const CheckedFile& file, uint64_t begin, uint64_t bytes, uint64_t entries, int64_t before) {
  if (bytes > static_cast<uint64_t>(std::min(before, kMostDirectory)) ||
      begin > static_cast<uint64_t>(before) - bytes)
    refuse(file, "its ZIP directory lies outside the file");
  if (entries > bytes / kCentralBytes) refuse(file, "its ZIP directory is shorter than declared");
  return {static_cast<int64_t>(begin), static_cast<int64_t>(bytes), entries};
}

// The record at the very end, behind which only a comment may stand.
Directory find_directory(const CheckedFile& file) {
  const int64_t tail_bytes = std::min(file.size(), kEndBytes + kMostComment),
                tail_at = file.size() - tail_bytes;
  const std::string tail = file.text(tail_at, tail_bytes);
  for (int64_t at = tail_bytes - kEndBytes; at >= 0; --at) {
    if (number<uint32_t>(tail, at) != kEnd || at + kEndBytes + number<uint16_t>(tail, at + 20) != tail_bytes)
      continue;
    const int64_t end = tail_at + at;
    const uint64_t entries = number<uint16_t>(tail, at + 10), bytes = number<uint32_t>(tail, at + 12),
                   begin = number<uint32_t>(tail, at + 16);
    if (at < kLocatorBytes || number<uint32_t>(tail, at - kLocatorBytes) != kLocator64)
      return checked(file, begin, bytes, entries, end);
    const auto end64 = number<uint64_t>(tail, at - kLocatorBytes + 8);
    if (end64 > static_cast<uint64_t>(end) - kLocatorBytes || end - kLocatorBytes < kEnd64Bytes ||
        end64 > static_cast<uint64_t>(end - kLocatorBytes - kEnd64Bytes))
      refuse(file, "its ZIP directory lies outside the file");
    const std::string record = file.text(static_cast<int64_t>(end64), kEnd64Bytes);
    if (number<uint32_t>(record, 0) != kEnd64) refuse(file, "it has no ZIP directory");
    return checked(file, number<uint64_t>(record, 48), number<uint64_t>(record, 40),
                   number<uint64_t>(record, 32), static_cast<int64_t>(end64));
  }
  refuse(file, "it has no ZIP directory: it is truncated, or not a ZIP archive");
}

struct Listed {
  std::string name;
  uint64_t bytes = 0, stored = 0, local = 0;
};

// Sizes that do not fit into 32 bits, in this order, only those that do not.
void read_extra(const CheckedFile& file, std::string_view extra, Listed& one) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const auto kind = number<uint16_t>(extra, static_cast<int64_t>(at));
    const size_t size = number<uint16_t>(extra, static_cast<int64_t>(at) + 2);
    const std::string_view field = extra.substr(at + 4).substr(0, size);
    at += 4 + size;
    if (kind != 1) continue;
    int64_t used = 0;
    for (uint64_t* value : {&one.bytes, &one.stored, &one.local}) {
      if (*value != kIn64) continue;
      if (used + 8 > static_cast<int64_t>(field.size()))
        refuse(file, "a size in its ZIP directory is missing");
      *value = number<uint64_t>(field, used);
      used += 8;
    }
    return;
  }
}

// One entry of the list; moves `at` behind it.
Listed read_listed(const CheckedFile& file, std::string_view list, int64_t& at) {
  const auto size = static_cast<int64_t>(list.size());
  if (at + kCentralBytes > size || number<uint32_t>(list, at) != kCentral)
    refuse(file, "its ZIP directory is damaged");
  const int64_t name = number<uint16_t>(list, at + 28), extra = number<uint16_t>(list, at + 30),
                comment = number<uint16_t>(list, at + 32);
  if (at + kCentralBytes + name + extra + comment > size) refuse(file, "its ZIP directory is damaged");
  Listed one{
      .name = std::string(list.substr(static_cast<size_t>(at + kCentralBytes), static_cast<size_t>(name))),
      .bytes = number<uint32_t>(list, at + 24),
      .stored = number<uint32_t>(list, at + 20),
      .local = number<uint32_t>(list, at + 42)};
  read_extra(file, list.substr(static_cast<size_t>(at + kCentralBytes + name), static_cast<size_t>(extra)),
             one);
  const bool encrypted = (number<uint16_t>(list, at + 8) & 1) != 0;
  const auto method = number<uint16_t>(list, at + 10);
  if (encrypted || method != 0 || one.stored != one.bytes) {
    refuse(file, fmt::format("its entry {} is {}, which PyTorch never writes", base::quoted(one.name),
                             encrypted ? "encrypted" : "compressed"));
  }
  at += kCentralBytes + name + extra + comment;
  return one;
}

// Behind the header that stands before the bytes themselves.
ZipEntry locate(const CheckedFile& file, const Listed& one, int64_t end) {
  const auto outside = [&] {
    refuse(file, fmt::format("its entry {} lies outside the file", base::quoted(one.name)));
  };
  if (one.local > static_cast<uint64_t>(end) || end - static_cast<int64_t>(one.local) < kLocalBytes)
    outside();
  const auto at = static_cast<int64_t>(one.local);
  const std::string header = file.text(at, kLocalBytes);
  if (number<uint32_t>(header, 0) != kLocal)
    refuse(file, fmt::format("its entry {} has no header", base::quoted(one.name)));
  const int64_t begin = at + kLocalBytes + number<uint16_t>(header, 26) + number<uint16_t>(header, 28);
  if (begin > end || one.bytes > static_cast<uint64_t>(end - begin)) outside();
  return {begin, static_cast<int64_t>(one.bytes)};
}

}  // namespace

std::map<std::string, ZipEntry> read_zip(const CheckedFile& file) {
  if (file.size() < kEndBytes) refuse(file, fmt::format("it has only {} bytes", file.size()));
  const Directory directory = find_directory(file);
  const std::string list = file.text(directory.begin, directory.bytes);
  std::map<std::string, ZipEntry> entries;
  int64_t at = 0;
  for (uint64_t k = 0; k < directory.entries; ++k) {
    const Listed one = read_listed(file, list, at);
    if (!entries.emplace(one.name, locate(file, one, directory.begin)).second)
      refuse(file, fmt::format("it contains {} twice", base::quoted(one.name)));
  }
  return entries;
}

}  // namespace lockstep::checkpoint

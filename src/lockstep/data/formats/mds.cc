#include "lockstep/data/formats/mds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/formats/unpack.h"

namespace lockstep::data {
namespace {

constexpr int64_t kLargestShard = int64_t{2} << 30;  // unpacked; writers make them of 64 MiB

std::string unpack_shard(const MdsShard& shard) {
  std::string bytes;
  const auto source = open_packed(shard.file);
  constexpr size_t kPiece = size_t{1} << 20;
  for (;;) {
    const size_t before = bytes.size();
    bytes.resize(before + kPiece);
    const size_t count = source->read(std::span(bytes).subspan(before));
    bytes.resize(before + count);
    if (count == 0) break;
    if (static_cast<int64_t>(bytes.size()) > shard.raw_bytes) break;
  }
  if (static_cast<int64_t>(bytes.size()) != shard.raw_bytes) {
    throw base::DataError(279, fmt::format("{} unpacks to {} bytes or more, but the index.json beside it "
                                           "promises {}; fetch both again",
                                           shard.file, bytes.size(), shard.raw_bytes));
  }
  return bytes;
}

template <class Word>
void append_numbers(std::string_view bytes, std::vector<int32_t>& tokens, bool& good) {
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    good = good && std::cmp_greater_equal(word, 0) &&
           std::cmp_less_equal(word, std::numeric_limits<int32_t>::max());
    tokens.push_back(static_cast<int32_t>(word));
  }
}

// The numbers that stand for a dtype where each array says it: the width in bits, and 1 more for signed ones.
bool read_dtype(unsigned char code, MdsArray& array) {
  const int bits = code & ~1;
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64) return false;
  array.width = bits / 8;
  array.is_signed = (code & 1) != 0;
  return true;
}

}  // namespace

MdsData::MdsData(const MdsShard& shard) : shard_(shard) {
  if (shard.raw_bytes > kLargestShard) {
    throw base::DataError(
        279, fmt::format("{} holds {} by its index.json, and shards above {} are not read", shard.file,
                         base::human_bytes(static_cast<double>(shard.raw_bytes)),
                         base::human_bytes(static_cast<double>(kLargestShard))));
  }
  if (shard.packed) {
    if (!is_packed(shard.file))
      throw base::DataError(279,
                            fmt::format("{} is neither gzip nor zstd, as its index.json says", shard.file));
    unpacked_ = unpack_shard(shard);
    bytes_ = unpacked_;
  } else {
    file_ = base::MappedFile::open(shard.file);
    bytes_ = file_.text();
  }
  const auto there = static_cast<int64_t>(bytes_.size());
  if (there != shard.raw_bytes || there < 8 || word_at(0) != shard.samples || shard.samples > there / 4 - 2) {
    throw base::DataError(
        279, fmt::format("{} has {} bytes and {} samples, but the index.json beside it "
                         "promises {} bytes and {} samples; fetch both again",
                         shard.file, there, there < 4 ? 0 : word_at(0), shard.raw_bytes, shard.samples));
  }
  for (int64_t sample = 0; sample < shard.samples; ++sample) {
    const int64_t begin = begin_of(sample), end = begin_of(sample + 1);
    if (begin < 4 * (shard.samples + 2) || begin > end || end > there)
      refuse(sample, fmt::format("lies at bytes {} to {}, outside of the {} of the file", begin, end, there));
  }
}

uint32_t MdsData::word_at(size_t at) const {
  uint32_t word = 0;
  std::memcpy(&word, bytes_.data() + at, sizeof word);
  return word;
}

int64_t MdsData::begin_of(int64_t sample) const { return word_at(static_cast<size_t>(4 * (sample + 1))); }

std::string_view MdsData::column_of(int64_t sample) const {
  const int64_t begin = begin_of(sample), end = begin_of(sample + 1);
  int64_t head = begin, before = 0, wanted = 0;
  for (size_t column = 0; column < shard_.sizes.size(); ++column) {
    int64_t size = shard_.sizes[column];
    if (size < 0) {
      if (head + 4 > end) refuse(sample, "ends inside the sizes of its columns");
      size = word_at(static_cast<size_t>(head));
      head += 4;
    }
    if (column < shard_.column) before += size;
    if (column == shard_.column) wanted = size;
  }
  if (before > end - head || wanted > end - head - before) refuse(sample, "has columns larger than itself");
  return bytes_.substr(static_cast<size_t>(head + before), static_cast<size_t>(wanted));
}

void MdsData::append_tokens(int64_t sample, std::vector<int32_t>& tokens) const {
  std::string_view bytes = column_of(sample);
  MdsArray array = shard_.array;
  const auto take = [&](size_t count) {
    if (count > bytes.size()) refuse(sample, "has an array that ends inside its own header");
    const std::string_view taken = bytes.substr(0, count);
    bytes.remove_prefix(count);
    return taken;
  };
  if (array.width == 0 && !read_dtype(static_cast<unsigned char>(take(1)[0]), array))
    refuse(sample, "has an array of numbers that are not whole");
  if (!array.fixed_shape) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    take((byte >> 2) * (size_t{1} << (byte & 3)));  // any shape: the numbers follow row by row
  }
  if (bytes.size() % static_cast<size_t>(array.width) != 0)
    refuse(sample, "has an array that ends inside a number");
  bool good = true;
  switch (array.width * (array.is_signed ? -1 : 1)) {
    case 1:
      append_numbers<uint8_t>(bytes, tokens, good);
      break;
    case -1:
      append_numbers<int8_t>(bytes, tokens, good);
      break;
    case 2:
      append_numbers<uint16_t>(bytes, tokens, good);
      break;
    case -2:
      append_numbers<int16_t>(bytes, tokens, good);
      break;
    case 4:
      append_numbers<uint32_t>(bytes, tokens, good);
      break;
    case -4:
      append_numbers<int32_t>(bytes, tokens, good);
      break;
    case 8:
      append_numbers<uint64_t>(bytes, tokens, good);
      break;
    default:
      append_numbers<int64_t>(bytes, tokens, good);
      break;
  }
  if (!good) refuse(sample, "has a number that is no token: it is outside of 0 to 2147483647");
}

void MdsData::refuse(int64_t sample, const std::string& why) const {
  throw base::DataError(
      279, fmt::format("{} sample {} {}; the file is damaged: fetch it again", shard_.file, sample, why));
}

}  // namespace lockstep::data

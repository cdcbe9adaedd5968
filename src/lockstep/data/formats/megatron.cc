#include "lockstep/data/formats/megatron.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr int64_t kHeader = 9 + 8 + 1 + 8 + 8;  // magic, version, type, sequences, documents

struct Type {
  const char* name;
  int width;  // 0: not whole numbers
};
// By its number; the widths that a token segment knows. Negative tokens are refused as ones that are too
// large.
constexpr Type kTypes[] = {{"none", 0},  {"uint8", 1},   {"int8", 1},    {"int16", 2}, {"int32", 4},
                           {"int64", 8}, {"float64", 0}, {"float32", 0}, {"uint16", 2}};

template <class Word>
Word word_at(const base::MappedFile& file, int64_t at) {
  Word word;
  std::memcpy(&word, file.bytes().data() + at, sizeof word);
  return word;
}

class Index {
 public:
  Index(const std::string& path, std::string bin)
      : file_(base::MappedFile::open(path)), bin_(std::move(bin)) {
    if (file_.size() < kHeader) refuse(fmt::format("has {} bytes, less than its header", file_.size()));
    if (const auto version = word_at<uint64_t>(file_, 9); version != 1)
      refuse(fmt::format("has version {}, and only version 1 is read", version));
    const auto type = word_at<uint8_t>(file_, 17);
    if (type >= std::size(kTypes) || kTypes[type].width == 0)
      refuse(fmt::format("says that its tokens are of type {}, and tokens are integers",
                         type < std::size(kTypes) ? kTypes[type].name : std::to_string(type)));
    width_ = kTypes[type].width;
    // Sequences: an int32 for the length and an int64 for the place each. Documents: an int64 each. An int8
    // for each sequence may follow.
    const auto sequences = word_at<uint64_t>(file_, 18), documents = word_at<uint64_t>(file_, 26);
    const auto room = static_cast<uint64_t>(file_.size() - kHeader);
    if (sequences > room / 12 || documents > (room - 12 * sequences) / 8)
      refuse(fmt::format("promises {} sequences and {} documents, more than its {} bytes can list", sequences,
                         documents, file_.size()));
    sequences_ = static_cast<int64_t>(sequences);
  }
  int width() const { return width_; }

  // The bytes of all sequences, which must follow each other.
  int64_t bytes() const {
    int64_t at = 0;
    for (int64_t i = 0; i < sequences_; ++i) {
      const auto length = word_at<int32_t>(file_, kHeader + 4 * i);
      const auto place = word_at<int64_t>(file_, kHeader + 4 * sequences_ + 8 * i);
      if (length < 0 || place != at)
        refuse(
            fmt::format("places sequence {} of {} tokens at byte {}, but the one before it ends at {}; "
                        "only datasets without gaps are read",
                        i, length, place, at));
      at += int64_t{length} * width_;
    }
    return at;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw base::DataError(
        280, fmt::format("{} {}; it is damaged or does not belong to {}", file_.path(), why, bin_));
  }

 private:
  base::MappedFile file_;
  std::string bin_;
  int width_ = 0;
  int64_t sequences_ = 0;
};

}  // namespace

std::string megatron_index_of(const std::string& bin) {
  const std::filesystem::path path(bin);
  if (path.extension() != ".bin" && path.extension() != ".idx") return "";
  std::filesystem::path index = path;
  index.replace_extension(".idx");
  char begin[kMagic.size()] = {};
  std::ifstream stream(index, std::ios::binary);
  stream.read(begin, sizeof begin);
  return stream && std::string_view(begin, sizeof begin) == kMagic ? index.string() : "";
}

TokenSegment open_megatron(const std::string& bin, const std::string& path) {
  base::MappedFile file = base::MappedFile::open(bin);
  const Index index(path, bin);
  const int64_t expected = index.bytes();
  if (file.size() != expected)
    index.refuse(fmt::format("lists {} bytes of tokens, but {} has {}", expected, bin, file.size()));
  return file_segment(std::move(file), 0, index.width());
}

}  // namespace lockstep::data

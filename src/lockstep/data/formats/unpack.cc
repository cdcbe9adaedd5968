#include "lockstep/data/formats/unpack.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kGzip = "\x1f\x8b", kZstd = "\x28\xb5\x2f\xfd", kSkippable = "\x2a\x4d\x18";
constexpr const char* kEndings[] = {".gz", ".zst", ".zstd"};
constexpr size_t kBuffer = size_t{256} << 10;
constexpr int kWidestWindow = 27;  // 128 MiB: what zstd's own program takes without being told to

// The compressed bytes, buffer by buffer.
class Input {
 public:
  explicit Input(const std::string& file) : file_(file), stream_(file, std::ios::binary), buffer_(kBuffer) {
    if (!stream_) {
      throw base::IoError(
          202, fmt::format("{} cannot be read: {}; check its permissions", file, std::strerror(errno)));
    }
  }
  // More, if none is left. False at the end.
  bool fill() {
    if (at_ < end_) return true;
    stream_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    before_ += static_cast<int64_t>(end_);
    at_ = 0, end_ = static_cast<size_t>(stream_.gcount());
    if (end_ == 0 && stream_.bad())
      throw base::IoError(202, fmt::format("{} cannot be read on from byte {}", file_, before_));
    return end_ > 0;
  }
  std::span<char> left() { return std::span(buffer_).subspan(at_, end_ - at_); }
  void take(size_t count) { at_ += count; }
  int64_t place() const { return before_ + static_cast<int64_t>(at_); }

  [[noreturn]] void fail(const std::string& why) const {
    throw base::DataError(273, fmt::format("{} cannot be unpacked at byte {} of the compressed file: {}; it "
                                           "is damaged or incomplete: fetch or compress it again",
                                           file_, place(), why));
  }

 private:
  std::string file_;
  std::ifstream stream_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  int64_t before_ = 0;
};

class GzipFile final : public PackedFile {
 public:
  explicit GzipFile(const std::string& file) : input_(file) {
    if (inflateInit2(&state_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~GzipFile() override { inflateEnd(&state_); }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;
  int64_t taken() const override { return input_.place(); }

  size_t read(std::span<char> out) override {
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), size_t{1} << 30));
    const uInt room = state_.avail_out;
    while (state_.avail_out == room) {
      if (!input_.fill()) {
        if (inside_) input_.fail("it ends in the middle of its gzip data");
        return 0;
      }
      if (!inside_ && !begin_member()) continue;
      inflate_some();
    }
    return room - state_.avail_out;
  }

 private:
  // Zeros behind the last member are padding, as with gzip itself.
  bool begin_member() {
    if (past_first_ && input_.left().front() == '\0') {
      input_.take(1);
      return false;
    }
    inside_ = true;
    if (past_first_) inflateReset(&state_);
    return true;
  }

  void inflate_some() {
    const std::span<char> left = input_.left();
    state_.next_in = reinterpret_cast<Bytef*>(left.data());
    state_.avail_in = static_cast<uInt>(left.size());
    const int result = inflate(&state_, Z_NO_FLUSH);
    input_.take(left.size() - state_.avail_in);
    if (result == Z_STREAM_END) {
      inside_ = false, past_first_ = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      input_.fail(state_.msg != nullptr ? state_.msg : "it is not gzip data");
    }
  }

  Input input_;
  z_stream state_{};
  bool inside_ = false, past_first_ = false;
};

class ZstdFile final : public PackedFile {
 public:
  explicit ZstdFile(const std::string& file) : input_(file), state_(ZSTD_createDCtx()) {
    if (state_ == nullptr) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, kWidestWindow);
  }
  ~ZstdFile() override { ZSTD_freeDCtx(state_); }
  ZstdFile(const ZstdFile&) = delete;
  ZstdFile& operator=(const ZstdFile&) = delete;
  int64_t taken() const override { return input_.place(); }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos == 0) {
      // What was read may still wait inside the decoder for room to be written to.
      const bool more = input_.fill();
      if (!more && !inside_) return 0;
      const std::span<char> left = more ? input_.left() : std::span<char>{};
      ZSTD_inBuffer from{left.data(), left.size(), 0};
      const size_t result = ZSTD_decompressStream(state_, &to, &from);
      input_.take(from.pos);
      if (ZSTD_isError(result)) input_.fail(ZSTD_getErrorName(result));
      inside_ = result != 0;
      if (!more && inside_ && to.pos == 0) input_.fail("it ends in the middle of its zstd data");
    }
    return to.pos;
  }

 private:
  Input input_;
  ZSTD_DCtx* state_;
  bool inside_ = false;
};

std::string in_small_letters(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string plain_first_bytes(const std::string& file, size_t most) {
  std::string bytes(most, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(bytes.data(), static_cast<std::streamsize>(most));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(0, stream.gcount())));
  return bytes;
}

}  // namespace

std::string_view packing_of(std::string_view bytes) {
  if (bytes.starts_with(kGzip)) return "gzip";
  const bool skippable = bytes.size() >= 4 && bytes[0] >= 0x50 && bytes[0] <= 0x5f &&
                         bytes.substr(1).starts_with(kSkippable);  // pzstd begins with such a frame
  return bytes.starts_with(kZstd) || skippable ? "zstd" : "";
}

bool is_packed(const std::string& file) { return !packing_of(plain_first_bytes(file, 4)).empty(); }

std::unique_ptr<PackedFile> open_packed(const std::string& file) {
  const std::string_view packing = packing_of(plain_first_bytes(file, 4));
  LS_ASSERT(!packing.empty());
  if (packing == "gzip") return std::make_unique<GzipFile>(file);
  return std::make_unique<ZstdFile>(file);
}

std::string without_packing(const std::string& name) {
  const std::string small = in_small_letters(name);
  for (const std::string_view ending : kEndings) {
    if (small.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

std::vector<std::string> with_packing(const std::vector<std::string>& endings) {
  std::vector<std::string> all = endings;
  for (const std::string& ending : endings) {
    for (const char* packing : kEndings) all.push_back(ending + packing);
  }
  return all;
}

std::string first_bytes_of(const std::string& file, size_t most) {
  std::string bytes = plain_first_bytes(file, most);
  if (packing_of(bytes).empty()) return bytes;
  const auto source = open_packed(file);
  bytes.assign(most, '\0');
  size_t filled = 0;
  while (filled < most) {
    const size_t count = source->read(std::span(bytes).subspan(filled));
    if (count == 0) break;
    filled += count;
  }
  bytes.resize(filled);
  return bytes;
}

void refuse_utf16(const std::string& file, std::string_view first_bytes) {
  constexpr size_t kLookedAt = 16, kEnough = 8;
  const std::string_view begin = first_bytes.substr(0, kLookedAt);
  size_t zeros[2] = {0, 0};
  for (size_t at = 0; at < begin.size(); ++at) zeros[at % 2] += begin[at] == '\0';
  const bool alternate = begin.size() >= kEnough && zeros[0] != zeros[1] &&
                         zeros[0] + zeros[1] == std::max(zeros[0], zeros[1]) &&
                         zeros[0] + zeros[1] == begin.size() / 2;
  std::string name;
  if (begin.starts_with("\xff\xfe") || begin.starts_with("\xfe\xff")) {
    name = "UTF-16";
  } else if (alternate) {
    name = zeros[1] > 0 ? "UTF-16LE" : "UTF-16BE";
  } else {
    return;
  }
  throw base::DataError(236, fmt::format("{0} is {1}, and text is read as UTF-8: convert it with "
                                         "`iconv -f {1} -t UTF-8`",
                                         file, name));
}

}  // namespace lockstep::data

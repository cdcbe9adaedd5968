#include "lockstep/ship/archive.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::ship {

namespace {

constexpr size_t kBlock = 512;
constexpr int64_t kTime = 315532800;  // 1980-01-01, the oldest date that every tool knows

}  // namespace

// Where the archive's bytes go: a file beside the wanted one, renamed at the end.
class Archive::Sink {
 public:
  explicit Sink(const std::string& path) : path_(path), part_(path + ".part") {
    file_ = std::fopen(part_.c_str(), "wb");
    if (file_ == nullptr) fail();
  }
  virtual ~Sink() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    std::remove(part_.c_str());
  }
  virtual void put(std::span<const std::byte> bytes) { write(bytes); }
  virtual void flush() {}

  int64_t finish() {
    flush();
    const bool good = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
    if (!good) fail();
    const int64_t size = std::ftell(file_);
    std::fclose(std::exchange(file_, nullptr));
    if (std::rename(part_.c_str(), path_.c_str()) != 0) fail();
    return size;
  }

 protected:
  void write(std::span<const std::byte> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail();
  }

 private:
  [[noreturn]] void fail() const {
    throw base::IoError(802, fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
  std::string path_, part_;
  FILE* file_ = nullptr;
};

namespace {

template <class Base>
class ZstdSink final : public Base {
 public:
  explicit ZstdSink(const std::string& path)
      : Base(path), stream_(ZSTD_createCCtx()), out_(ZSTD_CStreamOutSize()) {
    ZSTD_CCtx_setParameter(stream_, ZSTD_c_compressionLevel, 6);
    ZSTD_CCtx_setParameter(stream_, ZSTD_c_checksumFlag, 1);
  }
  ~ZstdSink() override { ZSTD_freeCCtx(stream_); }
  void put(std::span<const std::byte> bytes) override {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    while (in.pos < in.size) turn(in, ZSTD_e_continue);
  }
  void flush() override {
    ZSTD_inBuffer in{nullptr, 0, 0};
    while (turn(in, ZSTD_e_end) != 0) {
    }
  }

 private:
  size_t turn(ZSTD_inBuffer& in, ZSTD_EndDirective how) {
    ZSTD_outBuffer out{out_.data(), out_.size(), 0};
    const size_t left = ZSTD_compressStream2(stream_, &out, &in, how);
    LS_ASSERT(!ZSTD_isError(left), ZSTD_getErrorName(left));
    this->write(std::span(out_).first(out.pos));
    return left;
  }
  ZSTD_CCtx* stream_;
  std::vector<std::byte> out_;
};

template <class Base>
class GzipSink final : public Base {
 public:
  explicit GzipSink(const std::string& path) : Base(path), out_(size_t{1} << 16) {
    LS_ASSERT(deflateInit2(&stream_, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  }
  ~GzipSink() override { deflateEnd(&stream_); }
  void put(std::span<const std::byte> bytes) override {
    constexpr size_t kMost = size_t{1} << 30;
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kMost, bytes.size())))
      turn(bytes.first(std::min(kMost, bytes.size())), Z_NO_FLUSH);
  }
  void flush() override { turn({}, Z_FINISH); }

 private:
  void turn(std::span<const std::byte> bytes, int how) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = static_cast<uInt>(out_.size());
      deflate(&stream_, how);
      this->write(std::span(out_).first(out_.size() - stream_.avail_out));
    } while (stream_.avail_out == 0);
  }
  z_stream stream_ = {};
  std::vector<std::byte> out_;
};

}  // namespace

Archive::Archive(const std::string& path) {
  if (path.ends_with(".tar.zst")) {
    sink_ = std::make_unique<ZstdSink<Sink>>(path);
  } else if (path.ends_with(".tar.gz") || path.ends_with(".tgz")) {
    sink_ = std::make_unique<GzipSink<Sink>>(path);
  } else if (path.ends_with(".tar")) {
    sink_ = std::make_unique<Sink>(path);
  } else {
    throw base::ConfigError(750,
                            fmt::format("{} must end with .tar.zst, .tar.gz or .tar", base::quoted(path)));
  }
}

Archive::~Archive() = default;

// The header of POSIX's ustar format: numbers as octal text, and a checksum over its own bytes.
void Archive::add_header(const std::string& name, const std::string& target, int64_t size, int mode,
                         char kind) {
  std::byte block[kBlock] = {};
  const auto put = [&](size_t at, const std::string& text) {
    std::memcpy(block + at, text.data(), text.size());
  };
  LS_ASSERT(name.size() <= 100 && target.size() <= 100 && size < int64_t{1} << 33, name);
  put(0, name);
  put(100, fmt::format("{:07o}", mode));
  put(108, "0000000"), put(116, "0000000");
  put(124, fmt::format("{:011o}", size));
  put(136, fmt::format("{:011o}", kTime));
  put(148, "        ");  // the checksum counts as blanks
  block[156] = static_cast<std::byte>(kind);
  put(157, target);
  put(257, std::string("ustar\0"
                       "00",
                       8));
  put(265, "root"), put(297, "root");
  unsigned sum = 0;
  for (const std::byte one : block) sum += static_cast<unsigned>(one);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  sink_->put(block);
}

void Archive::add_file(const std::string& name, std::span<const std::byte> bytes, int mode) {
  add_header(name, "", static_cast<int64_t>(bytes.size()), mode, '0');
  sink_->put(bytes);
  const std::byte zeros[kBlock] = {};
  sink_->put(std::span(zeros).first((kBlock - bytes.size() % kBlock) % kBlock));
}

void Archive::add_link(const std::string& name, const std::string& target) {
  add_header(name, target, 0, 0777, '2');
}

int64_t Archive::finish() {
  const std::byte zeros[2 * kBlock] = {};
  sink_->put(zeros);
  return sink_->finish();
}

}  // namespace lockstep::ship

#include "lockstep/data/corpus/token_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNarrowVocab = int64_t{1} << 16;
constexpr size_t kBuffer = size_t{4} << 20;

void sync_folder(const fs::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  ::fsync(file);
  ::close(file);
}

}  // namespace

TokenWriter::TokenWriter(std::string stem, int64_t vocab, uint64_t tokenizer, int64_t most_tokens)
    : stem_(std::move(stem)),
      format_(kTokenFormats[vocab <= kNarrowVocab ? 0 : 1]),
      tokenizer_(tokenizer),
      most_tokens_(std::min(most_tokens, kMostTokensAFile)) {}

TokenWriter::~TokenWriter() {
  if (file_ >= 0) ::close(file_);
  for (const std::string& part : parts_) ::unlink(part.c_str());
}

void TokenWriter::fail(const char* what) const {
  throw base::IoError(
      802,
      fmt::format("{} cannot be {}: {}; free space or name another --out, and run the same command again",
                  parts_.empty() ? stem_ : parts_.back(), what, std::strerror(errno)));
}

void TokenWriter::open_next() {
  const fs::path path(stem_);
  parts_.push_back(
      (path.parent_path() / fmt::format(".{}-{:05d}.part", path.filename().string(), parts_.size()))
          .string());
  file_ = ::open(parts_.back().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file_ < 0) fail("made");
  in_file_ = 0;
  const TokenHeader empty{};
  const auto* bytes = reinterpret_cast<const char*>(empty.data());
  buffer_.assign(bytes, bytes + sizeof empty);
}

void TokenWriter::write_all(const void* bytes, size_t size) {
  const auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t done = ::write(file_, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("written");
    at += done;
    size -= static_cast<size_t>(done);
  }
}

// The header comes last: it counts.
void TokenWriter::close_file() {
  if (file_ < 0) return;
  write_all(buffer_.data(), buffer_.size());
  buffer_.clear();
  const TokenHeader header = make_token_header(format_, static_cast<int32_t>(in_file_), tokenizer_);
  if (::pwrite(file_, header.data(), sizeof header, 0) != static_cast<ssize_t>(sizeof header))
    fail("written");
  if (::fsync(file_) != 0) fail("written");
  ::close(file_);
  file_ = -1;
}

void TokenWriter::add(std::span<const int32_t> tokens) {
  while (!tokens.empty()) {
    if (file_ >= 0 && in_file_ == most_tokens_) close_file();
    if (file_ < 0) open_next();
    const auto count =
        static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(tokens.size()), most_tokens_ - in_file_));
    const size_t width = static_cast<size_t>(format_.width), old = buffer_.size();
    buffer_.resize(old + count * width);
    char* to = buffer_.data() + old;
    if (width == 4) {
      std::memcpy(to, tokens.data(), count * 4);
    } else {
      for (size_t i = 0; i < count; ++i) {
        const auto narrow = static_cast<uint16_t>(tokens[i]);
        std::memcpy(to + 2 * i, &narrow, 2);
      }
    }
    if (buffer_.size() >= kBuffer) {
      write_all(buffer_.data(), buffer_.size());
      buffer_.clear();
    }
    in_file_ += static_cast<int64_t>(count);
    total_ += static_cast<int64_t>(count);
    tokens = tokens.subspan(count);
  }
}

std::vector<std::string> TokenWriter::finish() {
  close_file();
  std::vector<std::string> names;
  for (size_t i = 0; i < parts_.size(); ++i) {
    names.push_back(parts_.size() == 1 ? stem_ + ".bin" : fmt::format("{}-{:05d}.bin", stem_, i));
    if (::rename(parts_[i].c_str(), names[i].c_str()) != 0) fail("renamed");
  }
  if (!names.empty()) sync_folder(fs::path(names[0]).parent_path());
  parts_.clear();
  return names;
}

}  // namespace lockstep::data

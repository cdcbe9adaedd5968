#include "lockstep/comm/store/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/store/store_crypto.h"

namespace lockstep::comm {
namespace {

constexpr size_t kBytes = 32;
constexpr size_t kFewestCharacters = 16;
constexpr size_t kMostBytes = 4096;  // of a passphrase

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The bytes that 64 hex digits stand for; empty if the text is anything else.
std::string from_hex(std::string_view text) {
  if (text.size() != 2 * kBytes) return "";
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = digit_of(text[i]), low = digit_of(text[i + 1]);
    if (high < 0 || low < 0) return "";
    bytes.push_back(static_cast<char>(16 * high + low));
  }
  return bytes;
}

// Everything in it from its start, wherever other processes that share the descriptor have read to; empty on
// failure.
std::string read_whole(int descriptor) {
  std::string text;
  std::array<char, kMostBytes> piece;
  bool seekable = true;
  while (text.size() <= kMostBytes) {
    const ssize_t got = seekable
                            ? ::pread(descriptor, piece.data(), piece.size(), static_cast<off_t>(text.size()))
                            : ::read(descriptor, piece.data(), piece.size());
    if (got < 0 && errno == ESPIPE && seekable) {
      seekable = false;  // a pipe
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0 ? text : "";
    text.append(piece.data(), static_cast<size_t>(got));
  }
  return "";
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
  throw base::ConfigError(512, fmt::format("the secret file {} cannot be used: {}", path, why));
}

}  // namespace

Secret Secret::random() { return Secret(random_bytes(kBytes)); }

Secret Secret::from_text(const std::string& text) {
  const std::string_view word = base::trimmed(text);
  if (word.size() < kFewestCharacters || word.size() > kMostBytes) {
    throw base::ConfigError(
        511,
        fmt::format(
            "a secret must have {} to {} characters, this one has {}; create one with `openssl rand -hex 32`",
            kFewestCharacters, kMostBytes, word.size()));
  }
  std::string bytes = from_hex(word);
  return Secret(bytes.empty() ? stretched(word) : std::move(bytes));
}

Secret Secret::from_file(const std::string& path) {
  // Not blocking: a pipe of that name must not hang us.
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.number < 0 || ::fstat(file.number, &status) != 0) refuse_file(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse_file(path, "it is not a regular file");
  if (status.st_uid != ::geteuid()) {
    refuse_file(path,
                fmt::format("it belongs to user {}, not to this user ({})", status.st_uid, ::geteuid()));
  }
  if (status.st_mode & 077) {
    refuse_file(path, fmt::format("it is accessible to others (mode {:o}); run chmod 600 {}",
                                  status.st_mode & 0777, path));
  }
  const std::string text = read_whole(file.number);
  if (base::trimmed(text).empty()) refuse_file(path, "it is empty, or larger than a secret");
  return from_text(text);
}

Secret Secret::from_descriptor(int number) {
  const base::Descriptor descriptor(number);
  std::string bytes = read_whole(descriptor.number);
  if (bytes.size() < kFewestCharacters) {
    throw base::ConfigError(519, fmt::format("descriptor {} (LOCKSTEP_SECRET_FD) contains no secret: ranks "
                                             "must be started by the launcher, which passes it on",
                                             number));
  }
  return Secret(std::move(bytes));
}

std::string Secret::to_text() const {
  std::string text;
  for (const char c : bytes_) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

int secret_descriptor(const Secret& secret) {
  const int file = ::memfd_create("lockstep-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const std::string& bytes = secret.bytes();
  const bool written =
      file >= 0 && ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) &&
      ::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0;
  if (written) return file;
  const int error = errno;
  if (file >= 0) ::close(file);
  throw base::IoError(
      519, fmt::format("cannot store the secret in memory for the ranks: {}", std::strerror(error)));
}

}  // namespace lockstep::comm

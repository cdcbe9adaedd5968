#include "lockstep/checkpoint/saving/range_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kWindow = int64_t{16} << 20;  // twice this may be dirty

}  // namespace

void check_disk(int64_t result, const std::string& path, int64_t written) {
  if (result >= 0) return;
  const int error = static_cast<int>(-result);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    const char* why = error == ENOSPC   ? "the disk is full"
                      : error == EDQUOT ? "the disk quota is used up"
                                        : "the file size limit is reached";
    throw base::IoError(807, fmt::format("{} cannot be written: {} after {}; free some space, lower "
                                         "checkpoint.keep, or move the run to another disk",
                                         path, why, base::human_bytes(static_cast<double>(written))));
  }
  throw base::IoError(808, fmt::format("{} cannot be written: {}; check the disk and its permissions, then "
                                       "run again; earlier checkpoints are intact",
                                       path, std::strerror(error)));
}

void RangeWriter::write(std::span<const std::byte> bytes, int64_t at) {
  while (!bytes.empty()) {
    const int64_t written = disk_->write(file_, bytes, at);
    if (written == -EINTR) continue;
    check_disk(written == 0 ? -EIO : written, path_, written_);
    written_ += written;
    note(at, written);
    at += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void RangeWriter::note(int64_t at, int64_t bytes) {
  now_.begin = now_.bytes == 0 ? at : std::min(now_.begin, at);
  now_.end = std::max(now_.end, at + bytes);
  now_.bytes += bytes;
  if (now_.bytes < kWindow) return;
  check_disk(disk_->flush(file_, now_.begin, now_.end - now_.begin, false), path_, written_);
  if (before_.bytes > 0)
    check_disk(disk_->flush(file_, before_.begin, before_.end - before_.begin, true), path_, written_);
  before_ = now_;
  now_ = {};
}

}  // namespace lockstep::checkpoint

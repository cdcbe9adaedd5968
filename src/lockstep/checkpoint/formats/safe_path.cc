#include "lockstep/checkpoint/formats/safe_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint_error.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

bool lies_in(const fs::path& file, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return end == folder.end() && rest != file.end();
}

// Both paths without links. The Hub's cache keeps the bytes of all revisions in one folder of blobs.
bool is_allowed(const fs::path& file, const fs::path& folder) {
  if (lies_in(file, folder)) return true;
  const fs::path revisions = folder.parent_path();
  return revisions.filename() == "snapshots" && lies_in(file, revisions.parent_path() / "blobs");
}

}  // namespace

std::string read_small_file(const std::string& path, int64_t most_bytes) {
  base::ReadResult read = base::try_read_file(path, most_bytes);
  if (read.problem.empty()) return std::move(read.text);
  throw CheckpointError(
      305, fmt::format(
               "{} cannot be read: {}; use another checkpoint of the run, or check its disk and permissions",
               path, read.problem));
}

bool is_plain_name(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.size() > 255) return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return c >= 0x20 && c != '/' && c != 0x7f; });
}

std::string file_inside(const std::string& folder, const std::string& name, const std::string& named_by) {
  if (!is_plain_name(name)) {
    throw CheckpointError(308, fmt::format("{} refers to file {}, which is not a plain name in its folder; "
                                           "do not use files from a source you do not trust",
                                           named_by, base::quoted(name)));
  }
  const fs::path path = fs::path(folder) / name;
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) {
    throw CheckpointError(305,
                          fmt::format("{} is missing ({}), but {} refers to it; copy the whole folder again",
                                      path.string(), error.message(), named_by));
  }
  const fs::path real_folder = fs::canonical(folder, error);
  if (error || !is_allowed(real, real_folder)) {
    throw CheckpointError(
        308,
        fmt::format(
            "{} is a symbolic link that points outside its folder, to {}; replace it with a copy of the file",
            path.string(), base::quoted(real.string(), 200)));
  }
  if (!fs::is_regular_file(real, error)) {
    throw CheckpointError(
        308, fmt::format("{} is not a regular file; replace it with the file itself", path.string()));
  }
  return path.string();
}

}  // namespace lockstep::checkpoint

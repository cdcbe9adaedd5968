#include "lockstep/kernels/gemm/matmul_memory.h"

#include <fmt/format.h>

#include <cstdlib>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/number.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kMostBytes = 4 << 20;
constexpr int kMostCandidates = 64;

std::string file_name(const std::string& name) {
  std::string safe = "products-";
  for (const char c : name) safe += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return safe + ".txt";
}

std::string checksum(const std::string& text) { return base::hex64(base::hash_text(text)); }

std::string line_of(const std::string& key, int candidate) {
  const std::string text = fmt::format("{} {}", key, candidate);
  return text + " " + checksum(text);
}

// {key, candidate} of a line, or nothing when it is not one that line_of() wrote.
std::optional<std::pair<std::string, int>> read_line(const std::string& line) {
  const size_t last = line.rfind(' ');
  if (last == std::string::npos) return std::nullopt;
  const std::string text = line.substr(0, last);
  const size_t before = text.rfind(' ');
  if (before == std::string::npos || line.substr(last + 1) != checksum(text)) return std::nullopt;
  const std::optional<int> candidate = base::parse_number<int>(std::string_view(text).substr(before + 1));
  if (!candidate || *candidate < 0 || *candidate >= kMostCandidates) return std::nullopt;
  return std::pair(text.substr(0, before), *candidate);
}

}  // namespace

std::string cache_folder() {
  const auto variable = [](const char* name) { return base::environment(name).value_or(""); };
  const std::string own = variable("LOCKSTEP_CACHE");
  if (own == "none") return "";
  if (!own.empty()) return own;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/lockstep";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/lockstep";
}

MatmulMemory::MatmulMemory(const std::string& name) {
  const std::string folder = cache_folder();
  if (folder.empty()) return;
  path_ = folder + "/" + file_name(name);
  const base::ReadResult file = base::try_read_file(path_, kMostBytes);
  for (size_t begin = 0; begin < file.text.size();) {
    const size_t end = std::min(file.text.find('\n', begin), file.text.size());
    if (const auto line = read_line(file.text.substr(begin, end - begin))) known_[line->first] = line->second;
    begin = end + 1;
  }
}

std::optional<int> MatmulMemory::find(const std::string& key) const {
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void MatmulMemory::remember(const std::string& key, int candidate) {
  known_[key] = candidate;
  if (path_.empty()) return;
  try {
    if (!writer_) {
      base::make_folders(path_.substr(0, path_.rfind('/')));
      writer_ = std::make_unique<base::LineWriter>(path_);
    }
    writer_->write(line_of(key, candidate));
  } catch (const base::Error&) {
    path_.clear();
  }
}

}  // namespace lockstep::kernels

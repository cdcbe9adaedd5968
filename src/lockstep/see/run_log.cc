#include "lockstep/see/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"

namespace lockstep::see {

namespace {

constexpr int64_t kAtOnce = int64_t{4} << 20;
constexpr size_t kLongestLine = size_t{1} << 20;  // ours have a few hundred bytes

// "2026-11-18T04:49:46.492Z"
double seconds_of(const std::string& time) {
  std::tm when{};
  double fraction = 0;
  int read = 0;
  if (std::sscanf(time.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &when.tm_year, &when.tm_mon, &when.tm_mday,
                  &when.tm_hour, &when.tm_min, &when.tm_sec, &read) != 6)
    return 0;
  if (static_cast<size_t>(read) < time.size() && time[static_cast<size_t>(read)] == '.')
    fraction = std::strtod(("0" + time.substr(static_cast<size_t>(read))).c_str(), nullptr);
  when.tm_year -= 1900, when.tm_mon -= 1;
  return static_cast<double>(::timegm(&when)) + fraction;
}

}  // namespace

std::optional<LogRow> parse_row(std::string_view line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number_integer()) return std::nullopt;
  LogRow row{.step = step->get<int64_t>(), .seconds = 0, .values = {}};
  for (const auto& [key, value] : json.items()) {
    if (key == "time" && value.is_string()) row.seconds = seconds_of(value.get<std::string>());
    if (key == "step" || !value.is_number()) continue;
    const double number = value.get<double>();
    if (std::isfinite(number)) row.values.emplace_back(key, number);
  }
  return row;
}

RunLog::RunLog(std::string folder) : folder_(std::move(folder)) {
  while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
  std::error_code error;
  if (std::filesystem::exists(folder_ + "/metrics.jsonl", error)) return;
  throw base::ConfigError(
      760,
      fmt::format("{} has no metrics.jsonl; name the folder of a run that has started, such as runs/first",
                  base::quoted(folder_)));
}

std::string RunLog::name() const {
  const std::string name = std::filesystem::path(folder_).filename();
  return name.empty() || name == "." || name == ".."
             ? std::filesystem::weakly_canonical(folder_).filename().string()
             : name;
}

// Whether the file still has, before offset_, what was read there last.
bool RunLog::same_end(int file) const {
  std::string now(last_line_.size(), '\0');
  const int64_t at = offset_ - static_cast<int64_t>(last_line_.size());
  return ::pread(file, now.data(), now.size(), at) == static_cast<ssize_t>(now.size()) && now == last_line_;
}

void RunLog::take(std::string_view line) {
  if (line.size() <= 1) return;
  if (auto row = parse_row(line.substr(0, line.size() - 1))) {
    rows_.push_back(std::move(*row));
  } else {
    ++left_out_;
  }
}

bool RunLog::poll() {
  const std::string path = folder_ + "/metrics.jsonl";
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto refuse = [&](int error) {
    throw base::IoError(761, fmt::format("{} cannot be read: {}", path, std::strerror(error)));
  };
  if (file.number < 0) refuse(errno);
  rewound_to_.reset();
  std::vector<LogRow> before;
  const bool again = !same_end(file.number);
  if (again) {
    before.swap(rows_);
    offset_ = 0, left_out_ = 0, last_line_.clear();
  }
  fresh_ = rows_.size();
  std::string buffer;
  for (int64_t from = offset_;;) {
    const size_t kept = buffer.size();
    buffer.resize(kept + static_cast<size_t>(kAtOnce));
    const ssize_t got = ::pread(file.number, buffer.data() + kept, static_cast<size_t>(kAtOnce), from);
    if (got < 0) refuse(errno);
    buffer.resize(kept + static_cast<size_t>(got));
    if (got == 0) break;
    from += got;
    size_t done = 0;
    for (size_t end = buffer.find('\n'); end != std::string::npos; end = buffer.find('\n', done)) {
      const std::string_view line(buffer.data() + done, end + 1 - done);
      take(line);
      last_line_ = line;
      done = end + 1;
    }
    offset_ += static_cast<int64_t>(done);
    buffer.erase(0, done);
    if (buffer.size() > kLongestLine)
      throw base::DataError(762, fmt::format("{} has a line of more than {} bytes: it is no run's metrics",
                                             path, kLongestLine));
  }
  if (!again) return rows_.size() > fresh_;
  size_t same = 0;
  while (same < std::min(before.size(), rows_.size()) && before[same].step == rows_[same].step &&
         before[same].values == rows_[same].values)
    ++same;
  fresh_ = same;
  rewound_to_ = same > 0 ? rows_[same - 1].step : 0;
  return true;
}

bool RunLog::finished() const {
  constexpr int64_t kEnd = 4096;
  const std::string path = folder_ + "/events.jsonl";
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat now {};
  if (file.number < 0 || ::fstat(file.number, &now) != 0) return false;
  std::string text(static_cast<size_t>(std::min<int64_t>(kEnd, now.st_size)), '\0');
  if (::pread(file.number, text.data(), text.size(), now.st_size - static_cast<int64_t>(text.size())) < 0)
    return false;
  const std::vector<std::string> lines = base::split_lines(text);
  const nlohmann::json last =
      lines.empty() ? nlohmann::json() : nlohmann::json::parse(lines.back(), nullptr, false);
  return last.is_object() && last.value("event", nlohmann::json()) == "finished";
}

}  // namespace lockstep::see

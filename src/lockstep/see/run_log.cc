#include "lockstep/see/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/see/flat_object.h"
#include "lockstep/see/patiently.h"
#include "lockstep/see/run_events.h"

namespace lockstep::see {

namespace {

constexpr int64_t kAtOnce = int64_t{4} << 20;
constexpr size_t kLongestLine = size_t{1} << 20;  // ours have a few hundred bytes

// The numbers of one object, without building it: a long run has a million of these lines.
struct RowReader : nlohmann::json_sax<nlohmann::json> {
  LogRow row{.step = 0, .seconds = 0, .values = {}};
  bool is_row() const { return is_object_ && has_step_; }

  bool key(std::string& name) override {
    if (depth_ == 1) key_ = name;
    return true;
  }
  bool number_integer(int64_t value) override { return integer(value); }
  bool number_unsigned(uint64_t value) override { return integer(static_cast<int64_t>(value)); }
  bool number_float(double value, const std::string&) override {
    if (depth_ == 1 && key_ != "step" && std::isfinite(value)) row.values.emplace_back(key_, value);
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 1 && key_ == "time") row.seconds = unix_seconds(text);
    if (depth_ == 1 && is_number_word(text)) row.words.emplace_back(key_, text);
    return true;
  }
  bool start_object(size_t) override {
    if (depth_++ == 0) is_object_ = true;
    return true;
  }
  bool end_object() override { return depth_-- > 0; }
  bool start_array(size_t) override { return ++depth_ > 0; }
  bool end_array() override { return depth_-- > 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  bool integer(int64_t value) {
    if (depth_ != 1) return true;
    if (key_ == "step") {
      row.step = value, has_step_ = true;
    } else {
      row.values.emplace_back(key_, static_cast<double>(value));
    }
    return true;
  }
  std::string key_;
  int depth_ = 0;
  bool is_object_ = false, has_step_ = false;
};

}  // namespace

std::optional<LogRow> parse_row(std::string_view line) {
  if (auto plain = read_flat_row(line)) return plain;
  RowReader reader;
  return nlohmann::json::sax_parse(line, &reader) && reader.is_row() ? std::optional(std::move(reader.row))
                                                                     : std::nullopt;
}

RunLog::RunLog(std::string folder) : folder_(std::move(folder)) {
  while (folder_.size() > 1 && folder_.ends_with('/')) folder_.pop_back();
  // A server that is down may still know the name: a byte is read, too.
  const bool exists = patiently(folder_, [path = folder_ + "/metrics.jsonl"] {
    std::error_code error;
    static_cast<void>(std::ifstream(path).get());
    return std::filesystem::exists(path, error);
  });
  if (exists) return;
  throw base::ConfigError(
      760,
      fmt::format("{} has no metrics.jsonl; name the folder of a run that has started, such as runs/first",
                  base::quoted(folder_)));
}

std::string name_of_run(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string name = std::filesystem::path(folder).filename();
  return name.empty() || name == "." || name == ".."
             ? std::filesystem::weakly_canonical(folder).filename().string()
             : name;
}

std::string RunLog::name() const { return name_of_run(folder_); }

// Whether the file still has, before offset_, what was read there last.
bool RunLog::same_end(int file) const {
  std::string now(last_line_.size(), '\0');
  const int64_t at = offset_ - static_cast<int64_t>(last_line_.size());
  return ::pread(file, now.data(), now.size(), at) == static_cast<ssize_t>(now.size()) && now == last_line_;
}

void RunLog::take(std::string_view line) {
  if (line.size() <= 1) return;
  if (auto row = parse_row(line.substr(0, line.size() - 1))) {
    rows_.add(*row);
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
  MetricTable before;
  const bool again = !same_end(file.number);
  if (again) {
    std::swap(before, rows_);
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
  while (rows_.same(same, before)) ++same;
  fresh_ = same;
  rewound_to_ = same > 0 ? rows_.step(same - 1) : 0;
  return true;
}

bool RunLog::finished() const {
  constexpr int64_t kEnd = 4096;
  const std::vector<RunEvent> events = read_events(folder_, kEnd);
  return !events.empty() && events.back().name == "finished";
}

}  // namespace lockstep::see

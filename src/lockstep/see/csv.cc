// CSV: step, seconds since 1970, then every metric; a metric that a row lacks is an empty field. A metric
// that comes later, such as the first evaluation of a run that is followed, becomes a column: the file is
// written again. Standard output has the columns that were known when it began.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/see/sink.h"

namespace lockstep::see {

namespace {

// In quotes where commas, quotes or lines are in it.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

class Csv final : public Sink {
 public:
  Csv(std::string path, const SinkRun& run) : path_(std::move(path)), columns_(run.metrics) { begin(); }
  ~Csv() override {
    if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  }
  Csv(const Csv&) = delete;
  Csv& operator=(const Csv&) = delete;

  void row(const LogRow& row) override {
    if (path_ == "-") return put(row);
    rows_.push_back(row);
    if (take_columns(row))
      write_again();
    else
      put(row);
  }
  // A file is written again; on standard output what was said stays said, and the steps come once more.
  void rewind(int64_t step) override {
    if (path_ == "-") return;
    std::erase_if(rows_, [&](const LogRow& row) { return row.step > step; });
    write_again();
  }
  void flush() override { check(std::fflush(file_) == 0); }

 private:
  void begin() {
    file_ = path_ == "-" ? stdout : std::fopen(path_.c_str(), "w");
    if (file_ == nullptr)
      throw base::IoError(763, fmt::format("{} cannot be written: {}", path_, std::strerror(errno)));
    std::string line = "step,time";
    for (const std::string& column : columns_) line += "," + field(column);
    write(line + "\n");
  }
  void write_again() {
    std::fclose(file_);
    begin();
    for (const LogRow& row : rows_) put(row);
  }
  // Whether it has metrics that no row had before.
  bool take_columns(const LogRow& row) {
    const size_t before = columns_.size();
    for (const auto& [name, value] : row.values) {
      if (std::ranges::find(columns_, name) == columns_.end()) columns_.push_back(name);
    }
    return columns_.size() > before;
  }
  void put(const LogRow& row) {
    std::string line = fmt::format("{},{:.3f}", row.step, row.seconds);
    for (const std::string& column : columns_) {
      line += ',';
      for (const auto& [name, value] : row.values) {
        if (name == column) line += fmt::format("{}", value);
      }
    }
    write(line + "\n");
  }
  void write(const std::string& line) {
    check(std::fwrite(line.data(), 1, line.size(), file_) == line.size());
  }
  void check(bool written) const {
    if (!written && path_ != "-")
      throw base::IoError(763, fmt::format("{} cannot be written: {}", path_, std::strerror(errno)));
  }

  std::string path_;
  std::vector<std::string> columns_;
  std::vector<LogRow> rows_;
  std::FILE* file_ = nullptr;
};

}  // namespace

std::unique_ptr<Sink> open_csv(const std::string& out, const SinkRun& run) {
  return std::make_unique<Csv>(out, run);
}

}  // namespace lockstep::see

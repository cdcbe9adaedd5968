// CSV: step, seconds since 1970, then every metric; a metric that a row lacks is an empty field.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/see/sink.h"

namespace lockstep::see {

namespace {

class Csv final : public Sink {
 public:
  Csv(std::string path, const SinkRun& run) : path_(std::move(path)), columns_(run.metrics) { begin(); }
  ~Csv() override {
    if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  }
  Csv(const Csv&) = delete;
  Csv& operator=(const Csv&) = delete;

  void row(const LogRow& row) override {
    rows_.push_back(row);
    put(row);
  }
  // A file is written again; on standard output what was said stays said, and the steps come once more.
  void rewind(int64_t step) override {
    std::erase_if(rows_, [&](const LogRow& row) { return row.step > step; });
    if (path_ == "-") return;
    std::fclose(file_);
    begin();
    for (const LogRow& row : rows_) put(row);
  }
  void flush() override { check(std::fflush(file_) == 0); }

 private:
  void begin() {
    file_ = path_ == "-" ? stdout : std::fopen(path_.c_str(), "w");
    if (file_ == nullptr)
      throw base::IoError(763, fmt::format("{} cannot be written: {}", path_, std::strerror(errno)));
    std::string line = "step,time";
    for (const std::string& column : columns_) line += "," + column;
    write(line + "\n");
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

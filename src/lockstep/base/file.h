// Files and folders, with errors that name the path, the cause and the remedy.
//
//     write_file_durable("runs/first/config.toml", write_toml(recipe));
//     LineWriter metrics("runs/first/metrics.jsonl");
//     metrics.write(R"({"step": 1})");
//     FolderLock lock("runs/first");  // ConfigError 804 names the process that holds it
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::base {

constexpr int64_t kMostTextFile = int64_t{1} << 30;

// The whole file, or why it cannot be had ("no such file", "is a folder", "larger than 1 MiB").
struct ReadResult {
  std::string text;
  std::string problem;  // empty: read
};
ReadResult try_read_file(const std::string& path, int64_t most_bytes = kMostTextFile);
std::string read_file(const std::string& path, int64_t most_bytes = kMostTextFile);  // IoError 801

// After it returns the file holds `text` and survives a power cut; before, the old file stands whole.
// Writes beside the path, flushes to disk and renames; a device, such as /dev/stdout, is written to as it is.
// IoError 802.
void write_file_durable(const std::string& path, std::string_view text);

// The folder and those above it. IoError 803 names the first that cannot be made and why.
void make_folders(const std::string& path);

// Appends lines to a file; each is with the kernel when write() returns, so a killed process loses none.
// A last line without an end, left by a crash, is cut off on opening.
class LineWriter {
 public:
  explicit LineWriter(std::string path);  // IoError 802
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void write(std::string_view line);  // without its newline; IoError 802

 private:
  std::string path_;
  int file_ = -1;
};

// One process at a time in a folder, by flock on a file in it: the kernel frees it however the process ends.
// Two processes of one host never both hold it; across hosts it is as good as the file system's flock.
class FolderLock {
 public:
  // ConfigError 804 if held: by which process, on which host
  explicit FolderLock(const std::string& folder, const char* name = ".lock");
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

std::string host_name();

}  // namespace lockstep::base

// A file that is read by ranges, each chunk checked against its checksum on the way.
//
// Only what is asked for is read; where sums are known, the chunks of 1 MiB that hold it. Memory is what the
// caller gives and a chunk for each thread. DataError 305 names the file, and the tensor where there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/chunk_sums.h"
#include "lockstep/checkpoint/params_hash.h"
#include "lockstep/device/tensor.h"

namespace lockstep::checkpoint {

// Bytes of the file, and where they go: as they are, or as fp32.
struct ReadRequest {
  int64_t at = 0, bytes = 0;
  std::byte* to = nullptr;
  std::optional<device::DType> widen;   // the stored type; elements do not straddle
  const std::string* tensor = nullptr;  // for messages
  // Weights that are hashed on the way: the tensor's number in HashSums, and the element of it that comes
  // first here. Elements do not straddle.
  std::optional<int64_t> hashed_as = {};
  int64_t first_element = 0;
};

class CheckedFile {
 public:
  // `sums`: one for each chunk; nothing: unknown. The size must be right: DataError 305 otherwise.
  CheckedFile(std::string path, std::optional<std::vector<uint32_t>> sums, std::optional<int64_t> bytes = {});
  ~CheckedFile();
  CheckedFile(const CheckedFile&) = delete;
  CheckedFile& operator=(const CheckedFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  bool checked() const { return sums_.has_value(); }
  std::string text(int64_t at, int64_t bytes) const;
  // In any order; on several threads when there is much. `hashes`: of the requests that are to be hashed.
  void read(std::vector<ReadRequest> requests, HashSums* hashes = nullptr) const;
  void check_all() const;  // reads every byte

 private:
  struct Task;
  struct Worker;
  std::vector<Task> tasks_of(std::vector<ReadRequest> requests) const;
  void run(const Task& task, Worker& worker) const;
  void run_all(const std::vector<Task>& tasks, HashSums* hashes) const;
  void load(int file, int64_t at, std::span<std::byte> to, const std::string* tensor) const;
  [[noreturn]] void refuse(const std::string& why, const std::string* tensor) const;

  std::string path_;
  int file_ = -1;
  int64_t size_ = 0;
  std::optional<std::vector<uint32_t>> sums_;
};

}  // namespace lockstep::checkpoint

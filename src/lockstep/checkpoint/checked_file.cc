#include "lockstep/checkpoint/checked_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads.h"
#include "lockstep/checkpoint/checkpoint_error.h"
#include "lockstep/checkpoint/crc32c.h"
#include "lockstep/checkpoint/formats/widen.h"

namespace lockstep::checkpoint {
namespace {

constexpr size_t kLeastTasks = 16;  // that are worth a thread
constexpr size_t kMostThreads = 4;

int open_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file >= 0) return file;
  if (errno != ENOENT && errno != EMFILE && errno != ENFILE) {
    throw CheckpointError(
        305,
        fmt::format(
            "{} cannot be opened: {}; use another checkpoint of the run, or check its disk and permissions",
            path, std::strerror(errno)));
  }
  throw base::IoError(810, fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
}

// Bytes of a request that a chunk holds, from the chunk to where they go.
void deliver(const ReadRequest& request, int64_t at, int64_t bytes, const std::byte* from) {
  const int64_t skipped = at - request.at;
  if (!request.widen) {
    std::memcpy(request.to + skipped, from, static_cast<size_t>(bytes));
    return;
  }
  const int64_t size = device::size_of(*request.widen);
  widen(from, *request.widen, bytes / size, reinterpret_cast<float*>(request.to) + skipped / size);
}

// Those bytes of a request, once they are where they belong: what was read last is still in the cache.
void hash(const ReadRequest& request, int64_t at, int64_t bytes, HashSums& hashes) {
  if (!request.hashed_as) return;
  const int64_t size = request.widen ? device::size_of(*request.widen) : int64_t{sizeof(float)};
  const int64_t skipped = (at - request.at) / size;
  const auto* values = reinterpret_cast<const float*>(request.to) + skipped;
  hashes.add(*request.hashed_as, request.first_element + skipped,
             {values, static_cast<size_t>(bytes / size)});
}

}  // namespace

// Bytes that are read in one go, and the requests that begin, lie or end in them.
struct CheckedFile::Task {
  int64_t at = 0, bytes = 0;
  std::vector<ReadRequest> requests;
};

// One thread's. The kernel reads ahead for each open file, so every thread opens the file for itself: two in
// one open file are taken for someone who jumps about, and read at half the speed of one.
struct CheckedFile::Worker {
  explicit Worker(int shared)
      : own(::open(fmt::format("/proc/self/fd/{}", shared).c_str(), O_RDONLY | O_CLOEXEC)),
        file(own.number >= 0 ? own.number : shared) {}

  const base::Descriptor own;
  const int file;
  std::vector<std::byte> scratch;
  HashSums hashes;
};

CheckedFile::CheckedFile(std::string path, std::optional<std::vector<uint32_t>> sums,
                         std::optional<int64_t> bytes)
    : path_(std::move(path)), file_(open_file(path_)), sums_(std::move(sums)) {
  struct stat status {};
  const bool regular = ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  size_ = status.st_size;
  if (regular && (!bytes || *bytes == size_)) return;
  ::close(file_);
  if (!regular) throw base::IoError(812, path_ + " is not a regular file");
  refuse(fmt::format("it has {} bytes, but the manifest says {}", size_, *bytes), nullptr);
}

CheckedFile::~CheckedFile() { ::close(file_); }

void CheckedFile::refuse(const std::string& why, const std::string* tensor) const {
  throw CheckpointError(
      305, fmt::format("{} is damaged{}: {}; use another checkpoint of the run, or copy this one again",
                       path_, tensor ? fmt::format(" in tensor {}", base::quoted(*tensor)) : "", why));
}

void CheckedFile::load(int file, int64_t at, std::span<std::byte> to, const std::string* tensor) const {
  while (!to.empty()) {
    const ssize_t got = ::pread(file, to.data(), to.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(fmt::format("byte {} cannot be read: {}", at, std::strerror(errno)), tensor);
    if (got == 0) refuse(fmt::format("it ends at byte {}", at), tensor);
    to = to.subspan(static_cast<size_t>(got));
    at += got;
  }
}

// With sums, whole chunks: what is not checked is not handed out. Without, just the bytes.
std::vector<CheckedFile::Task> CheckedFile::tasks_of(std::vector<ReadRequest> requests) const {
  std::sort(requests.begin(), requests.end(),
            [](const ReadRequest& a, const ReadRequest& b) { return a.at < b.at; });
  std::vector<Task> tasks;
  for (const ReadRequest& request : requests) {
    for (int64_t at = request.at; at < request.at + request.bytes;) {
      const int64_t chunk = sums_ ? at / kChunkBytes * kChunkBytes : at;
      const int64_t end = sums_ ? chunk + chunk_size(chunk / kChunkBytes, size_)
                                : std::min(at + kChunkBytes, request.at + request.bytes);
      if (tasks.empty() || tasks.back().at != chunk || !sums_) tasks.push_back({chunk, end - chunk, {}});
      tasks.back().requests.push_back(request);
      at = end;
    }
  }
  return tasks;
}

void CheckedFile::run(const Task& task, Worker& worker) const {
  const ReadRequest& first = task.requests.front();
  const bool in_place = task.requests.size() == 1 && !first.widen && first.to != nullptr &&
                        first.at <= task.at && first.at + first.bytes >= task.at + task.bytes;
  if (!in_place) worker.scratch.resize(static_cast<size_t>(task.bytes));
  std::byte* const to = in_place ? first.to + (task.at - first.at) : worker.scratch.data();
  const std::span<std::byte> bytes(to, static_cast<size_t>(task.bytes));
  load(worker.file, task.at, bytes, first.tensor);
  if (sums_ && crc32c(bytes) != (*sums_)[static_cast<size_t>(task.at / kChunkBytes)])
    refuse(fmt::format("the checksum of the MiB at byte {} does not match the manifest", task.at),
           first.tensor);
  for (const ReadRequest& request : task.requests) {
    const int64_t begin = std::max(request.at, task.at);
    const int64_t end = std::min(request.at + request.bytes, task.at + task.bytes);
    if (!in_place && request.to != nullptr) deliver(request, begin, end - begin, to + (begin - task.at));
    hash(request, begin, end - begin, worker.hashes);
  }
}

// Every thread reads a part of the file from its beginning to its end.
void CheckedFile::run_all(const std::vector<Task>& tasks, HashSums* hashes) const {
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  std::mutex guard;
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t threads = std::max<size_t>(1, std::min({tasks.size() / kLeastTasks, kMostThreads, cores}));
  const auto work = [&](size_t part) {
    try {
      Worker worker(file_);
      const size_t end = tasks.size() * (part + 1) / threads;
      for (size_t k = tasks.size() * part / threads; k < end && !failed; ++k) run(tasks[k], worker);
      const std::lock_guard lock(guard);
      if (hashes != nullptr) hashes->merge(worker.hashes);
    } catch (...) {
      failed = true;
      const std::lock_guard lock(guard);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::jthread> helpers;
  for (size_t part = 1; part < threads; ++part) {
    if (!base::add_helper(helpers, work, part)) work(part);
  }
  work(0);
  helpers.clear();
  if (error) std::rethrow_exception(error);
}

void CheckedFile::read(std::vector<ReadRequest> requests, HashSums* hashes) const {
  for (const ReadRequest& request : requests) {
    if (request.at < 0 || request.bytes < 0 || request.at > size_ - request.bytes)
      refuse(fmt::format("it ends before byte {}", request.at + request.bytes), request.tensor);
  }
  run_all(tasks_of(std::move(requests)), hashes);
}

std::string CheckedFile::text(int64_t at, int64_t bytes) const {
  if (at < 0 || bytes < 0 || at > size_ - bytes)
    refuse(fmt::format("it ends before byte {}", at + bytes), nullptr);
  std::string result(static_cast<size_t>(bytes), '\0');
  read({{.at = at,
         .bytes = bytes,
         .to = reinterpret_cast<std::byte*>(result.data()),
         .widen = {},
         .tensor = nullptr}});
  return result;
}

void CheckedFile::check_all() const {
  read({{.at = 0, .bytes = size_, .to = nullptr, .widen = {}, .tensor = nullptr}});
}

}  // namespace lockstep::checkpoint

#include "lockstep/launch/rendezvous/kept_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/run/shared/snapshot_memory.h"

namespace lockstep::launch {

namespace {

constexpr uint64_t kMagic = 0x313054504B4C534C;  // "LSLKPT01"

// Before each generation in the file.
struct Head {
  uint64_t magic, shape, checksum;
  int64_t rank, commit, bytes;
  uint64_t own_checksum;  // of the above
};

uint64_t own_checksum(const Head& head) {
  return run::snapshot_checksum(reinterpret_cast<const char*>(&head), offsetof(Head, own_checksum));
}

std::string folder_of(const std::string& run_folder) { return run_folder + "/snapshots"; }

void write_all(int file, const void* bytes, size_t count, const std::string& path) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t got = ::write(file, at, std::min<size_t>(count, size_t{64} << 20));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw base::IoError(802, fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
    at += got, count -= static_cast<size_t>(got);
  }
}

bool read_all(int file, off_t from, void* bytes, size_t count) {
  char* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = ::pread(file, to, std::min<size_t>(count, size_t{64} << 20), from);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got, from += got, count -= static_cast<size_t>(got);
  }
  return true;
}

void sync_or_throw(int file, const std::string& path) {
  if (::fsync(file) != 0)
    throw base::IoError(802, fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
}

void write_draft(int memory, const std::string& draft, int rank) {
  const base::Descriptor file(
      ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.number < 0)
    throw base::IoError(802, fmt::format("{} cannot be written: {}", draft, std::strerror(errno)));
  try {
    run::visit_whole(memory, [&](const run::SnapshotView& one) {
      Head head{kMagic, one.shape, one.checksum, rank, one.commit, one.bytes, 0};
      head.own_checksum = own_checksum(head);
      write_all(file.number, &head, sizeof head, draft);
      write_all(file.number, one.data, static_cast<size_t>(one.bytes), draft);
    });
    sync_or_throw(file.number, draft);
  } catch (const base::Error&) {
    ::unlink(draft.c_str());  // on a full disk, the next checkpoint needs its space
    throw;
  }
}

// Words: the run's folder and the rank. A run that has been started again meanwhile owns the folder.
std::string keep_one(const DiskCall& call) {
  const std::string& run_folder = call.words[0];
  if (run::snapshot_steps(call.descriptor).newest == 0) return "";
  const int rank = std::stoi(call.words[1]);
  const std::string path = kept_path(run_folder, rank), draft = path + ".new";
  base::make_folders(folder_of(run_folder));
  write_draft(call.descriptor, draft, rank);
  if (call.abandoned()) {
    ::unlink(draft.c_str());
    return "";
  }
  if (::rename(draft.c_str(), path.c_str()) != 0)
    throw base::IoError(802, fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
  const base::Descriptor folder(::open(folder_of(run_folder).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.number >= 0) sync_or_throw(folder.number, folder_of(run_folder));
  return "";
}

// Where each generation's bytes stand in a file. What the file says is believed only as far as it has bytes
// for it.
struct Stands {
  std::vector<run::SnapshotView> facts;
  std::vector<off_t> at;
};

Stands look_into(int file, int rank) {
  Stands stands;
  struct stat size {};
  if (file < 0 || ::fstat(file, &size) != 0 || !S_ISREG(size.st_mode)) return stands;
  off_t at = 0;
  for (Head head{}; stands.at.size() < 2 && read_all(file, at, &head, sizeof head);) {
    at += static_cast<off_t>(sizeof head);
    const bool sound = head.magic == kMagic && head.own_checksum == own_checksum(head) && head.rank == rank &&
                       head.commit > 0 && head.bytes > 0 && head.bytes <= size.st_size - at;
    if (!sound) break;
    stands.facts.push_back({head.shape, head.checksum, head.commit, head.bytes, nullptr});
    stands.at.push_back(at);
    at += head.bytes;
  }
  return stands;
}

}  // namespace

std::string kept_path(const std::string& run_folder, int rank) {
  return fmt::format("{}/rank-{}.snapshot", folder_of(run_folder), rank);
}

bool bring_back_memory(int descriptor, const std::string& run_folder, int rank) {
  const base::Descriptor file(
      ::open(kept_path(run_folder, rank).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const Stands stands = look_into(file.number, rank);
  const bool brought = run::write_generations(descriptor, stands.facts, [&](size_t k, char* to) {
    return read_all(file.number, stands.at[k], to, static_cast<size_t>(stands.facts[k].bytes));
  });
  if (brought) run::mark_on_disk(descriptor);
  return brought;
}

int64_t KeptMemory::bring_back(int first_rank) {
  int64_t newest = 0;
  for (int local = 0; memories_.descriptor(local) >= 0; ++local) {
    if (bring_back_memory(memories_.descriptor(local), run_folder_, first_rank + local))
      newest = std::max(newest, run::snapshot_steps(memories_.descriptor(local)).newest);
  }
  return newest;
}

// In a thread of its own, with descriptors of its own: a disk that does not respond keeps it, and not the
// launcher.
KeptMemory::Kept KeptMemory::keep(int first_rank, Duration most) const {
  auto memories = std::make_shared<std::vector<std::unique_ptr<base::Descriptor>>>();
  for (int local = 0; memories_.descriptor(local) >= 0; ++local)
    memories->push_back(
        std::make_unique<base::Descriptor>(::fcntl(memories_.descriptor(local), F_DUPFD_CLOEXEC, 3)));
  auto answer = std::make_shared<std::promise<std::string>>();
  std::future<std::string> written = answer->get_future();
  std::thread([=, folder = run_folder_, disk = disk_] {
    std::string problem;
    try {
      for (size_t k = 0; k < memories->size() && problem.empty(); ++k) {
        const DiskCall call{.words = {folder, std::to_string(first_rank + static_cast<int>(k))},
                            .descriptor = (*memories)[k]->number};
        problem = disk ? disk->call(keep_one, call) : keep_one(call);
      }
    } catch (const std::exception& error) {
      problem = error.what();
    }
    answer->set_value(problem);
  }).detach();
  if (written.wait_for(most) == std::future_status::ready) return {.problem = written.get()};
  return {.problem = fmt::format("{} has not responded for {} s", run_folder_,
                                 std::chrono::duration_cast<std::chrono::seconds>(most).count()),
          .responding = false};
}

void KeptMemory::forget() { forget_kept_memory(run_folder_); }

void forget_kept_memory(const std::string& run_folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(run_folder), error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank-") && (name.ends_with(".snapshot") || name.ends_with(".snapshot.new")))
      ::unlink(entry.path().c_str());
  }
  ::rmdir(folder_of(run_folder).c_str());
}

}  // namespace lockstep::launch

#include "lockstep/run/shared/snapshot_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "lockstep/base/hash.h"

namespace lockstep::run {

namespace {

// A descriptor's memory, mapped as long as this lives; null where it is too small for what it says.
class Mapping {
 public:
  Mapping(int descriptor, int64_t size) : size_(static_cast<size_t>(size)) {
    if (size < kSnapshotPage) return;
    void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory != MAP_FAILED) header_ = static_cast<SnapshotHeader*>(memory);
  }
  ~Mapping() {
    if (header_ != nullptr) ::munmap(header_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  SnapshotHeader* header() const { return header_; }
  bool whole() const {
    return header_ != nullptr && header_->magic == kSnapshotMagic && header_->bytes > 0 &&
           header_->bytes <= (static_cast<int64_t>(size_) - kSnapshotPage) / 2;
  }
  char* generation(int which) const {
    return reinterpret_cast<char*>(header_) + kSnapshotPage + which * header_->bytes;
  }

 private:
  size_t size_;
  SnapshotHeader* header_ = nullptr;
};

int64_t size_of(int descriptor) {
  struct stat now {};
  return ::fstat(descriptor, &now) == 0 ? now.st_size : 0;
}

}  // namespace

uint64_t snapshot_checksum(const char* bytes, int64_t size) {
  return base::hash_bytes(std::as_bytes(std::span(bytes, static_cast<size_t>(size))));
}

SnapshotSteps snapshot_steps(int descriptor) {
  const Mapping memory(descriptor, size_of(descriptor));
  if (!memory.whole()) return {};
  const SnapshotHeader& header = *memory.header();
  const int64_t commit = std::max(header.generations[0].commit.load(), header.generations[1].commit.load());
  return {std::max<int64_t>(0, commit - 1), header.saved.load()};
}

void visit_whole(int descriptor, const std::function<void(const SnapshotView&)>& visit) {
  const Mapping memory(descriptor, size_of(descriptor));
  if (!memory.whole()) return;
  const SnapshotHeader& header = *memory.header();
  for (int which = 0; which < 2; ++which) {
    const SnapshotHeader::Generation& one = header.generations[which];
    const SnapshotView view{header.shape, one.checksum, one.commit.load(), header.bytes,
                            memory.generation(which)};
    if (view.commit > 0 && snapshot_checksum(view.data, view.bytes) == view.checksum) visit(view);
  }
}

SnapshotCopy read_newest(int descriptor, int64_t newer_than, int& which) {
  const Mapping memory(descriptor, size_of(descriptor));
  if (!memory.whole() || memory.header()->shares == 0) return {};
  SnapshotHeader& header = *memory.header();
  const int64_t commits[] = {header.generations[0].commit.load(), header.generations[1].commit.load()};
  which = commits[0] >= commits[1] ? 0 : 1;
  const SnapshotHeader::Generation& newest = header.generations[which];
  SnapshotCopy copy{header.shape, newest.checksum, commits[which], {}};
  if (copy.commit <= newer_than) return {};
  const char* from = memory.generation(which);
  copy.bytes.assign(from, from + header.bytes);
  const bool same = newest.commit.load() == copy.commit &&
                    snapshot_checksum(copy.bytes.data(), header.bytes) == copy.checksum;
  return same ? std::move(copy) : SnapshotCopy{};
}

bool write_generations(int descriptor, const std::vector<SnapshotView>& facts,
                       const std::function<bool(size_t k, char* to)>& fill) {
  if (facts.empty() || facts.size() > 2) return false;
  const int64_t bytes = facts[0].bytes;
  for (const SnapshotView& one : facts) {
    if (one.commit <= 0 || one.shape != facts[0].shape || bytes <= 0 || one.bytes != bytes) return false;
  }
  const int64_t size = kSnapshotPage + 2 * bytes;
  if (::ftruncate(descriptor, size) != 0) return false;
  const Mapping memory(descriptor, size);
  if (memory.header() == nullptr) return false;
  SnapshotHeader& header = *memory.header();
  header.shape = facts[0].shape, header.bytes = bytes, header.shares = 1;
  for (size_t k = 0; k < facts.size(); ++k) {
    char* const to = memory.generation(static_cast<int>(k));
    if (!fill(k, to) || snapshot_checksum(to, bytes) != facts[k].checksum) {
      static_cast<void>(::ftruncate(descriptor, 0));
      return false;
    }
    header.generations[k].checksum = facts[k].checksum;
    header.generations[k].commit.store(facts[k].commit);
    if (facts[k].commit > header.replicated) header.replicated.store(facts[k].commit);
  }
  header.magic = kSnapshotMagic;
  return true;
}

bool write_copies(int descriptor, const std::vector<SnapshotCopy>& copies) {
  std::vector<SnapshotView> facts;
  for (const SnapshotCopy& one : copies)
    facts.push_back({one.shape, one.checksum, one.commit, static_cast<int64_t>(one.bytes.size()), nullptr});
  return write_generations(descriptor, facts, [&](size_t k, char* to) {
    std::memcpy(to, copies[k].bytes.data(), copies[k].bytes.size());
    return true;
  });
}

void mark_on_disk(int descriptor) {
  const int64_t newest = snapshot_steps(descriptor).newest;
  const Mapping memory(descriptor, size_of(descriptor));
  if (memory.whole()) memory.header()->saved.store(newest);
}

void mark_replicated(int descriptor, int64_t commit) {
  const Mapping memory(descriptor, size_of(descriptor));
  if (memory.whole()) memory.header()->replicated.store(commit);
}

}  // namespace lockstep::run

#include "lockstep/run/snapshot_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

bool write_copies(int descriptor, const std::vector<SnapshotCopy>& copies) {
  if (copies.empty() || copies.size() > 2) return false;
  const auto bytes = static_cast<int64_t>(copies[0].bytes.size());
  for (const SnapshotCopy& one : copies) {
    const bool good = one.commit > 0 && one.shape == copies[0].shape && bytes > 0 &&
                      static_cast<int64_t>(one.bytes.size()) == bytes &&
                      snapshot_checksum(one.bytes.data(), bytes) == one.checksum;
    if (!good) return false;
  }
  const int64_t size = kSnapshotPage + 2 * bytes;
  if (::ftruncate(descriptor, size) != 0) return false;
  const Mapping memory(descriptor, size);
  if (memory.header() == nullptr) return false;
  SnapshotHeader& header = *memory.header();
  header.shape = copies[0].shape, header.bytes = bytes, header.shares = 1;
  for (size_t k = 0; k < copies.size(); ++k) {
    std::memcpy(memory.generation(static_cast<int>(k)), copies[k].bytes.data(), copies[k].bytes.size());
    header.generations[k].checksum = copies[k].checksum;
    header.generations[k].commit.store(copies[k].commit);
    if (copies[k].commit > header.replicated) header.replicated.store(copies[k].commit);
  }
  header.magic = kSnapshotMagic;
  return true;
}

void mark_replicated(int descriptor, int64_t commit) {
  const Mapping memory(descriptor, size_of(descriptor));
  if (memory.whole()) memory.header()->replicated.store(commit);
}

}  // namespace lockstep::run

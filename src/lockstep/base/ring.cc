#include "lockstep/base/ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/process_birth.h"
#include "lockstep/base/ring_layout.h"

namespace lockstep::base {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

uint64_t pack(int32_t low, int32_t high) {
  return static_cast<uint32_t>(low) | static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32;
}
int32_t low_half(uint64_t word) { return static_cast<int32_t>(static_cast<uint32_t>(word)); }
int32_t high_half(uint64_t word) { return static_cast<int32_t>(static_cast<uint32_t>(word >> 32)); }

// A fresh file with its blocks allocated: a hole in it would be a SIGBUS on a full disk, at the worst moment.
int make_file(const std::string& path, size_t bytes) {
  ::unlink(path.c_str());  // never cut a file that a living writer maps
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) throw IoError(802, fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
  if (const int error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes))) {
    ::close(file);
    ::unlink(path.c_str());
    throw IoError(802, fmt::format("{} cannot be written: {}", path, std::strerror(error)));
  }
  return file;
}

bool read_at(int file, void* to, size_t bytes, size_t offset) {
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(file, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out += got;
    offset += static_cast<size_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

RingWriter::RingWriter(const std::string& path, const RingOptions& options) {
  const uint64_t capacity = std::bit_ceil(std::clamp<uint64_t>(options.entries, 1, kMostRingEntries));
  mask_ = capacity - 1;
  bytes_ = sizeof(Header) + capacity * sizeof(Slot);
  const int file = make_file(path, bytes_);
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int error = errno;
  ::close(file);
  if (memory == MAP_FAILED)
    throw IoError(802, fmt::format("{} cannot be mapped: {}", path, std::strerror(error)));
  header_ = static_cast<Header*>(memory);
  slots_ = reinterpret_cast<Slot*>(header_ + 1);
  const ProcessBirth birth = birth_of(::getpid());
  *header_ = {0, sizeof(Slot), capacity, ::getpid(), options.rank, birth.boot, birth.ticks};
  // The magic last: a reader that sees it sees the rest.
  std::atomic_thread_fence(std::memory_order_release);
  std::atomic_ref(header_->magic).store(kRingMagic, kRelaxed);
}

RingWriter::~RingWriter() { ::munmap(header_, bytes_); }

RingWriter::Slot& RingWriter::slot_of(uint64_t ticket) { return slots_[ticket & mask_]; }

uint64_t RingWriter::enqueue(const RingStamp& stamp) {
  const uint64_t ticket = next_.fetch_add(1, kRelaxed);
  Slot& slot = slot_of(ticket);
  uint64_t version = slot.version.load(kRelaxed);
  // Odd: its owner was overtaken by a whole round of the ring. Waiting for it could take a time slice.
  if (version % 2 != 0 || !slot.version.compare_exchange_strong(version, version + 1, kRelaxed))
    return ticket;
  std::atomic_thread_fence(std::memory_order_release);  // the odd version is seen before what follows
  slot.ticket.store(ticket, kRelaxed);
  slot.step.store(static_cast<uint64_t>(stamp.step), kRelaxed);
  slot.instruction_and_op.store(pack(stamp.instruction, stamp.op), kRelaxed);
  slot.block_and_slice.store(pack(stamp.block, stamp.slice), kRelaxed);
  slot.group.store(pack(stamp.group, 0), kRelaxed);
  slot.sequence.store(static_cast<uint64_t>(stamp.sequence), kRelaxed);
  slot.bytes.store(static_cast<uint64_t>(stamp.bytes), kRelaxed);
  slot.started_ns.store(0, kRelaxed);
  slot.finished_ns.store(0, kRelaxed);
  slot.enqueued_ns.store(static_cast<uint64_t>(monotonic_ns()), kRelaxed);
  slot.version.store(version + 2, std::memory_order_release);
  return ticket;
}

void RingWriter::start(uint64_t ticket) {
  Slot& slot = slot_of(ticket);
  if (slot.ticket.load(kRelaxed) == ticket) {
    slot.started_ns.store(static_cast<uint64_t>(monotonic_ns()), std::memory_order_release);
  }
}

void RingWriter::finish(uint64_t ticket) {
  Slot& slot = slot_of(ticket);
  if (slot.ticket.load(kRelaxed) == ticket) {
    slot.finished_ns.store(static_cast<uint64_t>(monotonic_ns()), std::memory_order_release);
  }
}

RingReader::RingReader(const std::string& path) : path_(path) {
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) throw IoError(801, fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  RingWriter::Header header{};
  const off_t size = ::lseek(file_, 0, SEEK_END);
  const bool whole =
      read_at(file_, &header, sizeof(header), 0) && header.magic == kRingMagic &&
      header.slot_bytes == sizeof(RingWriter::Slot) && std::has_single_bit(header.capacity) &&
      header.capacity <= kMostRingEntries &&
      static_cast<uint64_t>(size) == sizeof(header) + header.capacity * sizeof(RingWriter::Slot);
  if (!whole) {
    ::close(file_);
    throw DataError(806, fmt::format("{} is not a complete recorder ring of this version", path));
  }
  pid_ = header.pid;
  birth_ = {header.boot, header.birth_ticks};
  rank_ = header.rank;
  capacity_ = header.capacity;
}

RingReader::~RingReader() { ::close(file_); }

bool RingReader::writer_lives() const { return still_lives(pid_, birth_); }

std::vector<RingEntry> RingReader::entries() const {
  // Two copies: what is equal in both, version included, was not being written when the first was made.
  constexpr size_t kWords = sizeof(RingWriter::Slot) / sizeof(uint64_t);
  constexpr size_t kVersioned = offsetof(RingWriter::Slot, started_ns) / sizeof(uint64_t);
  std::vector<uint64_t> first(capacity_ * kWords), second(capacity_ * kWords);
  for (std::vector<uint64_t>* copy : {&first, &second}) {
    if (!read_at(file_, copy->data(), copy->size() * sizeof(uint64_t), sizeof(RingWriter::Header))) {
      throw DataError(806, fmt::format("{} was truncated while it was being read", path_));
    }
  }
  std::vector<RingEntry> entries;
  for (uint64_t i = 0; i < capacity_; ++i) {
    const uint64_t* word = &first[i * kWords];
    const uint64_t version = word[0], ticket = word[1];
    const bool whole = version > 0 && version % 2 == 0 && (ticket & (capacity_ - 1)) == i &&
                       std::equal(word, word + kVersioned, &second[i * kWords]);
    if (!whole) continue;
    const auto whole_number = [&](size_t at) { return static_cast<int64_t>(word[at]); };
    entries.push_back({ticket,
                       {.step = whole_number(2),
                        .instruction = low_half(word[3]),
                        .op = static_cast<uint16_t>(word[3] >> 32),
                        .block = low_half(word[4]),
                        .slice = high_half(word[4]),
                        .group = low_half(word[5]),
                        .sequence = whole_number(6),
                        .bytes = whole_number(7)},
                       whole_number(8),
                       whole_number(9),
                       whole_number(10)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const RingEntry& a, const RingEntry& b) { return a.ticket < b.ticket; });
  return entries;
}

}  // namespace lockstep::base

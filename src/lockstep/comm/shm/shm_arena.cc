#include "lockstep/comm/shm/shm_arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/device/cpu_features.h"

namespace lockstep::comm {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kLeastBytes = int64_t{1} << 30;  // of the arena, and of a peer's mapping

int64_t whole_pages(int64_t bytes) { return base::round_up(std::max<int64_t>(bytes, 1), kPage); }

// Where nothing can be shared: ordinary memory, and engines that copy.
class PlainArena final : public SharedArena {
 public:
  void* allocate(int64_t bytes) override {
    const auto whole = static_cast<size_t>(whole_pages(bytes));
    void* memory = std::aligned_alloc(kPage, whole);
    if (memory == nullptr) throw device::OutOfMemory{bytes, device::host_memory().available_bytes};
    return std::memset(memory, 0, whole);
  }
  void free(void* memory) override { std::free(memory); }
};

}  // namespace

std::byte* PeerArena::at(int64_t offset, int64_t bytes) {
  if (offset < SharedSegment::kHeaderBytes || bytes < 0 || offset > address_.bytes - bytes) {
    throw base::CommError(525, fmt::format("process {} offers {} bytes at offset {} of an arena of {}",
                                           address_.pid, bytes, offset, address_.bytes));
  }
  const int64_t end = offset + bytes;
  const SharedSegment* longest = longest_.load(std::memory_order_acquire);
  if (longest == nullptr || longest->bytes() < end) {
    const std::lock_guard lock(mutex_);
    longest = longest_.load(std::memory_order_relaxed);
    if (longest == nullptr || longest->bytes() < end) {
      const auto wanted =
          static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(end, kLeastBytes))));
      mappings_.push_back(
          std::make_unique<SharedSegment>(SharedSegment::open(address_, std::min(wanted, address_.bytes))));
      longest_.store(longest = mappings_.back().get(), std::memory_order_release);
    }
  }
  return longest->data() + offset;
}

ShmArena::ShmArena()
    : segment_(SharedSegment::create("lockstep-arena",
                                     std::max(whole_pages(device::host_memory().total_bytes), kLeastBytes))) {
  gaps_[SharedSegment::kHeaderBytes] = segment_.bytes() - SharedSegment::kHeaderBytes;
}

void* ShmArena::allocate(int64_t bytes) {
  LS_ASSERT(bytes >= 0);
  const std::lock_guard lock(mutex_);
  const int64_t wanted = bytes > segment_.bytes() ? segment_.bytes() : whole_pages(bytes);
  const auto gap =
      std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& one) { return one.second >= wanted; });
  if (gap == gaps_.end()) {
    int64_t free_bytes = 0;
    for (const auto& [offset, size] : gaps_) free_bytes = std::max(free_bytes, size);
    throw device::OutOfMemory{bytes, free_bytes};
  }
  const auto [offset, size] = *gap;
  gaps_.erase(gap);
  if (size > wanted) gaps_[offset + wanted] = size - wanted;
  used_[offset] = wanted;
  return segment_.data() + offset;
}

void ShmArena::free(void* memory) {
  if (memory == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(static_cast<std::byte*>(memory) - segment_.data());
  LS_ASSERT(found != used_.end(), "this arena did not allocate that memory");
  auto [offset, size] = *found;
  used_.erase(found);
  // Back to the kernel, which also makes the next user's pages zero.
  constexpr int kGiveBack = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  while (::fallocate(segment_.descriptor(), kGiveBack, offset, size) != 0) LS_ASSERT(errno == EINTR);
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && next->first == offset + size) {
    size += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin() && std::prev(next)->first + std::prev(next)->second == offset) {
    std::prev(next)->second += size;
  } else {
    gaps_[offset] = size;
  }
}

std::optional<int64_t> ShmArena::offset_of(const void* memory, int64_t bytes) const {
  const int64_t offset = static_cast<const std::byte*>(memory) - segment_.data();
  if (offset < SharedSegment::kHeaderBytes || offset > segment_.bytes() - bytes) return std::nullopt;
  return offset;
}

PeerArena& ShmArena::peer(const SegmentAddress& address) {
  const std::lock_guard lock(mutex_);
  for (auto& [known, arena] : peers_) {
    if (std::equal(known.token, known.token + 2, address.token)) return *arena;
  }
  return *peers_.emplace_back(address, std::make_unique<PeerArena>(address)).second;
}

std::unique_ptr<SharedArena> make_shared_arena() {
  try {
    return std::make_unique<ShmArena>();
  } catch (const base::CommError&) {
    return std::make_unique<PlainArena>();
  }
}

}  // namespace lockstep::comm

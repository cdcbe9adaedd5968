// A segment: memory without a name in any file system that processes of one host share.
//
// It is a memfd, mapped shared. Its address (process, descriptor, size, a random token) travels through the
// store or another segment; open() goes through /proc/PID/fd/N, which the kernel grants to the same user
// alone, and compares the token in the segment's first bytes: a descriptor that means something else by now
// is noticed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::comm {

struct SegmentAddress {
  int32_t pid = 0, descriptor = -1;
  uint64_t process_start = 0;  // in the kernel's ticks: tells a process from a later one with its number
  uint64_t token[2] = {};
  int64_t bytes = 0;

  std::string to_text() const;
  static bool from_text(std::string_view text, SegmentAddress* address);
};

class SharedSegment {
 public:
  static constexpr int64_t kHeaderBytes = 4096;  // the token; what follows is the user's

  // Sparse: pages cost memory when they are first touched. CommError 525 where the kernel refuses.
  static SharedSegment create(const char* name, int64_t bytes);
  // Maps the first `bytes` of it (0: all). CommError 525 says why not.
  static SharedSegment open(const SegmentAddress& address, int64_t bytes = 0);
  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept { *this = static_cast<SharedSegment&&>(other); }
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  const SegmentAddress& address() const { return address_; }
  int descriptor() const { return descriptor_; }  // -1 where it was opened, or closed
  void close_descriptor();                        // nobody else can open it from now on

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int descriptor_ = -1;
  SegmentAddress address_;
};

// Start time of a living process, 0 when it is gone (or only waits to be reaped).
uint64_t process_start(int pid);
std::string boot_id();  // the kernel's, different after every boot; empty where there is none

}  // namespace lockstep::comm

#include "lockstep/checkpoint/saving/range_writer.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct Flush {
  int64_t at, bytes;
  bool wait;
  bool operator==(const Flush&) const = default;
};
void PrintTo(const Flush& one, std::ostream* out) {
  *out << one.at / kMiB << " MiB, " << one.bytes / kMiB << (one.wait ? " waited for" : " begun");
}

struct NotedDisk : Disk {
  mutable std::vector<Flush> flushes;
  int64_t write(int, std::span<const std::byte> bytes, int64_t) const override {
    return static_cast<int64_t>(bytes.size());
  }
  int flush(int, int64_t at, int64_t bytes, bool wait) const override {
    flushes.push_back({at, bytes, wait});
    return 0;
  }
};

// Each window is sent off once, by itself, and waited for when the next is full: what was sent before is not
// asked for again.
TEST(RangeWriter, SendsEachWindowOffOnce) {
  const NotedDisk disk;
  RangeWriter writer(disk, 0, "file");
  const std::vector<std::byte> piece(8 * kMiB);
  for (int64_t k = 0; k < 6; ++k) writer.write(piece, 100 * kMiB + k * 8 * kMiB);
  EXPECT_EQ(disk.flushes, (std::vector<Flush>{{100 * kMiB, 16 * kMiB, false},
                                              {116 * kMiB, 16 * kMiB, false},
                                              {100 * kMiB, 16 * kMiB, true},
                                              {132 * kMiB, 16 * kMiB, false},
                                              {116 * kMiB, 16 * kMiB, true}}));
  EXPECT_EQ(writer.written(), 48 * kMiB);
}

}  // namespace
}  // namespace lockstep::checkpoint

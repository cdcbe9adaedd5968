#include "lockstep/launch/process/disk_writer.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <vector>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

TEST(DiskWriter, KeepsTheOrderAndDropsWhatIsTooMuch) {
  std::promise<void> goes_on;
  std::shared_future<void> disk = goes_on.get_future().share();
  std::mutex mutex;
  std::vector<int> written;
  DiskWriter writer;
  EXPECT_EQ(writer.standing_still(), Duration(0));
  const auto post = [&](int number, size_t bytes) {
    writer.post(bytes, [&, number, disk] {
      disk.wait();
      const std::lock_guard lock(mutex);
      written.push_back(number);
    });
  };
  for (int number = 0; number < 5; ++number) post(number, 1);
  EXPECT_FALSE(writer.full());
  post(5, size_t{40} << 20);
  EXPECT_TRUE(writer.full());
  post(6, size_t{40} << 20);  // more than it may keep
  post(7, 1);
  EXPECT_FALSE(writer.drain(20ms)) << "the disk stands still";
  EXPECT_GT(writer.standing_still(), Duration(0));
  goes_on.set_value();
  EXPECT_TRUE(writer.drain(10s));
  EXPECT_EQ(written, (std::vector<int>{0, 1, 2, 3, 4, 5, 7}));
  EXPECT_FALSE(writer.full());
}

}  // namespace
}  // namespace lockstep::launch

#include "lockstep/device/memory_group.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "lockstep/base/temporary_folder.h"

namespace lockstep::device {
namespace {

TEST(MemoryGroup, TheTightestLimitOfEitherVersionCounts) {
  const struct {
    const char* name;
    std::vector<std::pair<std::string, std::string>> files;
    std::optional<int64_t> limit, left;
    int64_t kills;
  } rows[] = {
      {"none", {}, {}, {}, 0},
      {"version 2",
       {{"proc/self/cgroup", "0::/slice/job\n"},
        {"sys/fs/cgroup/slice/job/memory.max", "max\n"},
        {"sys/fs/cgroup/slice/memory.max", "1000\n"},
        {"sys/fs/cgroup/slice/memory.current", "700\n"},
        {"sys/fs/cgroup/slice/memory.stat", "anon 300\ninactive_file 200\n"},
        {"sys/fs/cgroup/slice/job/memory.events", "low 0\noom 3\noom_kill 2\n"}},
       1000,
       500,
       2},
      {"version 1",
       {{"proc/self/cgroup", "8:pids:/\n4:memory:/process/job\n0::/\n"},
        {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
        {"sys/fs/cgroup/memory/process/memory.limit_in_bytes", "4000\n"},
        {"sys/fs/cgroup/memory/process/memory.usage_in_bytes", "1000\n"},
        {"sys/fs/cgroup/memory/process/job/memory.limit_in_bytes", "3500\n"},
        {"sys/fs/cgroup/memory/process/job/memory.usage_in_bytes", "100\n"},
        {"sys/fs/cgroup/memory/process/job/memory.oom_control",
         "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"}},
       3500,
       3000,
       5},
      {"a container sees only its root",
       {{"proc/self/cgroup", "4:memory:/docker/0123\n"},
        {"sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n"},
        {"sys/fs/cgroup/memory/memory.usage_in_bytes", "2500\n"}},
       2000,
       0,
       0},
      {"the machine's own count", {{"proc/vmstat", "oom_kill 7\npgfault 1\n"}}, {}, {}, 7},
      {"nonsense", {{"proc/self/cgroup", "::\nx\n4:memory:relative\n"}}, {}, {}, 0},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const base::TemporaryFolder folder;
    for (const auto& [path, text] : row.files) folder.write(path, text);
    const MemoryGroup group = read_memory_group(folder.path());
    EXPECT_EQ(group.limit_bytes, row.limit);
    EXPECT_EQ(group.left_bytes, row.left);
    EXPECT_EQ(group.kills, row.kills);
  }
}

}  // namespace
}  // namespace lockstep::device

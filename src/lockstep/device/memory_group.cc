#include "lockstep/device/memory_group.h"

#include <algorithm>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/device/cgroup_lines.h"

namespace lockstep::device {
namespace {

constexpr int64_t kNoLimit = int64_t{1} << 60;  // version 1 writes "no limit" as a huge number

std::string text_of(const std::string& path) { return base::try_read_file(path, 1 << 20).text; }

std::optional<int64_t> number_of(std::string_view text) { return base::leading_number(base::trimmed(text)); }

// The value behind a name in a file of "name value" lines.
std::optional<int64_t> field(const std::string& text, const std::string& name) {
  for (const std::string& line : base::split_lines(text)) {
    if (line.starts_with(name + " ")) return number_of(std::string_view(line).substr(name.size()));
  }
  return std::nullopt;
}

struct Names {
  const char *limit, *used, *droppable, *kills;
};
constexpr Names kVersion2{"/memory.max", "/memory.current", "inactive_file", "/memory.events"};
constexpr Names kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file",
                          "/memory.oom_control"};

void add_group(const std::string& folder, const Names& names, MemoryGroup& group) {
  const std::optional<int64_t> limit = number_of(text_of(folder + names.limit));
  if (!limit || *limit <= 0 || *limit >= kNoLimit) return;
  // Files that were read once count as used, and go when memory is wanted.
  const int64_t used = number_of(text_of(folder + names.used)).value_or(0) -
                       field(text_of(folder + "/memory.stat"), names.droppable).value_or(0);
  const int64_t left = std::clamp<int64_t>(*limit - used, 0, *limit);
  group.limit_bytes = std::min(group.limit_bytes.value_or(*limit), *limit);
  group.left_bytes = std::min(group.left_bytes.value_or(left), left);
}

// The group and those above it: each may limit. In a container the host's path is not there, only its root.
// Whether kills are counted there.
bool add_groups(const std::string& mount, std::string path, const Names& names, MemoryGroup& group) {
  bool counted = false;
  for (;; path.erase(path.rfind('/'))) {
    const std::string folder = mount + (path == "/" ? "" : path);
    add_group(folder, names, group);
    const std::optional<int64_t> kills = field(text_of(folder + names.kills), "oom_kill");
    if (kills && !counted) group.kills += *kills, counted = true;
    if (path.empty() || path == "/") return counted;
  }
}

}  // namespace

MemoryGroup read_memory_group(const std::string& root) {
  MemoryGroup group;
  bool counted = false;
  const std::string mount = root + "/sys/fs/cgroup";
  for_each_cgroup(text_of(root + "/proc/self/cgroup"),
                  [&](const std::string& controllers, const std::string& path) {
                    if (controllers.empty()) {
                      counted |= add_groups(mount, path, kVersion2, group);
                    } else if (controllers == "memory") {
                      counted |= add_groups(mount + "/memory", path, kVersion1, group);
                    }
                  });
  if (!counted) group.kills = field(text_of(root + "/proc/vmstat"), "oom_kill").value_or(0);
  return group;
}

}  // namespace lockstep::device

// What the control groups of this process say of its memory, version 1 or 2: how much more it may have, and
// how often the kernel has killed for want of it.
//
//     const MemoryGroup group = read_memory_group();
//     group.left_bytes       // the tightest group's limit less what it uses and cannot drop
//     group.kills            // counts up: the difference over a child's life says what it died of
//
// A root other than this machine's makes recorded machines into tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::device {

struct MemoryGroup {
  std::optional<int64_t> limit_bytes;  // the smallest of the groups above this process; nothing: no limit
  std::optional<int64_t> left_bytes;   // the least that any of them still gives
  int64_t kills = 0;                   // in this group, or on the whole machine where groups do not say
};

MemoryGroup read_memory_group(const std::string& root = "");

}  // namespace lockstep::device

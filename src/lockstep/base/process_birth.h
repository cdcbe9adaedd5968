// Which process bears a number: the kernel gives numbers out again, to others, and begins again after a boot.
//
//     const ProcessBirth birth = birth_of(::getpid());     // kept in a file, beside the number
//     if (still_lives(pid, birth)) ...                     // by another process, later
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::base {

struct ProcessBirth {
  uint64_t boot = 0;   // a hash of the kernel's name for this boot
  uint64_t ticks = 0;  // since then; 0: not known (no /proc, or an older version wrote it down)

  bool operator==(const ProcessBirth&) const = default;
  std::string to_text() const;                             // "9ae16a3b2f90404f:12345"; empty: not known
  static ProcessBirth from_text(const std::string& text);  // what is none is not known
};

ProcessBirth birth_of(int64_t pid);

// Whether that process lives. Where it is not known when it was born, any process with its number counts.
bool still_lives(int64_t pid, const ProcessBirth& birth);

}  // namespace lockstep::base

// The control groups that this process is in, line by line as /proc/self/cgroup tells them: "4:memory:/path"
// of version 1, "0::/path" of version 2, which has no controllers here.
#pragma once

#include <string>

#include "lockstep/base/text.h"

namespace lockstep::device {

template <class Visit>
void for_each_cgroup(const std::string& text, Visit visit) {  // visit(controllers, path)
  for (const std::string& line : base::split_lines(text)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    if (path.starts_with('/')) visit(line.substr(first + 1, second - first - 1), path);
  }
}

}  // namespace lockstep::device

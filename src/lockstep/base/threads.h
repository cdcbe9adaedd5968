// Helper threads where the machine may refuse them (`ulimit -u`, pids.max of a control group): whoever can do
// with fewer asks here and works on alone; who cannot lets the error out, which the command's edge explains.
#pragma once

#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::base {

// False: no more can be had.
template <class Thread, class... Call>
bool add_helper(std::vector<Thread>& helpers, Call&&... call) {
  try {
    helpers.emplace_back(std::forward<Call>(call)...);
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

}  // namespace lockstep::base

// Work on every processor: all of [0, count), each once, in no order.
//
//     for_each_beside(lists.size(), [&](size_t k) { made[k] = compile(lists[k]); });
#pragma once

#include <cstddef>
#include <functional>

namespace lockstep::base {

// The first exception is thrown again, when all threads have ended. Where no thread can be had, the caller's
// does everything.
void for_each_beside(size_t count, const std::function<void(size_t)>& work);

}  // namespace lockstep::base

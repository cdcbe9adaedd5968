// Waiting for a store in several threads at once: these are about the network, not about the processor.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::store {

// Calls work(0) to work(count - 1) in up to `threads` threads. The first exception ends it and is thrown when
// all have stopped.
void in_threads(int threads, int64_t count, const std::function<void(int64_t)>& work);

}  // namespace lockstep::store

// Work over pieces of a large file from a few threads; the result does not depend on how many.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::data {

// Calls work(0) .. work(count - 1), each once, and waits. Of several errors, that of the smallest index
// is rethrown, so the first fault in a file is the one reported.
void parallel_for(int64_t count, const std::function<void(int64_t)>& work);

}  // namespace lockstep::data

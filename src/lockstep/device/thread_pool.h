// The threads of the CPU's compute lane: a job is a number of items, shared out as threads come free.
//
// Unlike OpenMP's, these threads are kind to a busy machine: the caller takes items itself and never waits
// for a thread that is not running, and who waits goes to sleep, soon or late as suits the machine
// (waiting.h). Which thread runs an item must not matter for the result: work is cut by shape alone.
//
//     run_items(rows, [&](int64_t row, int lane) { ... scratch of `lane` ... });
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::device {

// One pool for the process, as there is one set of cores. Callers on several threads at once are served one
// after the other: who finds it taken works alone. A thread that has said so works alone from then on: the
// lanes beside the compute lane.
void work_alone();
int thread_count();            // lanes: the caller and its helpers
void set_thread_count(int n);  // 0: OMP_NUM_THREADS when set, else every core this process may run on

// OMP_NUM_THREADS as OpenMP reads it: a number, or several with commas, of which the first counts. Nothing:
// it is none.
constexpr int kMostThreads = 4096;
std::optional<int> parse_threads(std::string_view text);
int usable_processors();  // that this process may run on

using ItemFunction = void (*)(const void* context, int64_t item, int lane);
// Calls function(context, item, lane) once for every item in [0, items), at most `lanes` at a time; lane is
// below that. Returns when all are done.
void run_items(int64_t items, int lanes, const void* context, ItemFunction function);

template <class Body>
void run_items(int64_t items, int lanes, const Body& body) {
  run_items(items, lanes, &body, [](const void* context, int64_t item, int lane) {
    (*static_cast<const Body*>(context))(item, lane);
  });
}

}  // namespace lockstep::device

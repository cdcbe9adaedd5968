// How fast collectives are here: nccl-tests' figures for every engine, side by side.
//
// algbw is bytes by time; busbw scales it by what the operation must move, so that it compares with a link:
// by 2(n-1)/n for all_reduce, (n-1)/n for reduce_scatter, all_gather and all_to_all, 1 for the others. Sizes
// mean what nccl-tests means: all bytes of the larger side. For all_reduce there is also the ideal, measured
// on the same memory in the same run: every rank reads its share of all buffers and writes it once, and
// nobody waits for anybody.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/store/store.h"

namespace lockstep::comm {

struct BenchOptions {
  std::vector<std::string> engines;     // by name (comm/engine.h)
  std::vector<std::string> operations;  // empty: all
  std::vector<int64_t> sizes;           // in bytes
  double seconds = 0.1;                 // for each figure
  std::string interface;
  bool bind = false;  // rank r runs on the r-th core of this process alone, Gloo's threads included
};

struct BenchFigure {
  std::string engine;
  double time_us = 0, algbw = 0, busbw = 0;  // GB/s, 10^9
  int64_t wrong = 0;                         // elements, over all ranks
};

struct BenchRow {
  std::string operation, redop;  // "sum" or "none"
  int64_t bytes = 0, count = 0;  // count: elements that one rank brings, of type float
  std::vector<BenchFigure> figures;
  double ideal_us = 0;  // 0: not measured
};

// "8:32M" (by factors of 4) or "8:32M:2"; K, M and G are powers of 1024; the last size is always measured.
// ConfigError 524.
std::vector<int64_t> parse_sizes(const std::string& text);
const std::vector<std::string>& bench_operations();

// Collective: every rank of [0, size) calls it. Rows come to `each` on every rank, with the slowest rank's
// times.
void bench_collectives(int rank, int size, Store& store, const BenchOptions& options,
                       const std::function<void(const BenchRow&)>& each);

}  // namespace lockstep::comm

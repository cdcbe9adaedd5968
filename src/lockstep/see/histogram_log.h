// The histograms of gradients that a run with log.histograms leaves, read by somebody else while it trains.
//
//     HistogramLog log("runs/first");
//     for (const HistogramRow& row : log.poll()) ...      // what is new since the last look
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::see {

struct HistogramRow {
  int64_t step = 0;
  std::string block;
  double seconds = 0;  // since 1970; 0: the line does not tell
  double count = 0, smallest = 0, largest = 0;
  std::vector<double> edges, counts;  // one more edge than counts
};

// One line of histograms.jsonl; none: it is something else, or its edges and counts do not belong together.
std::optional<HistogramRow> parse_histogram(std::string_view line);

class HistogramLog {
 public:
  explicit HistogramLog(std::string folder) : path_(std::move(folder) + "/histograms.jsonl") {}
  std::vector<HistogramRow> poll();  // whole lines only; none where the run writes no histograms
  // The run begins again behind this step: what follows it is told again.
  void rewind(int64_t step) { offset_ = 0, after_ = step; }

 private:
  std::string path_;
  int64_t offset_ = 0, after_ = 0;
};

}  // namespace lockstep::see

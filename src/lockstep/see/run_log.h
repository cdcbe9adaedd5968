// What a run has written about itself, read by somebody else: while it trains, after it was killed, half
// written.
//
//     RunLog log("runs/first");
//     while (log.poll()) ...;                 // what is new since the last look
//     log.rows().last("loss"), log.rows()[0].step ...
//
// Only metrics.jsonl is read, and only its new end at each look. A run that restarts cuts lines off that
// file: then rewound_to() says after which step everything is different. Lines that are not ours are left out
// and counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/see/metric_table.h"

namespace lockstep::see {

// What a run is called: its folder's own name, however the folder was named ("runs/first/", ".").
std::string name_of_run(std::string folder);

class RunLog {
 public:
  // A run folder. ConfigError 760: it has no metrics.jsonl (yet). IoError 768: its disk does not answer.
  explicit RunLog(std::string folder);

  // Reads what was added. True: rows() changed. IoError 761: the file can no longer be read.
  bool poll();
  const MetricTable& rows() const { return rows_; }
  size_t fresh() const { return fresh_; }  // of rows(), the first that the last poll() brought
  // Set by a poll() that found lines gone: the last step that still stands. The rows after it are fresh.
  std::optional<int64_t> rewound_to() const { return rewound_to_; }
  int64_t left_out() const { return left_out_; }  // lines that are no metrics
  bool finished() const;                          // events.jsonl ends with the end of the run

  const std::string& folder() const { return folder_; }
  std::string name() const;  // the folder's own name

 private:
  void take(std::string_view line);
  bool same_end(int file) const;

  std::string folder_;
  MetricTable rows_;
  size_t fresh_ = 0;
  int64_t offset_ = 0, left_out_ = 0;
  std::string last_line_;  // the one that ends at offset_
  std::optional<int64_t> rewound_to_;
};

// One line of metrics.jsonl; none: it is no object with a step.
std::optional<LogRow> parse_row(std::string_view line);

}  // namespace lockstep::see

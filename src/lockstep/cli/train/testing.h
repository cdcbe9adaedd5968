// What the tests of `lockstep train` share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {

// A run of a fraction of a second.
inline const std::string kTinyRun =
    "$L train model.layers=1 model.hidden=16 model.heads=2 data.seq_len=8 batch.global=4 batch.slices=2 "
    "batch.strands=2 run.device=cpu log.eval_batches=1 ";

inline std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  for (const std::string& line : base::split_lines(base::read_file(path)))
    lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace lockstep::cli

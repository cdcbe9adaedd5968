// What was measured once is remembered on disk: which of cuBLASLt's candidates is fastest for a product.
//
// A file of lines "KEY CANDIDATE CHECKSUM" in the user's cache folder, one file for each kind of GPU and
// version of cuBLASLt. It only proposes: a line that is damaged, or names a candidate that is not there, is
// measured again, and every candidate that is ever taken gives the same bits, so the file decides about speed
// alone.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/file.h"

namespace lockstep::kernels {

class MatmulMemory {
 public:
  // `name` is what the measurements hold for: "NVIDIA H200 cublasLt 130100".
  explicit MatmulMemory(const std::string& name);
  std::optional<int> find(const std::string& key) const;
  void remember(const std::string& key,
                int candidate);  // a disk that refuses costs only the next measurement

 private:
  std::string path_;  // empty: nowhere to remember
  std::map<std::string, int> known_;
  std::unique_ptr<base::LineWriter> writer_;
};

// $LOCKSTEP_CACHE, else $XDG_CACHE_HOME/lockstep, else ~/.cache/lockstep; empty when there is none.
// LOCKSTEP_CACHE=none remembers nothing.
std::string cache_folder();

}  // namespace lockstep::kernels

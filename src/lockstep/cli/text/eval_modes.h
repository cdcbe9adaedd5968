// The ways in which `lockstep eval` looks at texts one by one: documents, and questions with choices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

// Lines that cannot be used: the first ends the command (DataError 334), or all are counted and the first
// twenty named.
class BadLines {
 public:
  explicit BadLines(bool skips) : skips_(skips) {}
  void tell(const std::string& sentence);
  void report() const;

 private:
  bool skips_;
  int64_t count_ = 0;
};

struct ChoicesOptions {
  std::string file;
  std::string delimiter = " ";
  bool add_bos = false, skips = false, json = false;
};
int evaluate_choices(const std::string& folder, const std::vector<std::string>& words,
                     const ChoicesOptions& options);

struct DocumentsOptions {
  int64_t stride = 0;  // tokens from one window to the next; 0: half a window
  bool skips = false, json = false;
};
int evaluate_documents(const std::string& folder, const std::vector<std::string>& words,
                       const DocumentsOptions& options);

// 0; RunError 604 where a likelihood was not finite: a script that looks at the exit code alone must not take
// such a model for a good one.
int judge_finite(bool finite, const std::string& folder);

}  // namespace lockstep::cli

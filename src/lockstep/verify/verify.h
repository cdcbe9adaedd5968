// verify: proves, for one recipe, that layouts change nothing but where the work is done.
//
// A small version of the recipe is trained on one rank and in each layout, each of them again, and each from
// the middle. A row holds when the losses and gradients are those of one rank (the same bits, or within the
// tolerance where a layout cuts a sum), when the second run has the bits of the first, and when the one that
// was resumed ends with the bits of the one that was not.
//
//     const verify::Report report = verify::verify(options, [](const verify::Job& job) { ... train ... });
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/layout.h"
#include "lockstep/verify/compare.h"

namespace lockstep::verify {

using plan::Layout;

// One training run to be made.
struct Job {
  std::string recipe;                  // a TOML file
  std::vector<std::string> overrides;  // key=value
  int64_t ranks = 1;
  std::string folder;  // of the run
  std::string resume;  // a checkpoint to go on from; empty: from the beginning
  std::string title;   // "tensor=2, again"
};
// How it ended. Refused: the recipe's check said no, `why` is its sentence. Stopped: by the user, and so are
// all that would follow.
struct Ended {
  enum class How { done, refused, failed, stopped } how = How::done;
  std::string why;
};
using Train = std::function<Ended(const Job& job)>;  // by as many threads at once as Options says

struct Options {
  recipe::Resolved resolved;
  std::vector<Layout> layouts;
  bool named = false;  // by the user: a layout that is refused is a failure
  int64_t steps = 4;
  int64_t jobs = 1;     // layouts that are tried at once: most of a short run is its start
  std::string folder;   // where runs are made
  std::string against;  // a golden run to compare with; empty: none
};

struct Row {
  Layout layout;
  std::string title = {};                // what is compared where it is no layout: "packed documents"
  std::optional<Difference> difference;  // from one rank; none: it did not run
  double memory_gib = 0;                 // of the fullest rank
  std::optional<bool> repeats;           // a second run has the same bits
  std::optional<bool> resumes;           // so has one that was stopped in the middle
  std::string note;                      // what is wrong, in words; or why it was refused
  bool refused = false, holds = false;
  bool broke = false;  // a run of it did not end well
  std::string words() const { return title.empty() ? layout.words() : title; }
};

struct Report {
  Small small;
  Tolerance tolerance;               // of layouts that are not exact
  std::optional<Difference> golden;  // one rank against the golden run
  std::string golden_note;
  std::vector<Row> rows;  // the first is one rank itself
  bool stopped = false;   // by the user: rows are missing
  bool holds = false;
};

Report verify(const Options& options, const Train& train);

// Stores the one-rank run of `folder`, and its recipe, as a golden run. ConfigError 621: something is there.
void check_keeps(const std::string& golden);
void keep_golden(const std::string& folder, const std::string& golden);

}  // namespace lockstep::verify

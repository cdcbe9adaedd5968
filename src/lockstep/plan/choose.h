// choose(): a layout for so many ranks, by asking what each would need and how long its step would take.
//
// Every way to assign the ranks to data, tensor, context and pipeline parallelism is tried (of very many,
// those that cut the model least), with the schedules that are worth trying. The recipe's own check says
// which are possible; compile and place say what the fullest rank needs, and the simulator, over a simple
// pricing, how long a step takes. Of those that fit, the fastest is taken; where several are about as fast,
// the simplest, because it keeps more exactness and is easier to understand. Sharing out and recomputation
// are tried only where their absence does not fit.
//
//     const plan::Choice choice = plan::choose({.ranks = 8, .available_bytes = free, .machine = machine},
//                                              [&](const plan::Candidate& c) { return compile_all(c); });
//     apply(choice.best.overrides()); say(choice.why());
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/plan/layout.h"
#include "lockstep/plan/parts.h"
#include "lockstep/plan/price.h"
#include "lockstep/plan/simulate.h"

namespace lockstep::plan {

struct Candidate {
  Layout layout;
  std::string recompute = "none";
  std::string words() const;                   // "data=2,tensor=4, recompute full"
  std::vector<std::string> overrides() const;  // key=value, parallel.* and memory.recompute
};

// The programs of all ranks of a candidate. Ranks with the same list may share one (plan/list_key.h).
struct Compiled {
  std::vector<std::unique_ptr<program::Program>> programs;  // placed and ordered
  World world;                                              // over these programs
  int64_t peak_bytes = 0;                                   // of the fullest rank
  std::vector<int64_t> peaks = {};                          // and of each list's
  std::vector<MemoryPart> memory = {};                      // its
  std::shared_ptr<const Compiled> kept = {};  // whose programs `world` is over, where they are shared
};
// base::ConfigError: the recipe's check refuses it; its sentence is kept as the reason.
using Compile = std::function<Compiled(const Candidate& candidate)>;

struct Question {
  int ranks = 1;
  int64_t available_bytes = 0;     // to each rank
  Machine machine;                 // what the step is priced on
  std::string recompute = "none";  // the recipe's; full is tried too where it does not recompute products
  // Instructions that are compiled before what is left goes unseen: about 30,000 take a second of one
  // processor.
  int64_t work = 400'000;
  bool beside = false;  // compile may be called from several threads at once
  bool simple = false;  // splits that cut the model further than one that fits are not tried
  // What a rank needs at the very least, known without compiling anything; empty: nothing is known.
  std::function<int64_t(const Candidate& candidate)> least_bytes = {};
  // What would make that less, of the recipe: "optim.moments=bf16".
  std::vector<std::string> less_state = {"optim.moments=bf16", "optim.offload=true"};
  // What the user has settled; the rest is free.
  std::optional<int> tensor, context, pipeline, zero, shard, chunks;
  std::optional<std::string> form, schedule;  // of context and pipeline
  std::optional<bool> sequence;
};

struct Trial {
  Candidate candidate;
  std::string refused;  // why it is impossible; empty when it is possible
  int64_t peak_bytes = 0;
  bool fits = false, at_least = false;  // at_least: it was not compiled, for so much alone is too much
  double step_seconds = 0, bubble = 0;  // where it fits
};

struct Choice {
  Candidate best;
  std::vector<Trial> trials;  // those that fit, fastest first; then those that do not; then the impossible
  int64_t available_bytes = 0;
  size_t unseen =
      0;  // splits that were left out, since all would take too long: those that cut the model most
  // Why, for people: the best few, and what stood against the others.
  std::string why() const;
};

// No layout fits: ConfigError 183, with what comes nearest.
struct NothingFits : base::ConfigError {
  NothingFits(const std::string& sentence, Candidate nearest)
      : ConfigError(183, sentence), smallest(std::move(nearest)) {}
  Candidate smallest;
};

// NothingFits; ConfigError 183 where every layout is impossible.
Choice choose(const Question& question, const Compile& compile);

}  // namespace lockstep::plan

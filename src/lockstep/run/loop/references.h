// The reference of preference tuning (tune.loss = dpo): log-probabilities that the weights a run starts with
// give to every sample, computed once, before the first step.
//
// A run keeps them in its folder (reference.bin), so that it goes on with the very same numbers after a crash
// or in another layout. The file says which weights and which data they are of; what is of others, or
// damaged, is not used but computed again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/data/documents/references.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

struct ReferenceOptions {
  std::string folder = "";                        // of the run; empty: they are kept nowhere
  const std::atomic<int>* stop_signal = nullptr;  // non-zero on some rank: all give it up
  // First rank: how many of how many samples are done, now and then.
  std::function<void(int64_t done, int64_t all)> progress = {};
  std::function<void(const std::string& why)> warn = {};  // first rank: a file that could not be used
};

// Of the session's weights as they are, which must be those that the run starts with. Collective. Nothing:
// the run was asked to stop.
std::optional<data::References> find_references(Session& session, const ReferenceOptions& options);

// The file's text and back. `of` says what they are of; problem: why it cannot be used, empty where it can.
std::string write_references(const data::References& references, const std::string& of);
struct ReadReferences {
  data::References references;
  std::string problem;
};
ReadReferences read_references(const std::string& text, const std::string& of);

}  // namespace lockstep::run

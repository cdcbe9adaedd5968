// Is this machine fit to train? One finding a fact: what was found, whether it is fine, and the remedy.
//
// Pure: it judges facts that were read elsewhere. `lockstep doctor` prints the findings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/device/cuda_facts.h"
#include "lockstep/device/device.h"
#include "lockstep/device/facts.h"

namespace lockstep::device {

struct Finding {
  // warn: trains, but slower or less safely than it could. fail: will not train.
  enum class Verdict { ok, warn, fail };
  std::string subject;  // "shared memory"
  Verdict verdict;
  std::string found;   // "64 MiB in /dev/shm"
  std::string remedy;  // empty when ok
  // What brings the remedy about, for a shell; empty: nothing that a program should do by itself.
  std::string command = {};
  bool as_root = false;  // it must be
};

const char* name_of(Finding::Verdict verdict);  // "ok", "warn", "fail"

std::vector<Finding> check_up(const MachineFacts& facts, const CudaAvailability& cuda);

// Who computes attention on the visible GPUs; nothing where none can be used.
std::optional<Finding> check_attention(const CudaFacts& facts);

}  // namespace lockstep::device

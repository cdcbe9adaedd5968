// The recorder's last two stamps where the device runs a step on its own: under a CUDA graph, or with calls
// enqueued ahead.
//
// Behind every few instructions of a lane the device writes how far it is to host memory; whoever waits for
// the step looks there, and the ring then says which instructions have started and finished. So a mark is as
// fine as kEvery instructions and as new as the last look. Used by one thread.
#pragma once

#include <map>
#include <vector>

#include "lockstep/base/ring.h"
#include "lockstep/device/device.h"
#include "lockstep/program/program.h"

namespace lockstep::run {

class StepMarks {
 public:
  static constexpr size_t kEvery = 8;  // each costs the device about two microseconds

  StepMarks(device::Device& device, base::RingWriter& ring);
  ~StepMarks();
  StepMarks(const StepMarks&) = delete;
  StepMarks& operator=(const StepMarks&) = delete;

  // The instructions of a step, in their order, once.
  void add(size_t instruction, program::Lane lane, const base::RingStamp& stamp);

  // A step begins whose batch lies in `slot` (0 or 1); the one before it in that slot has ended.
  void begin(size_t slot, int64_t step);
  void enqueued(size_t instruction);  // the host has handed it over
  void all_enqueued();                // the same for a whole graph
  // Lets the device say so when it comes here, if this is one of the instructions that it marks. What is
  // captured serves every later step of that slot.
  void mark(size_t instruction, device::Stream stream);
  void look();

 private:
  struct Entry {
    base::RingStamp stamp;
    size_t instruction;
    uint64_t tickets[2] = {};
    bool known[2] = {};
  };
  struct Marked {
    std::vector<Entry> entries;
    uint32_t* words[2] = {};                   // entries that have finished; the device writes them
    size_t finished[2] = {}, started[2] = {};  // as the ring has it
  };
  void look(Marked& lane, size_t slot);

  device::Device& device_;
  base::RingWriter& ring_;
  std::map<program::Lane, Marked> lanes_;
  std::map<size_t, std::pair<program::Lane, size_t>> places_;  // of instructions: lane and entry
  size_t slot_ = 0;
  int64_t step_ = 0;
};

}  // namespace lockstep::run

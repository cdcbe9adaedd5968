// The memory of a program: one allocation for what lives across steps, one for what lives inside a step, and
// one in the host's pinned memory for moments that are kept there.
//
// A second program over the same model (evaluation) borrows the first one's persistent buffers by name, and
// its arena where that is large enough, because the two never run at once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/device/tensor.h"
#include "lockstep/program/check.h"

namespace lockstep::run {

class Memory {
 public:
  // Places the program and allocates. device::OutOfMemory when it does not fit.
  Memory(device::Device& device, program::Program& program, const Memory* lender = nullptr);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  device::Tensor tensor(int buffer) const { return tensors_[static_cast<size_t>(buffer)]; }
  device::Tensor find(const std::string& name) const;  // a persistent buffer; empty when there is none
  const program::MemoryPlan& plan() const { return plan_; }
  // What lives inside a step, for whoever needs memory before the first or between two: bytes.
  device::Tensor between_steps() const { return {arena_, device::DType::u8, {arena_bytes_}}; }

 private:
  device::Device& device_;
  program::MemoryPlan plan_;
  std::vector<device::Tensor> tensors_;
  std::map<std::string, device::Tensor> persistent_;
  std::vector<void*> owned_;
  void* host_ = nullptr;  // pinned
  void* arena_ = nullptr;
  int64_t arena_bytes_ = 0;
};

}  // namespace lockstep::run

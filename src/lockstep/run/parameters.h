// The parameters in a program's memory: first values, hash, and names for checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/model/layout.h"
#include "lockstep/run/memory.h"

namespace lockstep::run {

class Parameters {
 public:
  Parameters(const model::Model& model, const Memory& memory, device::Device& device);

  // Every value is a function of (seed, name, element), so that any rank can make any shard.
  // Also zeroes gradients and moments, fills constant tables and resets the step state.
  void initialize(uint64_t seed, float loss_scale);
  // Rounded copies from the masters, after masters were written from outside.
  void refresh_compute();
  // Hash tree over the canonical chunks of the masters: 32 hex digits, the same in every layout. The caller has
  // waited for the step that wrote them.
  std::string hash() const;

  struct Named {
    std::string name;
    device::Tensor master;                 // device memory, fp32
    std::vector<device::Tensor> moments;   // "m", "v"
  };
  std::vector<Named> named() const;  // tied ones left out
  // Statistics under their names, in their own types and without moments: saved and restored with the masters.
  std::vector<Named> statistics() const;
  void write(const device::Tensor& to, const void* host) const;
  void read(const device::Tensor& from, void* host) const;
  device::Tensor state() const { return memory_.find("step state"); }

 private:
  void fill_tables();
  std::vector<uint64_t> hash_chunks(const device::Tensor& values, const std::vector<kernels::Chunk>& chunks) const;
  const model::Model& model_;
  const Memory& memory_;
  device::Device& device_;
  const kernels::Kernels& kernels_;
  std::vector<model::BlockLayout> layouts_;
};

}  // namespace lockstep::run

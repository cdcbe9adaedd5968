// A machine to plan for, as one of its ranks sees it: what its device can do by kind of kernel and shape, and
// how its ranks reach each other.
//
// Figures come from the catalogue (plan/catalogue/), from a profile that `lockstep bench machine` has
// measured, or, for the device that is here, from what it says of itself. plan/roofline.h and plan/price.h
// turn them into seconds.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/device/device.h"

namespace lockstep::plan {

struct Link {
  double bytes_per_second = 1e9;  // of one rank, in one direction
  double latency_seconds = 1e-6;
};

// Attention of heads of 64 and of 128; others lie between or beside. A share of the half-precision peak that
// long sequences reach, and the length at which half of that is reached.
struct AttentionRate {
  double reached_64 = 0.4, reached_128 = 0.5;
  double half_length = 600;
};

struct Machine {
  std::string name;
  double flops_fp32 = 1e12, flops_half = 1e12;  // dense products, at their peak
  double flops_fp8 = 0;                         // 0: none, counted as half precision
  double flops_tf32 = 0;  // products of fp32 numbers that are rounded to TF32 on their way in; 0: none
  bool tf32 = true;       // the recipe allows that (precision.tf32)
  double reached = 0.6;   // the share of it that large products sustain
  double reached_fp8 = 0.6, reached_fp32 = 0;  // 0: as `reached`
  double reached_tf32 = 0;                     // 0: as `reached`
  double memory_bytes_per_second = 1e11;       // at its peak
  double memory_reached = 1;                   // the share of it that passes over memory reach
  int64_t memory_bytes = 0;
  double launch_seconds = 5e-6;  // between two kernels, and what the shortest instruction takes
  double ramp_seconds = 0;       // of each product: until all units are busy, and when they no longer are
  double spill = 0;              // the share of a product's operands whose traffic nothing hides
  double fp8_cast_bytes =
      0;          // that other software moves for each element of what fp8 products read, beyond our casts
  int units = 0;  // multiprocessors, over which a product's tiles are dealt; 0: any number
  AttentionRate attention_forward = {}, attention_backward = {};
  // In fp32, which tensor cores do not take: a share of flops_fp32. 0: as in half precision.
  double attention_fp32_forward = 0, attention_fp32_backward = 0;
  Link inside = {}, between = {};  // nodes
  int ranks_per_node = 8;
  double watts = 0;                  // of a device under load; 0: not known
  double host_bytes_per_second = 0;  // from a device to its host's memory; 0: not known
  double disk_bytes_per_second = 0;  // of a node; 0: not known
  double error = 0.2;                // the share by which a forecast may well be off
  bool measured = false;             // somebody measured kernels of this device, and not its maker alone
};

// A device of the catalogue, in nodes of as many as it is usually sold in. ConfigError 181 for others, with
// the nearest.
Machine machine_named(const std::string& name);

// The device that is here, as `ranks_here` ranks share it. What it does not tell is taken from the
// catalogue's nearest.
Machine this_machine(device::Kind kind, const device::Properties& device, int ranks_here);

// A machine that was measured as a whole, as one of its ranks sees it: those on CPU share the cores.
Machine shared_by(Machine machine, device::Kind kind, int ranks_here);

}  // namespace lockstep::plan

// What an instruction costs on a machine that need not be here: a first, simple pricing.
//
// Work takes the longer of its products at the machine's speed and its bytes at the memory's; a collective
// takes what a ring would (each rank sends its part W - 1 times on), a message its bytes. Good enough to rank
// layouts; not a forecast of the clock.
//
//     const plan::Machine machine = plan::machine_named("H200");
//     const plan::Walk walk = plan::simulate(world, plan::price_on(machine, world),
//                                            {.apart = plan::apart_on(machine, world)});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/plan/simulate.h"

namespace lockstep::plan {

struct Link {
  double bytes_per_second = 1e9;  // of one rank, in one direction
  double latency_seconds = 1e-6;
};

// One rank's part of a machine.
struct Machine {
  std::string name;
  double flops_fp32 = 1e12, flops_half = 1e12;  // dense products, at their peak
  double reached = 0.6;                         // the share of it that products reach
  double memory_bytes_per_second = 1e11;
  int64_t memory_bytes = 0;
  double launch_seconds = 5e-6;  // what the shortest instruction takes
  Link inside, between;          // nodes
  int ranks_per_node = 8;
};

// H100, H200, A100, L4, T4 and a laptop's CPU, by what their makers say.
const std::vector<Machine>& machines();
const Machine& machine_named(const std::string& name);  // ConfigError 181 for others, with the list
// The device that is here, as `ranks_here` ranks share it. What it does not tell is guessed from the nearest
// machine of the list.
Machine this_machine(device::Kind kind, const device::Properties& device, int ranks_here);

// Prices for simulate(); both keep references to what they are given.
Price price_on(const Machine& machine, const World& world);
// Ranks whose groups cross nodes are not like those whose groups do not.
std::function<int(int rank)> apart_on(const Machine& machine, const World& world);

// Seconds of one instruction that `width` ranks come to, over this link if there are several.
double seconds_of(const Machine& machine, const Link& link, int width, const program::Program& program,
                  const program::Instruction& instruction);

}  // namespace lockstep::plan

// What an instruction costs on a machine that need not be here.
//
// Work takes what plan/roofline.h says. A collective takes the faster of NCCL's ring, in which each rank
// sends its part W - 1 times on, and its tree, whose way is shorter and whose bandwidth is less; a message
// takes its bytes. A group whose members stand on several nodes has the network of those of them that share a
// node.
//
//     const plan::Machine machine = plan::machine_named("H200");
//     const plan::Walk walk = plan::simulate(world, plan::price_on(machine, world),
//                                            {.apart = plan::apart_on(machine, world)});
#pragma once

#include "lockstep/plan/machine.h"
#include "lockstep/plan/roofline.h"
#include "lockstep/plan/simulate.h"

namespace lockstep::plan {

// Prices for simulate(); both keep references to what they are given.
Price price_on(const Machine& machine, const World& world);
// Ranks whose groups cross nodes are not like those whose groups do not.
std::function<int(int rank)> apart_on(const Machine& machine, const World& world);

// Those that meet in an instruction: how many, and on how many nodes as many each.
struct Meet {
  int width = 1, nodes = 1;
};
Meet meet_of(const Machine& machine, const World& world, int rank, program::Among among);

double seconds_of(const Machine& machine, const Meet& meet, const program::Program& program,
                  const program::Instruction& instruction);

}  // namespace lockstep::plan

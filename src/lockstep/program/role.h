// What a buffer is to the instruction that uses it.
//
// Segments ask for theirs by text, "in.hidden" (model/frame.h, and the plans in model/block.h): a role's
// first word and a name. Everybody else compares roles. No role says what an instruction does: that is its
// type (program/operation.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::program {

enum class Role : uint8_t {
  // of one part of a segment
  batch,     // a field of the slice's batch
  in,        // what it takes or lets pass
  out,       // what it gives
  save,      // what forward keeps for backward
  din,       // gradients of what it took
  dout,      // gradients of what it gave
  left,      // what backward_input leaves for backward_weight
  again,     // a value of forward that backward_input makes again
  prep,      // what is made of weights, once a step
  scratch,   // lives inside the instruction
  weight,    // parameters
  grad,      // their gradients
  buffer,    // tables and statistics that live across steps
  stat,      // what a slice makes of a statistic
  ring,      // what goes around a ring of context ranks
  ringgrad,  // its gradient
  across,    // what a part leaves for the next
  // of reductions and of the step's end, with the block and a number
  node,      // a partial sum of this rank
  kept,      // partial sums that earlier rounds left
  sum,       // partial sums of the group
  values,    // addends of context ranks
  partial,   // addends of tensor ranks
  gradient,  // of all slices
  chunks,    // the list of a block's tensors
  moment,    // of the optimizer
  // that stand alone
  workspace,  // of kernels
  staging,    // what an engine copies peers' values to
  inputs,     // the step's numbers
  state,      // and its scalars
  loss,       // of a slice
  losses,     // of all slices
  squares,    // square sums of all chunks
  from,       // the sum that is added
  into,       // to this one
  tied,       // gradient slot of a tied weight
  master,     // weights
  compute,    // their rounded copy
  copy,       // of another stage's weights
  whole,      // weights or tokens of all ranks
  shard,      // this rank's
  tokens,     // all columns of this rank's tokens
  heads,      // all tokens of this rank's columns
  packed,     // for an all-to-all
  arrived,    // from it, or from the ring's neighbour
  onward,
  back,     // what goes around the ring, one way or the other
  part,     // this rank's tokens
  scalars,  // of all ranks
  zeros,    // cleared at the step's beginning
  field,    // of a batch, or an edge between stages: its name alone
};
const char* name_of(Role role);

// In the text of plans.
std::string as(Role role, std::string_view name);  // "in.hidden"
bool is(std::string_view text, Role role);         // "in.hidden" is Role::in
std::string_view name_in(std::string_view text);   // "hidden" of "in.hidden"

// One buffer under the role in which the instruction knows it.
struct Use {
  int buffer = -1;
  Role role = Role::field;
  std::string name = {};        // "hidden"
  int block = -1, number = -1;  // node, kept, sum: the block, and which of its sums; stat: the slice
};
Use named(int buffer, std::string_view text);  // of a plan's text
std::string text_of(const Use& use);           // "in.hidden", "sum.3.0", "workspace"

}  // namespace lockstep::program

// What a buffer is to the instruction that uses it: the first word of its role, such as "in" of "in.hidden".
//
// The compiler and its rewrites name and recognize roles by this list, so that a misspelt one does not build,
// instead of a rewrite that finds nothing. Segments ask for theirs by the same words (model/frame.h, and the
// plans in model/block.h). Roles of one word ("workspace", "tied") stand alone.
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
  // of reductions and of the step's end, by block
  node,      // a partial sum of this rank
  kept,      // partial sums that earlier rounds left
  sum,       // partial sums of the group
  gradient,  // of all slices
  chunks,    // the list of a block's tensors
  moment,    // of the optimizer
};
const char* name_of(Role role);

std::string as(Role role, std::string_view name);                    // "in.hidden"
std::string as(Role role, std::string_view name, int64_t of_slice);  // "stat.mean.2"
std::string as(Role role, size_t number);                            // "gradient.3"
std::string as(Role role, int block, int level);                     // "sum.3.0"
bool is(std::string_view text, Role role);                           // "in.hidden" is Role::in
std::string_view name_in(std::string_view text);                     // "hidden" of "in.hidden"

}  // namespace lockstep::program

// Schedules: in which order a pipeline stage works on its slices. Pure functions; compile() writes the list
// in the order that they give, and everything else (sends, receives, memory) follows from it.
//
// A stage holds one chunk of blocks, or several (virtual stages): chunk c of stage s is the piece c * stages
// + s of the model. Whatever the schedule, the backward passes of a chunk come in the order of slices, so
// that gradients are folded in the one order that the numeric contract allows.
//
// Idle time of a stage, where all are equal and F, B and W are the times of a slice's forward, backward for
// the input and backward for the weights on a whole stage:
//
//     gpipe, 1f1b   (stages - 1) (F + B + W)
//     interleaved   (stages - 1) (F + B + W) / chunks, where the slices are a multiple of the stages; less
//                   than that of the next multiple otherwise
//     zero-bubble   (stages - 1) (F + B - W)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::program {

enum class Schedule : uint8_t {
  gpipe,        // all forward, then all backward
  one_f_one_b,  // "1f1b": a backward as soon as there is one; at most `stages` slices alive
  interleaved,  // 1f1b over several chunks a stage: a smaller bubble for more messages
  zero_bubble,  // weight gradients apart from input gradients, put where a stage would idle (ZB-H1)
};
const char* name_of(Schedule schedule);  // as in recipes: "gpipe", "1f1b", "interleaved", "zero-bubble"
Schedule schedule_of(const std::string& name);  // ConfigError for any other word

struct Turn {
  enum class What : uint8_t {
    forward,
    backward,  // both halves
    backward_input,
    backward_weight,
  } what = What::forward;
  int64_t slice = 0;  // the n-th of this rank's slices
  int chunk = 0;
  bool operator==(const Turn&) const = default;
};

// What `stage` of `stages` does, in order. `chunks` is 1 but for interleaved. Defined for any number of
// slices; cannot() says when there are too few for the schedule to be worth its name.
std::vector<Turn> turns(Schedule schedule, int stages, int stage, int chunks, int64_t slices);

// When each turn of each stage ends, where a forward and each half of a backward take one unit and messages
// take none: [stage][turn].
std::vector<std::vector<int64_t>> turn_ends(Schedule schedule, int stages, int chunks, int64_t slices);

// Why `schedule` cannot be used so, with the nearest that can: empty when it can.
std::string cannot(Schedule schedule, int stages, int chunks, int64_t slices);

// Blocks [begin, end) of each piece of the model: the most expensive piece is as cheap as can be, and among
// such cuts the pieces are as even as can be. There must be at least one block for each piece.
struct Piece {
  int begin = 0, end = 0;
  bool operator==(const Piece&) const = default;
};
std::vector<Piece> cut_blocks(const std::vector<double>& costs, int pieces);

}  // namespace lockstep::program

// What an instruction does: one of a closed set of small types, each with one name and one meaning.
//
//     const auto* run = i.get<RunSegment>();                  // null: it is something else
//     std::visit(Cases{[](const Update&) {...}, ...}, i.what);  // every reader says what it does with each
//
// A new type goes into Operation, and the program does not compile until every reader knows it. Beside its
// type an instruction has what all of them have: where it stands, what it reads and writes, with whom it
// meets (program.h).
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "lockstep/model/layout.h"

namespace lockstep::program {

// One way through a segment.
enum class Pass : uint8_t { forward, loss, recompute, backward_input, backward_weight, prepare };

// --- what the host brings
struct BeginStep {};  // the step's numbers come in; losses of slices that other ranks compute are zero
struct LoadSlice {};  // tokens and labels

// --- a block's own work
struct RunSegment {
  Pass pass = Pass::forward;
  int part = -1;               // of a segment that runs in parts (ring attention, a loss in rounds): which
  bool accumulate = false;     // gradients: add to what is there; false: the first of its strand writes
  bool keeps_tape = true;      // forward: false when its values are recomputed later, or nothing comes back
  bool input_gradient = true;  // loss: false where nothing below it is trained
  bool last_part = true;       // of a loss in rounds: no other comes behind it
};
struct FoldStatistics {};  // running statistics of all slices become the next step's

// --- tensor and context ranks, between the segments of a slice
// `tree`: over the balanced tree of batch.product_strands or batch.sequence_strands, in fp32 and rounded
// once; else in the engine's order.
struct SumValues {  // all-reduce of a row-parallel product
  bool tree = false;
};
// `pieces`: what is shared out is each of so many equal runs of rows for itself (batch.sequence_strands).
struct GatherTokens {  // all-gather along the sequence
  int pieces = 1;
};
struct ScatterTokens {  // reduce-scatter along the sequence
  bool tree = false;
  int pieces = 1;
};
struct ExchangeHeads {  // all-to-all between "all columns of some tokens" and "all tokens of some columns"
  bool to_heads = true;
};
struct ShiftRing {  // keys and values (or their gradients) go to the neighbour
  bool onward = true;
};

// --- pipeline stages
struct AddEdges {};    // two edges that the next stage only adds up, so that one is sent instead of two
struct SendValues {};  // activations, or their gradients on the way back
struct RecvValues {};
struct SendTied {  // the gradient slot of a tied weight, to the stage that holds the values
  int param = 0;   // of the block
};
struct RecvTied {
  int param = 0;
};
struct SendWeights {};  // the new values of a tied weight, to the stage that keeps a copy
struct RecvWeights {};

// --- shards of weights (ZeRO)
struct GatherWeights {
  bool after_update =
      false;  // this step's new values, for the next one; false: for the instructions behind it
  model::Stored stored = model::Stored::trained;  // which of the block's values
};
struct ReleaseWeights {};  // the gathered copy ends here

// --- weights that are kept in 4 or 8 bits
struct DequantizeWeights {};  // those of one segment, for the passes behind it

// --- gradients
struct JoinStrands {};  // two partial sums of this rank that are halves of a node of the tree
struct SumPartials {    // all-reduce of addends of the same slices, among context or tensor ranks
  int round = -1;       // as below
  bool tree = false;    // as above: of one strand, before it is joined with others
};
struct ReduceGradients {  // over the tree of strands: every rank sums its shard or its even piece
  int round = -1;         // where strands are dealt round-robin: which of them
  bool accumulate = false;
  bool idle = false;  // this rank has no strand in this round and only helps the others
};
struct GatherSums {};  // the pieces of a sum that a node's ranks hold become whole on each
struct AddTied {       // the slot of a tied weight onto the gradient of its owner
  int param = 0;       // of the block
};

// --- numbers of the whole step
struct SumInputs {};         // labels that count, requests to stop or save
struct SumScalars {};        // losses of slices, or square sums of shards: zero but on one rank
struct GatherStatistics {};  // of slices that other ranks computed

// --- the end of the step
struct Norm {
  enum class Part : uint8_t { whole, squares, finish };  // squares of this rank's shard; what is made of all
  Part part = Part::whole;
};
struct ToOwners {  // parameters that a rule must see whole, from the tensor ranks that hold parts
  int region = 0;  // (program/owners.h)
};
struct Update {    // only if every gradient was finite
  int region = 0;  // of the block: the values of one rule (model/layout.h)
};
struct FromOwners {  // the updated parts, back to all of them
  int region = 0;
};

using Operation =
    std::variant<BeginStep, LoadSlice, RunSegment, FoldStatistics, SumValues, GatherTokens, ScatterTokens,
                 ExchangeHeads, ShiftRing, AddEdges, SendValues, RecvValues, SendTied, RecvTied, SendWeights,
                 RecvWeights, GatherWeights, ReleaseWeights, DequantizeWeights, JoinStrands, SumPartials,
                 ReduceGradients, GatherSums, AddTied, SumInputs, SumScalars, GatherStatistics, Norm,
                 ToOwners, Update, FromOwners>;

// For std::visit: the reader's answer to each type.
template <class... Answers>
struct Cases : Answers... {
  using Answers::operator()...;
};
template <class... Answers>
Cases(Answers...) -> Cases<Answers...>;

// Whether it may be run once more in the same step, for a look at what it gives: it changes neither weights
// nor sums of gradients.
bool can_repeat(const Operation& what);

// The word for it in listings, profiles and rings. Several types share one; numbers stand in ring files.
enum class Verb : uint16_t {
  load = 0,
  forward = 1,
  loss = 2,
  backward_input = 3,
  backward_weight = 4,
  recompute = 5,
  gather = 6,
  release = 7,
  reduce = 8,
  sum = 9,
  exchange = 10,
  send = 11,
  recv = 12,
  norm = 13,
  update = 14,
  cast = 16,
};
Verb verb_of(const Operation& what);
const char* name_of(Verb verb);
const char* name_of_verb(uint16_t number);    // null: there is none of that number
std::string stage_of(const Operation& what);  // " round 2", " part 1", or nothing

}  // namespace lockstep::program

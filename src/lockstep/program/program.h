// The step program: a training step as a list of instructions over named buffers.
//
// It is made by compile() (program/compile.h), rewritten by layouts and memory tricks, proved by check(),
// placed in memory by place(), run by the executor (run/executor/executor.h) and printed by `explain
// program`. There is no control flow: the list is the step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/device/tensor.h"
#include "lockstep/model/block.h"
#include "lockstep/program/operation.h"
#include "lockstep/program/role.h"
#include "lockstep/program/schedule.h"
#include "lockstep/program/shards.h"
#include "lockstep/program/strands.h"

namespace lockstep::program {

// Lanes run beside each other (CUDA streams, threads); instructions of one lane run in list order. What
// passes between pipeline stages goes out on one lane and comes in on another, so that two stages that send
// to each other never wait for each other.
enum class Lane : uint8_t { compute, gather, reduce, seam, send, recv, host };
constexpr int kLanes = 7;
const char* name_of(Lane lane);

// Which ranks meet in a collective instruction, or who is at the other end of a send or recv.
enum class Among : uint8_t {
  none,
  data,        // all that share the batch and hold the same blocks
  shard,       // those of them that share one copy
  replica,     // those that hold the same shard of different copies
  intra_node,  // of a group that spans nodes: those of this node
  inter_node,  // and those with the same seat on every node
  tensor,      // that hold parts of the same products
  context,     // that hold parts of the same sequences
  copy,        // that hold one copy of the model together: tensor x shard x pipeline
  all,         // every rank
  next,        // the stage after this one (after the last comes the first)
  previous,    // the stage before it
};
const char* name_of(Among among);

enum class BufferKind : uint8_t {
  master,     // fp32 parameters
  compute,    // their rounded copies
  gradient,   // fp32 sums, one for each level of the strand stack
  optimizer,  // moments
  state,      // step scalars, chunk tables, constant tables
  batch,      // tokens and labels of a slice
  edge,       // what flows forward between segments
  saved,      // what forward leaves for backward
  dedge,      // gradients that flow backward
  scratch,    // lives inside one instruction
  workspace,  // kernels' own scratch
  frozen,     // parameters that are not trained, in the type that products read
  quantized,  // the same in 4 or 8 bits
};
const char* name_of(BufferKind kind);

struct Buffer {
  std::string name;  // "b3 s0 residual"
  BufferKind kind = BufferKind::edge;
  device::DType dtype = device::DType::f32;
  device::Shape shape;
  int block = -1, slice = -1;
  bool persistent = false;  // lives across steps
  bool host = false;        // persistent, in the host's pinned memory, which the device reads over its bus
  bool sharded = false;     // holds only this rank's shard of its block (program/shards.h)
  bool external = false;    // counted, but LibTorch holds it (AutogradBlock)
  int64_t offset = -1;      // in its arena, once placed; buffers that share memory share the offset
  int64_t bytes() const { return shape.numel() * device::size_of(dtype); }
};

struct Instruction {
  Operation what = RunSegment{};
  Lane lane = Lane::compute;
  int block = -1, segment = -1;  // -1: of none, or of several
  int slice = -1;                // -1: of none
  Among among = Among::none;     // with whom it meets; none: this rank alone
  std::vector<Use> reads, writes;
  std::vector<int> waits;  // indices of instructions on other lanes
  // {written, read}: may share memory when the read is the last (plans' may_reuse).
  std::vector<std::pair<int, int>> may_reuse;
  std::vector<Use> may_remake;  // "again.x": values of forward that it can write again (plans' remakes)
  double flops = 0;
  double fp8_flops = 0;     // those of them that are products of fp8
  int64_t moved_bytes = 0;  // by everything that is not a matrix product
  // Of a segment: its products and attention by shape. Where it runs in parts, `flops` says how much of it
  // this is.
  std::shared_ptr<const model::Cost> work = nullptr;

  template <class Type>
  const Type* get() const {
    return std::get_if<Type>(&what);
  }
  template <class Type>
  Type* get() {
    return std::get_if<Type>(&what);
  }
  template <class... Types>
  bool is() const {
    return (std::holds_alternative<Types>(what) || ...);
  }
  bool runs(Pass pass) const {
    const RunSegment* run = get<RunSegment>();
    return run != nullptr && run->pass == pass;
  }
};

// The data ranks of a run, as one of them sees them.
struct DataRanks {
  int replicas = 1, shard = 1;      // copies of the model, ranks that share one
  int replica = 0, shard_rank = 0;  // this rank
  int zero = 0;                     // what a copy's ranks share out: 1 optimizer, 2 gradients, 3 weights too
  bool exact = true;                // sums over the fixed tree; false: in the engine's own order
  bool staged = false;       // the engine copies what others offer; false: peers' memory is read in place
  bool near_staged = false;  // the same, between ranks of one node
  int per_node = 0;          // of them on each node, neighbours; 0: all of them, or not the same everywhere
  bool node_first = false;   // exact sums are made inside each node, then across (resolve_nodes)
  device::DType wire = device::DType::f32;  // of gradients on the wire; bf16 only where exact is false
  int64_t bucket_bytes = 16 << 20;  // gradients that one reduce takes at least, as long as there are more
  int width() const { return replicas * shard; }
  int self() const { return replica * shard + shard_rank; }
  bool sharded() const { return zero > 0 && shard > 1; }
  bool round_robin() const { return zero >= 2 && shard > 1; }
  StrandAssignment assignment(int64_t strands) const { return {strands, replicas, shard, round_robin()}; }
  // The group that has several ranks on each of several nodes: shard, replica, or none. Never both: where a
  // copy spans nodes, every rank of a node holds another share.
  Among split() const;
  int near() const;  // ranks of that group on each node
  int seat_of_split() const { return split() == Among::shard ? shard_rank : replica; }
  bool inside_node(Among among) const;  // no member of this group stands on another node
  bool staged_among(Among among) const { return inside_node(among) ? near_staged : staged; }
};

// The stages of a pipeline, as one of them sees them.
struct Stages {
  int count = 1, self = 0;
  int chunks = 1;  // pieces of the model that a stage holds
  Schedule schedule = Schedule::one_f_one_b;
  std::vector<Piece> pieces;  // blocks of piece k, which belongs to stage k % count; empty: one piece
  bool first_piece(int chunk) const { return chunk == 0 && self == 0; }
  bool last_piece(int chunk) const { return chunk == chunks - 1 && self == count - 1; }
  Piece piece(int chunk, int blocks) const {
    return pieces.empty() ? Piece{0, blocks} : pieces[static_cast<size_t>(chunk * count + self)];
  }
  int stage_of(int block) const;
};

// One tensor of what the optimizer keeps: for all elements of a region, or, where its rule needs parameters
// whole, for one of them.
struct StateBuffer {
  int buffer = -1;
  int region = 0, number = 0;  // the number-th that the rule keeps
  int param = -1;              // index into BlockLayout::params; -1: of all in the region
  Span values;                 // elements of the block's trained values that it is of
  std::string name;            // "m"
  device::Shape shape;         // param >= 0: of the tensor
  bool of_owner = false;       // one of the tensor ranks keeps it for all (program/owners.h)
};

// The buffers of a block that live across steps; all -1 for a block of another stage.
struct BlockBuffers {
  int master = -1,
      compute = -1;    // the same buffer when compute is fp32; only the latter: a copy of tied values
  int frozen = -1;     // values that are not trained; without a master: a copy of tied ones
  int quantized = -1;  // values that are not trained, in blocks of `format`
  kernels::Quantized format = kernels::Quantized::none;
  int chunks = -1, norm_chunks = -1;  // the same but where ranks hold the same values
  std::vector<int> gradients;         // by level
  std::vector<StateBuffer> state;     // of the optimizer
  bool held() const { return master >= 0; }
  int stored(model::Stored which) const {
    return which == model::Stored::trained ? master : which == model::Stored::frozen ? frozen : quantized;
  }
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  // Not of a step, but once when values were set from outside: frozen ones that another stage keeps a copy
  // of.
  std::vector<Instruction> setup;
  bool training = true;
  int64_t slices = 1, strands = 1;                                    // of the whole batch
  int64_t losses() const { return slices * parts.sequence_strands; }  // one for each piece of each slice
  std::vector<BlockBuffers> blocks;
  DataRanks ranks;
  Stages stages;
  model::Parts parts{};
  std::vector<int64_t> own_slices;         // those of this rank, in the order in which they are loaded
  std::vector<std::vector<Shard>> shards;  // [block][shard rank]; empty when nothing is sharded
  int64_t samples_per_slice = 1, seq_len = 1;
  // Of a slice's batch, in 32-bit words.
  int64_t input_words = 0, label_words = 0, document_words = 0, offset_words = 0, reference_words = 0;
  int64_t whole_document_words = 0;  // context ranks that exchange heads: documents of all tokens
  bool alone() const { return ranks.width() == 1 && stages.count == 1 && parts.tensor * parts.context == 1; }
  int add_buffer(Buffer buffer);
  // The values of a block that this rank updates.
  Span held_values(const model::BlockLayout& layout, int block) const {
    return shards.empty() ? Span{0, layout.value_count} : own_shard(block).values;
  }
  const Shard& own_shard(int block) const {
    return shards[static_cast<size_t>(block)][static_cast<size_t>(ranks.shard_rank)];
  }
};

// "forward b3.attention s0".
std::string title(const Program& program, const model::Model& model, const Instruction& instruction);

}  // namespace lockstep::program

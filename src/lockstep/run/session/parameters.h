// The parameters in a program's memory: first values, hash, and names for checkpoints.
//
// Where weights or moments are sharded, each holds and handles its shard; the hash is the same in every
// layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/checkpoint/params_hash.h"
#include "lockstep/checkpoint/saving/piece.h"
#include "lockstep/model/layout.h"
#include "lockstep/run/executor/memory.h"
#include "lockstep/run/executor/ranks.h"

namespace lockstep::run {

class Parameters {
 public:
  Parameters(const model::Model& model, const program::Program& program, const Memory& memory,
             device::Device& device, const Ranks& ranks);

  // Every value is a function of (seed, name, element), so that any rank can make any shard.
  // Also zeroes moments, fills constant tables and resets the step state.
  void initialize(uint64_t seed, float loss_scale);
  // Tables that depend on the length of sequences, for this one; the rest stays.
  void fill_tables_for(int64_t length);
  // Rounded copies from the masters, after masters were written from outside; collective where copies are
  // whole and masters are not.
  void refresh_compute();
  // Hash tree over the canonical chunks of the masters: 32 hex digits, the same in every layout. The caller
  // has waited for the step that wrote them. Collective.
  std::string hash() const;
  // The same from sums that each rank made of the weights that it holds as the first copy, by their order.
  // Collective.
  std::string hash_of(const checkpoint::HashSums& sums) const;

  // The sums that hash() is folded from, two for each chunk, and the hash of them with those of some weights
  // in place of what they were: of what is not trained the sums stay the same. The first is collective.
  std::vector<uint64_t> hash_sums() const;
  std::string hash_with(std::vector<uint64_t> sums, const checkpoint::HashSums& of,
                        const std::vector<checkpoint::Whole>& tensors) const;

  // One number for all masters that this rank holds, its copies and its shares; ranks that hold the same
  // elements have the same number. Not collective.
  uint64_t held_hash() const;
  bool holds_shares() const;  // not every rank holds all masters

  // What this rank holds of one parameter: elements [first, first + count) of it.
  struct Held {
    bool sharded = false;   // ranks hold different elements
    bool of_owner = false;  // one of the tensor ranks holds all of it (program/owners.h)
    int64_t first = 0;
    device::Tensor values;  // device memory, flat; empty when it holds none
    // Quantized: `values` are the bytes of blocks that hold so many elements.
    kernels::Quantized format = kernels::Quantized::none;
    int64_t elements = 0;
    int64_t count() const { return format == kernels::Quantized::none ? values.numel() : elements; }
  };
  // A tensor of what the optimizer keeps for a parameter.
  struct State {
    std::string name;     // "m"
    device::Shape shape;  // whole
    model::Cut cut;
    Held held;
  };
  struct Named {
    std::string name;
    device::Shape shape;  // whole
    model::Cut cut;       // what part of it the tensor ranks' `held` elements are of
    Held master;          // of a frozen one: in the type that products read, or quantized
    std::vector<State> state;
    device::DType dtype = device::DType::f32;
    int64_t order = 0;  // by block, whichever blocks this rank has
    bool frozen = false;
  };
  std::vector<Named> named() const;  // tied ones left out
  // Statistics under their names, in their own types and without moments, whole on every rank: saved and
  // restored with the masters.
  std::vector<Named> statistics() const;
  // What a checkpoint keeps of this rank: masters and frozen values, what the optimizer keeps ("NAME.m",
  // "NAME.v") and statistics, each as the piece of the canonical tensor that lies in `values`. `copies` ranks
  // hold the same, this is number `copy` of them: together, the ranks' shares of their copies must cover
  // every tensor once. What is shared out or cut has its copies on other ranks than what is not, even where
  // they are as many.
  struct Saved {
    checkpoint::Piece piece;
    device::Tensor values;  // device memory, flat
    int copy = 0, copies = 1;
    bool sharded = false, cut = false;
    bool frozen = false;  // a weight that is not trained
    // Quantized: `values` are blocks, and the piece is of what they stand for, in fp32.
    kernels::Quantized format = kernels::Quantized::none;
  };
  std::vector<Saved> saved() const;

  void write(const device::Tensor& to, const void* host) const;
  void read(const device::Tensor& from, void* host) const;
  // Quantized values: `count` of them, to fp32 in the host's memory.
  void read_dequantized(kernels::Quantized format, const void* blocks, int64_t count, float* host) const;
  device::Tensor state() const { return memory_.find("step state"); }

 private:
  enum class Tables : uint8_t { all, by_length };
  void fill_tables(Tables which, int64_t length);
  Held held(const model::PlacedParam& param, int block) const;
  Held held(const program::StateBuffer& state, const model::PlacedParam& param) const;
  Held held_of(const device::Tensor& flat, const program::Span& holds, bool sharded,
               const model::PlacedParam& param, kernels::Quantized format = kernels::Quantized::none) const;
  Saved saved_as(const std::string& name, const Named& param, const Held& held, checkpoint::Kind kind) const;
  // Elements `begin` and so on of what a rank holds, and where all of that lies in the whole.
  struct Drawn {
    const std::vector<checkpoint::Run>& runs;
    int64_t begin = 0, count = 0;
  };
  void fill(const Held& held, const model::ParamSpec& spec, uint64_t seed) const;
  void draw(const Drawn& of, const model::ParamSpec& spec, uint64_t seed, float* to) const;
  void round_into(const Held& held, int64_t begin, int64_t count, const float* drawn) const;
  void share_copies() const;
  checkpoint::HashSums hash_runs() const;
  std::vector<uint64_t> sums_of(const checkpoint::HashSums& own) const;
  // Chunks of a block of which this rank holds the values, trained or frozen, begins counted from the
  // buffer's first element, and their numbers in the model's own order, which is the hash's. Of what several
  // ranks of a shard group hold, each takes its shard; `all`: every one takes all.
  struct Chunks {
    std::vector<kernels::Chunk> chunks;
    std::vector<int64_t> numbers;
    device::Tensor values;
    kernels::Quantized format = kernels::Quantized::none;
  };
  enum class Take : uint8_t { shard, all };
  std::vector<Chunks> own_chunks(size_t block, Take take) const;
  std::vector<uint64_t> hash_chunks(const Chunks& own) const;
  std::vector<uint64_t> hash_fp32(const float* values, const std::vector<kernels::Chunk>& chunks) const;
  std::vector<std::vector<int64_t>> first_chunk_;  // [block][parameter as the model lists it]
  int64_t chunk_count_ = 0;
  const model::Model& model_;
  const program::Program& program_;
  const Memory& memory_;
  device::Device& device_;
  const kernels::Kernels& kernels_;
  const Ranks& ranks_;
  std::vector<model::BlockLayout> layouts_;
};

}  // namespace lockstep::run

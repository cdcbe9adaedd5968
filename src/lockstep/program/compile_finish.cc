// The end of the step: tied gradients, norm, statistics, updates.
#include <fmt/format.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/program/compiler.h"

namespace lockstep::program {

void Compiler::finish_step() {
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    for (size_t k = 0; k < layouts_[b].params.size(); ++k) {
      const model::PlacedParam& param = layouts_[b].params[k];
      if (!param.spec.tied_to.empty()) add_tied(b, static_cast<int>(k), param);
    }
  }
  Instruction norm{.what = Norm{}};
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    if (!mine(b)) continue;
    const int block = static_cast<int>(b);
    norm.reads.push_back({program_.blocks[b].gradients[0], Role::gradient, {}, block});
    norm.reads.push_back({program_.blocks[b].norm_chunks, Role::chunks, {}, block});
    norm.moved_bytes += layouts_[b].value_count * 4;
  }
  norm.reads.push_back({keep_.slice_losses, Role::losses});
  norm.reads.push_back({keep_.inputs, Role::inputs});
  norm.writes = {{keep_.square_sums, Role::squares}, {keep_.state, Role::state}};
  program_.instructions.push_back(std::move(norm));
  for (const auto& [where, kept] : statistics_) fold_statistics(where.first, where.second, kept);
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    if (!mine(b) || layouts_[b].value_count == 0) continue;
    const BlockBuffers& keep = program_.blocks[b];
    Instruction update{.what = Update{}, .block = static_cast<int>(b)};
    update.reads = {{keep.gradients[0], Role::gradient},
                    {keep.chunks, Role::chunks},
                    {keep_.inputs, Role::inputs},
                    {keep_.state, Role::state}};
    update.writes = {{keep.master, Role::master}};
    if (keep.compute != keep.master) update.writes.push_back({keep.compute, Role::compute});
    for (size_t k = 0; k < keep.moments.size(); ++k)
      update.writes.push_back(
          {.buffer = keep.moments[k], .role = Role::moment, .number = static_cast<int>(k)});
    const int64_t moments =
        2 * device::size_of(layout_.moment_type) * static_cast<int64_t>(keep.moments.size());
    update.moved_bytes =
        layouts_[b].value_count * (4 + 8 + moments + (model_.compute == device::DType::f32 ? 0 : 2));
    program_.instructions.push_back(std::move(update));
  }
  share_tied();
}

// Behind the norm, because a step whose gradients are not finite leaves statistics as they were.
void Compiler::fold_statistics(size_t b, size_t g, const std::vector<Use>& kept) {
  Instruction i{.what = FoldStatistics{}, .block = static_cast<int>(b), .segment = static_cast<int>(g)};
  i.reads = kept;
  for (const Use& use : kept) i.moved_bytes += program_.buffers[static_cast<size_t>(use.buffer)].bytes();
  for (const model::BufferSpec& spec : model_.blocks[b].segments()[g]->buffers()) {
    if (!spec.constant) i.writes.push_back({keep_.tables.at(spec.name), Role::buffer, spec.key});
  }
  i.reads.push_back({keep_.state, Role::state});
  program_.instructions.push_back(std::move(i));
}

// Two gradient slots, added once: the tied one onto the one of the parameter that holds the values. In a
// pipeline the slot is the last stage's and the values are the first one's.
void Compiler::add_tied(size_t b, int param_index, const model::PlacedParam& param) {
  const model::TiedTo owner = model::find_tied(layouts_, param.spec.tied_to);
  const bool slot_here = mine(b), values_here = mine(static_cast<size_t>(owner.block));
  if (!slot_here && !values_here) return;
  Use slot{slot_here ? program_.blocks[b].gradients[0] : -1, Role::tied};
  int64_t elements = param.spec.shape.numel();
  if (!program_.shards.empty()) {
    elements = program_.own_shard(static_cast<int>(b)).gradients[tied_slot(layouts_[b], param_index)].count;
  }
  if (!values_here) {
    Instruction send{.what = SendTied{param_index}, .lane = Lane::send, .block = static_cast<int>(b)};
    send.among = Among::next;
    send.reads = {slot};
    send.moved_bytes = elements * 4;
    program_.instructions.push_back(std::move(send));
    return;
  }
  if (!slot_here) {
    slot.buffer = program_.add_buffer({.name = fmt::format("b{} tied slot", b),
                                       .kind = BufferKind::gradient,
                                       .shape = {elements},
                                       .block = static_cast<int>(b)});
    Instruction recv{.what = RecvTied{param_index}, .lane = Lane::recv, .block = static_cast<int>(b)};
    recv.among = Among::previous;
    recv.writes = {slot};
    recv.moved_bytes = elements * 4;
    program_.instructions.push_back(std::move(recv));
  }
  Instruction i{.what = AddTied{param_index}, .block = static_cast<int>(b)};
  const int into = program_.blocks[static_cast<size_t>(owner.block)].gradients[0];
  i.reads = {slot, {into, Role::into}};
  i.writes = {{into, Role::into}};
  i.moved_bytes = 3 * param.spec.shape.numel() * 4;
  program_.instructions.push_back(std::move(i));
}

// Whoever keeps a copy of another stage's values gets the new ones.
void Compiler::share_tied() {
  std::map<int, bool> done;  // owners
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    for (const model::PlacedParam& param : layouts_[b].params) {
      if (param.spec.tied_to.empty()) continue;
      const int owner = model::find_tied(layouts_, param.spec.tied_to).block;
      const bool user_here = mine(b), values_here = mine(static_cast<size_t>(owner));
      if (user_here == values_here || std::exchange(done[owner], true)) continue;
      Instruction i{.what = values_here ? Operation(SendWeights{}) : RecvWeights{},
                    .lane = values_here ? Lane::send : Lane::recv,
                    .block = owner,
                    .among = values_here ? Among::previous : Among::next};
      const Use copy{program_.blocks[static_cast<size_t>(owner)].compute, Role::copy};
      (values_here ? i.reads : i.writes) = {copy};
      i.moved_bytes = program_.buffers[static_cast<size_t>(copy.buffer)].bytes();
      program_.instructions.push_back(std::move(i));
    }
  }
}

}  // namespace lockstep::program

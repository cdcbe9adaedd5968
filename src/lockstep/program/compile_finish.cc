// The end of the step: tied gradients, norm, statistics, updates.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/program/compiler.h"

namespace lockstep::program {

void Compiler::finish_step() {
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    for (size_t k = 0; k < layouts_[b].params.size(); ++k) {
      const model::PlacedParam& param = layouts_[b].params[k];
      if (!param.spec.holds_values() && !param.spec.train.frozen) add_tied(b, static_cast<int>(k), param);
    }
  }
  Instruction norm{.what = Norm{}};
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    if (!mine(b)) continue;
    const int block = static_cast<int>(b);
    norm.reads.push_back({program_.blocks[b].gradients[0], Role::gradient, {}, block});
    norm.reads.push_back({program_.blocks[b].norm_chunks, Role::chunks, {}, block});
    norm.moved_bytes += own_part(b, layouts_[b].value_count * 4);
  }
  norm.reads.push_back({keep_.slice_losses, Role::losses});
  norm.reads.push_back({keep_.inputs, Role::inputs});
  norm.writes = {{keep_.square_sums, Role::squares}, {keep_.state, Role::state}};
  program_.instructions.push_back(std::move(norm));
  for (const auto& [where, kept] : statistics_) fold_statistics(where.first, where.second, kept);
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    for (size_t r = 0; mine(b) && r < layouts_[b].regions.size(); ++r) update(b, r);
  }
  share_tied();
}

// Of what a block has for each trained value, this rank's: all of it, or its shard's.
int64_t Compiler::own_part(size_t b, int64_t bytes) const {
  const int64_t all = layouts_[b].value_count;
  if (program_.shards.empty() || all == 0) return bytes;
  const double share =
      static_cast<double>(program_.own_shard(static_cast<int>(b)).values.count) / static_cast<double>(all);
  return static_cast<int64_t>(share * static_cast<double>(bytes));
}

// The values of one rule.
void Compiler::update(size_t b, size_t r) {
  const model::Region& region = layouts_[b].regions[r];
  const BlockBuffers& keep = program_.blocks[b];
  Instruction i{.what = Update{static_cast<int>(r)}, .block = static_cast<int>(b)};
  i.reads = {{keep.gradients[0], Role::gradient},
             {keep.chunks, Role::chunks},
             {keep_.inputs, Role::inputs},
             {keep_.state, Role::state}};
  i.writes = {{keep.master, Role::master}};
  if (keep.compute != keep.master) i.writes.push_back({keep.compute, Role::compute});
  i.moved_bytes = region.count * (4 + 8 + (model_.compute == device::DType::f32 ? 0 : 2));
  int count = 0;
  for (const StateBuffer& state : keep.state) {
    if (state.region != static_cast<int>(r)) continue;
    i.writes.push_back({.buffer = state.buffer, .role = Role::moment, .number = count++});
    i.moved_bytes += 2 * program_.buffers[static_cast<size_t>(state.buffer)].bytes();
  }
  i.moved_bytes = own_part(b, i.moved_bytes);
  const std::vector<Owned> owned = owned_in(b, r);
  int64_t scratch = 0;
  const StateRule& rule = layout_.rules[static_cast<size_t>(region.rule)];
  for (const int k : region.params) {
    const model::ParamSpec& spec = layouts_[b].params[static_cast<size_t>(k)].spec;
    if (region.whole && rule.scratch && !spec.cut.cuts())
      scratch = std::max(scratch, rule.scratch(spec.shape));
  }
  for (const Owned& one : owned) {
    if (rule.scratch && one.owner == model_.parts.tensor_rank)
      scratch = std::max(scratch, rule.scratch(one.whole));
  }
  if (scratch > 0)
    i.writes.push_back(
        {value({"update", device::DType::u8, {scratch}}, BufferKind::scratch, i.block, -1), Role::scratch});
  // Also where this rank's shard holds none of them: every shard's ranks have the same list.
  const bool cut = std::any_of(region.params.begin(), region.params.end(), [&](int k) {
    return region.whole && layouts_[b].params[static_cast<size_t>(k)].spec.cut.cuts();
  });
  if (!cut) {
    program_.instructions.push_back(std::move(i));
    return;
  }
  // Whole on their owners for as long as the update takes.
  Instruction to = exchange_with_owners(b, r, ToOwners{static_cast<int>(r)});
  const int64_t elements = owned_elements(owned, model_.parts.tensor_rank);
  const auto whole = [&](const char* name) {
    return Use{program_.add_buffer({.name = fmt::format("b{} whole {} of region {}", b, name, r),
                                    .kind = BufferKind::scratch,
                                    .shape = {elements}}),
               Role::whole, name};
  };
  const Use gradient = whole("gradient"), master = whole("master");
  to.reads = {{keep.gradients[0], Role::gradient}, {keep.master, Role::master}};
  to.writes.insert(to.writes.begin(), {gradient, master});
  i.reads.push_back(gradient);
  i.reads.push_back(master);
  i.writes.push_back(master);
  Instruction from = exchange_with_owners(b, r, FromOwners{static_cast<int>(r)});
  from.reads = {master};
  from.writes.insert(from.writes.begin(), {keep.master, Role::master});
  if (keep.compute != keep.master) from.writes.push_back({keep.compute, Role::compute});
  for (Instruction* one : {&to, &i, &from}) program_.instructions.push_back(std::move(*one));
}

std::vector<Owned> Compiler::owned_in(size_t b, size_t r) const {
  const int block = static_cast<int>(b);
  return owned_parameters(layouts_[b], layouts_[b].regions[r], program_.held_values(layouts_[b], block),
                          model_.parts, block);
}

// With memory for the parts of one parameter.
Instruction Compiler::exchange_with_owners(size_t b, size_t r, Operation what) {
  const std::vector<Owned> owned = owned_in(b, r);
  Instruction i{
      .what = std::move(what), .lane = Lane::seam, .block = static_cast<int>(b), .among = Among::tensor};
  const int self = model_.parts.tensor_rank;
  const int staging = program_.add_buffer({.name = fmt::format("b{} parts of region {}", b, r),
                                           .kind = BufferKind::scratch,
                                           .shape = {largest_owned(owned, self)}});
  i.writes = {{staging, Role::staging}};
  for (const Owned& one : owned) i.moved_bytes += 4 * one.part_elements * (i.is<ToOwners>() ? 2 : 1);
  return i;
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
  const model::TiedTo owner = model::find_tied(layouts_, param.spec);
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

// Whoever keeps a copy of another stage's values gets the new ones; those that are frozen, once.
void Compiler::share_tied() {
  std::map<std::pair<int, bool>, bool> done;  // {owner, frozen}
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    for (const model::PlacedParam& param : layouts_[b].params) {
      if (param.spec.tied_to.empty()) continue;
      const int owner = model::find_tied(layouts_, param.spec).block;
      if (mine(b) == mine(static_cast<size_t>(owner))) continue;
      if (!std::exchange(done[{owner, param.spec.train.frozen}], true)) hand_over(param, owner);
    }
  }
}

// Between the stage that has a tied parameter's values and the one that uses a copy of them; this is either.
void Compiler::hand_over(const model::PlacedParam& user, int owner) {
  const bool frozen = user.spec.train.frozen, values_here = mine(static_cast<size_t>(owner));
  Instruction i{.what = values_here ? Operation(SendWeights{}) : RecvWeights{},
                .lane = values_here ? Lane::send : Lane::recv,
                .block = owner,
                .among = values_here ? Among::previous : Among::next};
  const BlockBuffers& keep = program_.blocks[static_cast<size_t>(owner)];
  const Use copy{frozen ? keep.frozen : keep.compute, Role::copy};
  (values_here ? i.reads : i.writes) = {copy};
  i.moved_bytes = program_.buffers[static_cast<size_t>(copy.buffer)].bytes();
  (frozen ? program_.setup : program_.instructions).push_back(std::move(i));
}

}  // namespace lockstep::program

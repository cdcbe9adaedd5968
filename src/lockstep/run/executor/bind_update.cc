// Updates, bound: which chunks of which values this rank moves, and with which rule.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/program/owners.h"
#include "lockstep/run/executor/bind.h"

namespace lockstep::run {

using device::CopyKind;
using device::Tensor;
using kernels::StepInputs;
using kernels::StepState;
using program::Instruction;
using program::Role;
using program::Use;

namespace {

// Whether the parameter at this element of a block is cut among the tensor ranks.
bool is_cut(const model::BlockLayout& layout, int64_t element) {
  for (const model::PlacedParam& param : layout.params) {
    const bool here = element >= param.offset && element < param.offset + param.spec.shape.numel();
    if (here && param.spec.trained()) return param.spec.cut.cuts();
  }
  return false;
}

}  // namespace

// This rank's chunks, begins counted from the first element that it holds of their region.
void Binder::fill_chunks(size_t b, const std::vector<kernels::Chunk>& all) {
  program::Span values{0, layouts_[b].value_count};
  int64_t begin = 0, end = static_cast<int64_t>(all.size());
  if (!c_.program.shards.empty()) {
    const program::Shard& shard = c_.program.own_shard(static_cast<int>(b));
    values = shard.values;
    begin = shard.first_chunk, end = begin + shard.chunks;
  }
  std::vector<kernels::Chunk> chunks, of_norm;
  for (const model::Region& region : layouts_[b].regions) {
    const int64_t first = std::max(begin, region.first_chunk),
                  last = std::max(first, std::min(end, region.first_chunk + region.chunks));
    const int64_t start = std::max(values.begin, region.begin);
    parts_[b].push_back({.first_chunk = static_cast<int64_t>(chunks.size()),
                         .chunks = last - first,
                         .offset = start - values.begin});
    for (int64_t k = first; k < last; ++k) {
      kernels::Chunk chunk = all[static_cast<size_t>(k)];
      const bool cut = is_cut(layouts_[b], chunk.begin);
      chunk.begin -= start;
      chunks.push_back(chunk);
      if (!cut) chunk.count = 0;  // the first tensor rank counts it
      of_norm.push_back(chunk);
    }
  }
  const program::BlockBuffers& keep = c_.program.blocks[b];
  const auto fill = [&](int buffer, const std::vector<kernels::Chunk>& from) {
    const Tensor table = c_.memory.tensor(buffer);
    c_.device.copy(table.data, from.data(), table.bytes(), CopyKind::host_to_device, stream_);
    c_.device.synchronize(stream_);
  };
  fill(keep.chunks, chunks);
  if (keep.norm_chunks != keep.chunks) fill(keep.norm_chunks, of_norm);
}

Binder::Call Binder::update(const Instruction& i, const program::Update& what) {
  const auto block = static_cast<size_t>(i.block);
  return layouts_[block].regions[static_cast<size_t>(what.region)].whole ? update_whole(i, what)
                                                                         : update_chunks(i, what);
}

Binder::Call Binder::update_chunks(const Instruction& i, const program::Update& what) {
  const auto block = static_cast<size_t>(i.block);
  const OwnPart& part = parts_[block][static_cast<size_t>(what.region)];
  if (part.chunks == 0) return [] {};
  const model::Region& region = layouts_[block].regions[static_cast<size_t>(what.region)];
  const optim::Rule& rule = c_.options.optimizer.rules[static_cast<size_t>(region.rule)];
  const program::BlockBuffers& keep = c_.program.blocks[block];
  const auto share = [&](int buffer) { return reinterpret_cast<float*>(own(buffer, i.block)) + part.offset; };
  kernels::Update update{.rule = rule.kind->rule,
                         .own = rule.kind->own,
                         .beta1 = rule.beta1,
                         .beta2 = rule.beta2,
                         .epsilon = rule.epsilon,
                         .master = share(keep.master),
                         .gradient = share(i.reads[0].buffer),
                         .first_chunk = first_slot_[block],
                         .chunks = used(i.reads, Role::chunks).as<kernels::Chunk>() + part.first_chunk,
                         .chunk_count = part.chunks,
                         .inputs = used(i.reads, Role::inputs).as<StepInputs>(),
                         .state = used(i.reads, Role::state).as<StepState>()};
  for (const program::StateBuffer& kept : keep.state) {
    if (kept.region != what.region) continue;
    const Tensor values = c_.memory.tensor(kept.buffer);
    update.kept[update.kept_count] = values.data;
    update.kept_types[update.kept_count++] = update.moment_type = values.dtype;
  }
  update.m = update.kept[0], update.v = update.kept[1];
  if (c_.model.compute != device::DType::f32) {
    update.compute = own(keep.compute, i.block) + part.offset * device::size_of(c_.model.compute);
    update.compute_type = c_.model.compute;
  }
  return [this, update] { kernels_.update(update, launch_); };
}

// One call for each parameter of the region that this rank holds; shards never cut one.
Binder::Call Binder::update_whole(const Instruction& i, const program::Update& what) {
  const auto block = static_cast<size_t>(i.block);
  const optim::Optimizer& o = c_.options.optimizer;
  const model::BlockLayout& layout = layouts_[block];
  const model::Region& region = layout.regions[static_cast<size_t>(what.region)];
  const optim::Rule& rule = o.rules[static_cast<size_t>(region.rule)];
  const program::BlockBuffers& keep = c_.program.blocks[block];
  const program::Span held = c_.program.held_values(layout, i.block);
  const std::vector<program::Owned> owned =
      program::owned_parameters(layout, region, held, c_.program.parts, i.block);
  // As the model's own, where a GPU multiplies them faster so.
  const bool rounds_products =
      c_.device.id().kind == device::Kind::cuda && c_.model.compute == device::DType::bf16;
  std::vector<std::pair<optim::WholeUpdate, Tensor>> calls;  // and the compute copy
  for (const int k : region.params) {
    const model::PlacedParam& param = layout.params[static_cast<size_t>(k)];
    const model::ParamSpec& spec = param.spec;
    if (param.offset < held.begin || param.offset + spec.shape.numel() > held.end()) continue;
    const auto cut =
        std::find_if(owned.begin(), owned.end(), [&](const auto& one) { return one.param == k; });
    if (cut != owned.end() && cut->owner != c_.program.parts.tensor_rank) continue;
    const auto whole = [&](const char* name) -> Tensor {  // from all tensor ranks
      for (const Use& use : i.reads) {
        if (use.role == Role::whole && use.name == name)
          return {c_.memory.tensor(use.buffer).as<float>() + cut->at, device::DType::f32, cut->whole};
      }
      LS_ASSERT(false, "an update of a parameter that is not whole");
      return {};
    };
    const auto view = [&](int buffer) -> Tensor {
      const device::DType type = c_.memory.tensor(buffer).dtype;
      return {own(buffer, i.block) + (param.offset - held.begin) * device::size_of(type), type, spec.shape};
    };
    optim::WholeUpdate call{
        .master = cut != owned.end() ? whole("master") : view(keep.master),
        .gradient = cut != owned.end() ? whole("gradient") : view(i.reads[0].buffer),
        .state = {},
        .rate = spec.train.rate,
        .weight_decay = spec.train.weight_decay.value_or(spec.decay || o.decay_all ? o.weight_decay : 0.0f),
        .constants = rule.constants,
        .inputs = used(i.reads, Role::inputs).as<StepInputs>(),
        .step = used(i.reads, Role::state).as<StepState>(),
        .kernels = &kernels_,
        .launch = launch_,
        .products = rounds_products ? device::DType::bf16 : device::DType::f32};
    for (const program::StateBuffer& kept : keep.state) {
      if (kept.param != k) continue;
      const Tensor values = c_.memory.tensor(kept.buffer);
      call.state.push_back({values.data, values.dtype, kept.shape});
    }
    for (const Use& use : i.writes) {
      if (use.role == Role::scratch) call.scratch = c_.memory.tensor(use.buffer);
    }
    const bool rounds = c_.model.compute != device::DType::f32 && cut == owned.end();
    calls.emplace_back(std::move(call), rounds ? view(keep.compute) : Tensor{});
  }
  return [this, calls, whole = rule.kind->whole] {
    for (const auto& [call, copy] : calls) {
      whole(call);
      if (copy)
        kernels_.cast({device::DType::f32, copy.dtype, copy.numel(), call.master.data, copy.data}, launch_);
    }
  };
}

}  // namespace lockstep::run

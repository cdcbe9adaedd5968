#include "lockstep/run/executor/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/run/executor/reduce.h"
#include "lockstep/run/executor/seam.h"

namespace lockstep::run {

using device::CopyKind;
using device::Tensor;
using kernels::StepInputs;
using kernels::StepState;
using program::Instruction;
using program::Lane;
using program::Op;
using program::Use;

void Staging::allocate(device::Device& device, const program::Program& program) {
  const auto slices = static_cast<int64_t>(program.own_slices.size());
  input_words_ = slices * program.input_words;
  label_words_ = slices * program.label_words;
  samples_ = program.samples_per_slice;
  rows_ = slices * samples_;
  parts_ = program.parts;
  for (Slot& slot : slots_) {
    slot.header = static_cast<StepInputs*>(device.allocate_host(sizeof(StepInputs)));
    slot.inputs = static_cast<int32_t*>(device.allocate_host(input_words_ * 4));
    slot.labels = static_cast<int32_t*>(device.allocate_host(label_words_ * 4));
    slot.done = device.create_event();
  }
}

void Staging::free(device::Device& device) {
  for (Slot& slot : slots_) {
    device.free_host(slot.header);
    device.free_host(slot.inputs);
    device.free_host(slot.labels);
    device.destroy_event(slot.done);
  }
}

void Staging::fill(device::Device& device, const HostBatch& batch, const StepInputs& inputs) {
  current_ = 1 - current_;
  Slot& slot = slots_[current_];
  if (slot.busy) device.wait_for(slot.done);
  *slot.header = now_ = inputs;
  pick(batch.inputs, slot.inputs, input_words_);
  pick(batch.labels, slot.labels, label_words_);
}

void Staging::clear() {
  for (const Slot& slot : slots_) {
    *slot.header = {.valid_tokens = 1};
    std::fill_n(slot.inputs, input_words_, 0);
    std::fill_n(slot.labels, label_words_, 0);
  }
}

// Context ranks keep their part of every sample, in the order that model::SliceContext describes.
void Staging::pick(std::span<const int32_t> from, int32_t* to, int64_t words) const {
  LS_ASSERT(static_cast<int64_t>(from.size()) == words * parts_.context);
  if (parts_.context == 1) {
    std::memcpy(to, from.data(), from.size_bytes());
    return;
  }
  const int runs = parts_.heads ? 1 : 2;  // of a sample
  const int64_t length = words / rows_, whole = length * runs * parts_.context, per_slice = samples_ / runs;
  for (int64_t row = 0; row < rows_; ++row) {  // runs of one slice: all front ones, then all back ones
    const int64_t slice = row / samples_, inside = row % samples_, run = inside / per_slice;
    const int64_t sample = slice * per_slice + inside % per_slice;
    const int64_t chunk = run == 0 ? parts_.context_rank : 2 * parts_.context - 1 - parts_.context_rank;
    std::memcpy(to + row * length, from.data() + sample * whole + chunk * length,
                static_cast<size_t>(length) * sizeof(int32_t));
  }
}

void Staging::in_use(device::Device& device, device::Stream stream) {
  device.record(slots_[current_].done, stream);
  slots_[current_].busy = true;
}

namespace {

// Whether the parameter at this element of a block is cut among the tensor ranks.
bool is_cut(const model::BlockLayout& layout, int64_t element) {
  for (const model::PlacedParam& param : layout.params) {
    const bool here = element >= param.offset && element < param.offset + param.spec.shape.numel();
    if (here && param.spec.tied_to.empty()) return param.spec.cut.cuts();
  }
  return false;
}

}  // namespace

Binder::Binder(BindContext context)
    : c_(std::move(context)),
      kernels_(kernels::kernels_for(c_.device.id().kind)),
      stream_(c_.streams.at(Lane::compute)) {
  launch_ = {.stream = stream_, .tf32 = c_.options.tf32};
  for (const model::Block& block : c_.model.blocks) layouts_.push_back(model::layout_of(block));
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const optim::Optimizer& o = c_.options.optimizer;
    std::vector<kernels::Chunk> chunks = model::chunks_of(layouts_[b], o.weight_decay, o.decay_all);
    first_chunk_.push_back(chunk_count_);
    chunk_count_ += static_cast<int64_t>(chunks.size());
    const program::BlockBuffers& keep = c_.program.blocks[b];
    if (!keep.held()) continue;
    if (!c_.program.shares.empty()) {
      const program::Share& share = c_.program.own_share(static_cast<int>(b));
      chunks = {chunks.begin() + share.first_chunk, chunks.begin() + share.first_chunk + share.chunks};
      for (kernels::Chunk& chunk : chunks) chunk.begin -= share.values.begin;
      first_chunk_.back() += share.first_chunk;
    }
    const auto fill = [&](int buffer) {
      const Tensor table = c_.memory.tensor(buffer);
      c_.device.copy(table.data, chunks.data(), table.bytes(), CopyKind::host_to_device, stream_);
      c_.device.synchronize(stream_);
    };
    fill(keep.chunks);
    if (keep.norm_chunks == keep.chunks) continue;
    const int64_t base =
        c_.program.shares.empty() ? 0 : c_.program.own_share(static_cast<int>(b)).values.begin;
    for (kernels::Chunk& chunk : chunks) {
      if (!is_cut(layouts_[b], chunk.begin + base)) chunk.count = 0;  // the first tensor rank counts it
    }
    fill(keep.norm_chunks);
  }
}

char* Binder::own(int buffer, int block) const {
  const Tensor flat = c_.memory.tensor(buffer);
  const bool all_of_it = c_.program.shares.empty() || c_.program.buffers[static_cast<size_t>(buffer)].share;
  return flat.as<char>() +
         (all_of_it ? 0 : c_.program.own_share(block).values.begin * device::size_of(flat.dtype));
}

int64_t Binder::own_chunks(int block) const {
  return c_.memory.tensor(c_.program.blocks[static_cast<size_t>(block)].chunks).numel() /
         static_cast<int64_t>(sizeof(kernels::Chunk));
}

bool is_of_segment(Op op) {
  return op == Op::forward || op == Op::loss || op == Op::recompute || op == Op::backward_input ||
         op == Op::backward_weight || op == Op::cast;
}

Binder::Call Binder::bind(const Instruction& i) {
  if (is_of_segment(i.op)) return segment(i);
  switch (i.op) {
    case Op::load:
      return i.slice == -1 ? begin_step(i) : load(i);
    case Op::sum:
      return i.segment >= 0 ? fold_statistics(i) : sum(i);
    case Op::norm:
      return norm(i);
    case Op::update:
      return update(i);
    case Op::reduce:
      if (i.lane == Lane::seam) return bind_seam(c_, i, c_.streams.at(i.lane));
      return bind_reduce(c_, layouts_, i, {.stream = c_.streams.at(i.lane)});
    case Op::gather:
      if (i.lane == Lane::seam) return bind_seam(c_, i, c_.streams.at(i.lane));
      return bind_gather(c_, i, {.stream = c_.streams.at(i.lane)});
    case Op::exchange:
      return bind_seam(c_, i, c_.streams.at(i.lane));
    case Op::send:
    case Op::recv:
      return bind_link(c_, layouts_, i, c_.streams.at(i.lane));
    case Op::release:
      return [] {};  // its memory is free behind it: placement knows
    default:
      break;
  }
  LS_ASSERT(false, std::string("the executor has no ") + program::name_of(i.op));
  return {};
}

Tensor Binder::used(const std::vector<Use>& uses, const std::string& role) const {
  for (const Use& use : uses) {
    if (use.role == role) return c_.memory.tensor(use.buffer);
  }
  LS_ASSERT(false, "no " + role);
  return {};
}

// The host's numbers of the step.
Binder::Call Binder::begin_step(const Instruction& i) {
  const Tensor inputs = used(i.writes, "inputs"), losses = used(i.writes, "losses");
  return [this, inputs, losses] {
    c_.device.copy(inputs.data, c_.staging.inputs(), sizeof(StepInputs), CopyKind::host_to_device, stream_);
    c_.device.fill_zero(losses.data, losses.bytes(), stream_);
  };
}

Binder::Call Binder::load(const Instruction& i) {
  std::vector<std::pair<Tensor, bool>> fields;  // and whether they are labels
  for (const Use& use : i.writes) fields.emplace_back(c_.memory.tensor(use.buffer), use.role == "labels");
  const std::vector<int64_t>& own = c_.program.own_slices;
  const int64_t slice = std::find(own.begin(), own.end(), i.slice) - own.begin();
  return [this, fields, slice] {
    for (const auto& [to, is_label] : fields) {
      c_.device.copy(to.data, c_.staging.words(is_label) + slice * to.numel(), to.bytes(),
                     CopyKind::host_to_device, stream_);
    }
  };
}

// A parameter inside its block's flat buffer. A tied weight is read where its owner keeps it; its gradient
// has a slot of its own in this block.
Tensor Binder::parameter(const Instruction& i, const Use& use, const std::string& key) const {
  const auto block = static_cast<size_t>(i.block);
  const model::PlacedParam& own = layouts_[block].find(segment_of(i).name() + "." + key);
  int64_t offset = own.offset;
  if (use.role.starts_with("weight.") && !own.spec.tied_to.empty()) {
    offset = model::find_tied(layouts_, own.spec.tied_to).param->offset;
  }
  const Tensor flat = c_.memory.tensor(use.buffer);
  return {flat.as<char>() + offset * device::size_of(flat.dtype), flat.dtype, own.spec.shape};
}

const model::Segment& Binder::segment_of(const Instruction& i) const {
  return *c_.model.blocks[static_cast<size_t>(i.block)].segments()[static_cast<size_t>(i.segment)];
}

std::shared_ptr<model::Frame> Binder::frame(const Instruction& i) {
  auto frame = std::make_shared<model::Frame>();
  frame->kernels = &kernels_;
  frame->launch = launch_;
  const auto slice = static_cast<size_t>(std::max(0, i.slice));  // fold_statistics is of no slice
  frame->slice = {.slice = static_cast<uint32_t>(slice),
                  .samples = c_.program.samples_per_slice,
                  .seq_len = c_.program.seq_len,
                  .context = c_.program.parts.context,
                  .context_rank = c_.program.parts.context_rank,
                  .ring = c_.program.parts.context > 1 && !c_.program.parts.heads,
                  .training = c_.program.training};
  frame->device = &c_.device;
  frame->part = i.part;
  frame->accumulate = i.accumulate;
  frame->slices = c_.program.slices;
  frame->inputs = c_.memory.find("step inputs").as<StepInputs>();
  frame->state = c_.memory.find("step state").as<StepState>();
  frame->on_host = c_.staging.now();
  // Tensor ranks compute the same losses; those of the first count.
  const bool counts = c_.program.parts.tensor_rank == 0;
  frame->loss =
      c_.memory.find("slice losses").as<double>() + (counts ? slice : static_cast<size_t>(c_.program.slices));
  if (i.keeps_tape) frame->graph = &graphs_[{i.block, i.segment, i.slice}];
  for (const auto* uses : {&i.reads, &i.writes}) {
    for (const Use& use : *uses) {
      if (use.role == "workspace") {
        const Tensor workspace = c_.memory.tensor(use.buffer);
        frame->launch.workspace = workspace.data;
        frame->launch.workspace_bytes = workspace.bytes();
        continue;
      }
      const bool weight = use.role.starts_with("weight."), gradient = use.role.starts_with("grad.");
      frame->bind(use.role, weight || gradient ? parameter(i, use, use.role.substr(use.role.find('.') + 1))
                                               : c_.memory.tensor(use.buffer));
    }
  }
  return frame;
}

Binder::Call Binder::segment(const Instruction& i) {
  const model::Segment* segment = &segment_of(i);
  const std::shared_ptr<model::Frame> frame = this->frame(i);
  switch (i.op) {
    case Op::backward_input:
      return [segment, frame] { segment->backward_input(*frame); };
    case Op::backward_weight:
      return [segment, frame] { segment->backward_weight(*frame); };
    case Op::cast:
      return [segment, frame] { segment->prepare(*frame); };
    default:
      return [segment, frame] { segment->forward(*frame); };
  }
}

Binder::Call Binder::sum(const Instruction& i) {
  const Tensor into = used(i.writes, "into"), from = c_.memory.tensor(i.reads[0].buffer);
  kernels::Add add{into.numel(), into.as<float>(), from.as<float>()};
  if (i.reads[0].role == "tied") add = tied(i, into, from);
  return [this, add] { kernels_.add(add, launch_); };
}

// The tied slot onto the gradient of the parameter that holds the values; where gradients are shared out,
// this rank's elements of both.
kernels::Add Binder::tied(const Instruction& i, const Tensor& into, const Tensor& from) const {
  const std::vector<model::PlacedParam>& params = layouts_[static_cast<size_t>(i.block)].params;
  const model::PlacedParam& slot = params[static_cast<size_t>(i.level)];
  const model::TiedTo owner = model::find_tied(layouts_, slot.spec.tied_to);
  const bool received = !c_.program.blocks[static_cast<size_t>(i.block)].held();  // the slot alone
  if (c_.program.shares.empty()) {
    return {slot.spec.shape.numel(), into.as<float>() + owner.param->offset,
            from.as<float>() + (received ? 0 : slot.offset)};
  }
  const size_t k = program::tied_slot(layouts_[static_cast<size_t>(i.block)], i.level);
  const program::Share &mine = c_.program.own_share(i.block), &theirs = c_.program.own_share(owner.block);
  const program::Span span = mine.gradients[k];
  const int64_t at = owner.param->offset + span.begin - slot.offset;  // in the owner's values
  const bool shares = c_.program.ranks.turns();
  return {span.count, into.as<float>() + (shares ? at - theirs.values.begin : at),
          from.as<float>() + (received ? 0
                              : shares ? mine.offsets[k]
                                       : span.begin)};
}

Binder::Call Binder::fold_statistics(const Instruction& i) {
  const model::Segment* segment = &segment_of(i);
  return [segment, frame = this->frame(i)] { segment->fold_statistics(*frame); };
}

// Level 0: all of it; 1: only the square sums of this rank's chunks, the others' being zero; 2: only what is
// made of them.
Binder::Call Binder::norm(const Instruction& i) {
  std::vector<kernels::SquareSums> passes;
  const Tensor sums = c_.memory.find("square sums");
  for (size_t b = 0; b < layouts_.size() && i.level < 2; ++b) {
    const int block = static_cast<int>(b);
    if (!c_.program.blocks[b].held() || own_chunks(block) == 0) continue;
    const Use& gradient = *std::find_if(i.reads.begin(), i.reads.end(), [&](const Use& use) {
      return use.role == fmt::format("gradient.{}", b);
    });
    passes.push_back({reinterpret_cast<float*>(own(gradient.buffer, block)),
                      used(i.reads, fmt::format("chunks.{}", b)).as<kernels::Chunk>(), own_chunks(block),
                      sums.as<double>() + first_chunk_[b]});
  }
  if (i.level == 1) {
    return [this, passes, sums] {
      c_.device.fill_zero(sums.data, sums.bytes(), stream_);
      for (const kernels::SquareSums& pass : passes) kernels_.square_sums(pass, launch_);
    };
  }
  const kernels::NormFinish finish{.sums = sums.as<double>(),
                                   .chunk_count = chunk_count_,
                                   .slice_losses = used(i.reads, "losses").as<double>(),
                                   .slices = c_.program.slices,
                                   .inputs = used(i.reads, "inputs").as<StepInputs>(),
                                   .state = used(i.writes, "state").as<StepState>(),
                                   .policy = c_.options.optimizer.policy};
  return [this, passes, finish] {
    for (const kernels::SquareSums& pass : passes) kernels_.square_sums(pass, launch_);
    kernels_.norm_finish(finish, launch_);
  };
}

Binder::Call Binder::update(const Instruction& i) {
  const optim::Optimizer& o = c_.options.optimizer;
  const program::BlockBuffers& keep = c_.program.blocks[static_cast<size_t>(i.block)];
  const auto share = [&](int buffer) { return reinterpret_cast<float*>(own(buffer, i.block)); };
  kernels::Update update{.rule = o.rule,
                         .beta1 = o.beta1,
                         .beta2 = o.beta2,
                         .epsilon = o.epsilon,
                         .master = share(keep.master),
                         .gradient = share(i.reads[0].buffer),
                         .m = own(keep.moments[0], i.block),
                         .moment_type = o.moment_type,
                         .first_chunk = first_chunk_[static_cast<size_t>(i.block)],
                         .chunks = used(i.reads, "chunks").as<kernels::Chunk>(),
                         .chunk_count = own_chunks(i.block),
                         .inputs = used(i.reads, "inputs").as<StepInputs>(),
                         .state = used(i.reads, "state").as<StepState>()};
  if (o.moments > 1) update.v = own(keep.moments[1], i.block);
  if (c_.model.compute != device::DType::f32) {
    update.compute = own(keep.compute, i.block);
    update.compute_type = c_.model.compute;
  }
  if (update.chunk_count == 0) return [] {};
  return [this, update] { kernels_.update(update, launch_); };
}

}  // namespace lockstep::run

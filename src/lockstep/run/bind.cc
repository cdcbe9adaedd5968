#include "lockstep/run/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::run {

using device::CopyKind;
using device::Tensor;
using kernels::StepInputs;
using kernels::StepState;
using program::Instruction;
using program::Op;
using program::Use;

void Staging::allocate(device::Device& device, const program::Program& program) {
  for (const Instruction& i : program.instructions) {
    if (i.op != Op::load) continue;
    input_words_ += program.buffers[static_cast<size_t>(i.writes[0].buffer)].shape.numel();
    label_words_ += program.buffers[static_cast<size_t>(i.writes[1].buffer)].shape.numel();
  }
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
  LS_ASSERT(static_cast<int64_t>(batch.inputs.size()) == input_words_ &&
            static_cast<int64_t>(batch.labels.size()) == label_words_);
  *slot.header = inputs;
  std::memcpy(slot.inputs, batch.inputs.data(), batch.inputs.size_bytes());
  std::memcpy(slot.labels, batch.labels.data(), batch.labels.size_bytes());
}

void Staging::in_use(device::Device& device, device::Stream stream) {
  device.record(slots_[current_].done, stream);
  slots_[current_].busy = true;
}

Binder::Binder(BindContext context) : c_(std::move(context)), kernels_(kernels::kernels_for(c_.device.id().kind)) {
  const Tensor workspace = c_.memory.find("workspace");
  launch_ = {c_.stream, workspace.data, workspace.bytes(), c_.options.tf32};
  for (const model::Block& block : c_.model.blocks) {
    layouts_.push_back(model::layout_of(block));
    const optim::Optimizer& o = c_.options.optimizer;
    const std::vector<kernels::Chunk> chunks = model::chunks_of(layouts_.back(), o.weight_decay, o.decay_all);
    const Tensor table = c_.memory.find(fmt::format("b{} chunks", layouts_.size() - 1));
    c_.device.copy(table.data, chunks.data(), table.bytes(), CopyKind::host_to_device, c_.stream);
    c_.device.synchronize(c_.stream);
    chunk_counts_.push_back(static_cast<int64_t>(chunks.size()));
  }
}

Binder::Call Binder::bind(const Instruction& i) {
  switch (i.op) {
    case Op::load: return load(i);
    case Op::forward:
    case Op::loss:
    case Op::recompute:
    case Op::backward_input:
    case Op::backward_weight: return segment(i);
    case Op::sum: return i.segment >= 0 ? fold_statistics(i) : sum(i);
    case Op::norm: return norm(i);
    case Op::update: return update(i);
    default: break;
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

Binder::Call Binder::load(const Instruction& i) {
  const Tensor inputs = c_.memory.tensor(i.writes[0].buffer), labels = c_.memory.tensor(i.writes[1].buffer);
  const int slice = i.slice;
  return [this, inputs, labels, slice] {
    const auto move = [&](const Tensor& to, bool is_label) {
      c_.device.copy(to.data, c_.staging.words(is_label) + slice * to.numel(), to.bytes(), CopyKind::host_to_device, c_.stream);
    };
    move(inputs, false);
    move(labels, true);
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
  frame->slice = {.slice = c_.options.slice_ids.empty() ? static_cast<uint32_t>(slice) : c_.options.slice_ids[slice],
                  .samples = c_.program.samples_per_slice, .seq_len = c_.program.seq_len,
                  .training = c_.program.training};
  frame->accumulate = i.accumulate;
  frame->slices = c_.program.slices;
  frame->inputs = c_.memory.find("step inputs").as<StepInputs>();
  frame->state = c_.memory.find("step state").as<StepState>();
  frame->loss = c_.memory.find("slice losses").as<double>() + slice;
  if (i.keeps_tape) frame->graph = &graphs_[{i.block, i.segment, i.slice}];
  for (const auto* uses : {&i.reads, &i.writes}) {
    for (const Use& use : *uses) {
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
    case Op::backward_input: return [segment, frame] { segment->backward_input(*frame); };
    case Op::backward_weight: return [segment, frame] { segment->backward_weight(*frame); };
    default: return [segment, frame] { segment->forward(*frame); };
  }
}

Binder::Call Binder::sum(const Instruction& i) {
  const Tensor into = used(i.writes, "into"), from = c_.memory.tensor(i.reads[0].buffer);
  kernels::Add add{into.numel(), into.as<float>(), from.as<float>()};
  if (i.reads[0].role == "tied") {
    const model::PlacedParam& tied = layouts_[static_cast<size_t>(i.block)].params[static_cast<size_t>(i.level)];
    const model::TiedTo owner = model::find_tied(layouts_, tied.spec.tied_to);
    add = {tied.spec.shape.numel(), into.as<float>() + owner.param->offset, from.as<float>() + tied.offset};
  }
  return [this, add] { kernels_.add(add, launch_); };
}

Binder::Call Binder::fold_statistics(const Instruction& i) {
  const model::Segment* segment = &segment_of(i);
  return [segment, frame = this->frame(i)] { segment->fold_statistics(*frame); };
}

Binder::Call Binder::norm(const Instruction& i) {
  std::vector<kernels::SquareSums> passes;
  const Tensor sums = used(i.writes, "sums");
  int64_t done = 0;
  for (size_t b = 0; b < layouts_.size(); ++b) {
    if (chunk_counts_[b] == 0) continue;
    passes.push_back({used(i.reads, fmt::format("gradient.{}", b)).as<float>(),
                      used(i.reads, fmt::format("chunks.{}", b)).as<kernels::Chunk>(), chunk_counts_[b],
                      sums.as<double>() + done});
    done += chunk_counts_[b];
  }
  const kernels::NormFinish finish{.sums = sums.as<double>(), .chunk_count = done,
                                   .slice_losses = used(i.reads, "losses").as<double>(), .slices = c_.program.slices,
                                   .inputs = used(i.reads, "inputs").as<StepInputs>(),
                                   .state = used(i.writes, "state").as<StepState>(), .policy = c_.options.optimizer.policy};
  return [this, passes, finish] {
    for (const kernels::SquareSums& pass : passes) kernels_.square_sums(pass, launch_);
    kernels_.norm_finish(finish, launch_);
  };
}

Binder::Call Binder::update(const Instruction& i) {
  const optim::Optimizer& o = c_.options.optimizer;
  kernels::Update update{.rule = o.rule, .beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon,
                         .master = used(i.writes, "master").as<float>(), .gradient = used(i.reads, "gradient").as<float>(),
                         .m = used(i.writes, "moment.0").as<float>(),
                         .chunks = used(i.reads, "chunks").as<kernels::Chunk>(),
                         .chunk_count = chunk_counts_[static_cast<size_t>(i.block)],
                         .inputs = used(i.reads, "inputs").as<StepInputs>(), .state = used(i.reads, "state").as<StepState>()};
  if (o.moments > 1) update.v = used(i.writes, "moment.1").as<float>();
  if (c_.model.compute != device::DType::f32) {
    update.compute = used(i.writes, "compute").data;
    update.compute_type = c_.model.compute;
  }
  return [this, update] { kernels_.update(update, launch_); };
}

}  // namespace lockstep::run

#include "lockstep/run/executor/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/run/executor/owners.h"
#include "lockstep/run/executor/reduce.h"
#include "lockstep/run/executor/seam.h"

namespace lockstep::run {

using device::CopyKind;
using device::Tensor;
using kernels::StepInputs;
using kernels::StepState;
using program::Instruction;
using program::Lane;
using program::Pass;
using program::Role;
using program::Use;

void Staging::allocate(device::Device& device, const program::Program& program) {
  const auto slices = static_cast<int64_t>(program.own_slices.size());
  input_words_ = slices * program.input_words;
  label_words_ = slices * program.label_words;
  document_words_ = slices * program.document_words;
  offset_words_ = slices * program.offset_words;
  whole_document_words_ = slices * program.whole_document_words;
  reference_words_ = slices * program.reference_words;
  samples_ = program.samples_per_slice;
  rows_ = slices * samples_;
  parts_ = program.parts;
  for (Slot& slot : slots_) {
    slot.header = static_cast<StepInputs*>(device.allocate_host(sizeof(StepInputs)));
    slot.inputs = static_cast<int32_t*>(device.allocate_host(input_words_ * 4));
    slot.labels = static_cast<int32_t*>(device.allocate_host(label_words_ * 4));
    if (document_words_ > 0)
      slot.documents = static_cast<int32_t*>(device.allocate_host(document_words_ * 4));
    if (offset_words_ > 0) slot.offsets = static_cast<int32_t*>(device.allocate_host(offset_words_ * 4));
    if (whole_document_words_ > 0)
      slot.whole_documents = static_cast<int32_t*>(device.allocate_host(whole_document_words_ * 4));
    if (reference_words_ > 0)
      slot.references = static_cast<int32_t*>(device.allocate_host(reference_words_ * 4));
    slot.done = device.create_event();
  }
}

void Staging::free(device::Device& device) {
  for (Slot& slot : slots_) {
    device.free_host(slot.header);
    device.free_host(slot.inputs);
    device.free_host(slot.labels);
    if (slot.documents != nullptr) device.free_host(slot.documents);
    if (slot.offsets != nullptr) device.free_host(slot.offsets);
    if (slot.whole_documents != nullptr) device.free_host(slot.whole_documents);
    if (slot.references != nullptr) device.free_host(slot.references);
    device.destroy_event(slot.done);
  }
}

void Staging::fill(device::Device& device, const HostBatch& batch, const StepInputs& inputs) {
  current_ = 1 - current_;
  Slot& slot = slots_[current_];
  if (slot.busy) device.wait_for(slot.done);
  *slot.header = now_ = inputs;
  LS_ASSERT(static_cast<int64_t>(batch.inputs.size()) == input_words_ * parts_.context);
  LS_ASSERT(static_cast<int64_t>(batch.labels.size()) == label_words_ * parts_.context);
  pick(batch.inputs, slot.inputs, Whose::own);
  pick(batch.labels, slot.labels, Whose::own);
  pick_documents(batch.documents, slot);
  if (reference_words_ > 0) {
    LS_ASSERT(static_cast<int64_t>(batch.references.size_bytes()) == reference_words_ * 4);
    std::memcpy(slot.references, batch.references.data(), batch.references.size_bytes());
  }
}

void Staging::clear() {
  for (const Slot& slot : slots_) {
    *slot.header = {.valid_tokens = 1};
    std::fill_n(slot.inputs, input_words_, 0);
    std::fill_n(slot.labels, label_words_, 0);
    pick_documents(std::vector<int32_t>(static_cast<size_t>(document_words_ * parts_.context), 0), slot);
    if (reference_words_ > 0) std::fill_n(slot.references, reference_words_, 0);
  }
}

void Staging::pick_documents(std::span<const int32_t> begins, const Slot& slot) const {
  if (document_words_ == 0) return;
  LS_ASSERT(static_cast<int64_t>(begins.size()) == document_words_ * parts_.context);
  pick(begins, slot.documents, Whose::own);
  if (whole_document_words_ > 0) pick(begins, slot.whole_documents, Whose::all);
  if (offset_words_ > 0)
    find_offsets(whole_document_words_ > 0 ? slot.whole_documents : slot.documents, slot.offsets);
}

// Context ranks keep their part of every sample, in the order that model::SliceContext describes: runs of one
// slice are piece after piece, of each all front ones, then all back ones. All ranks' are in the order in
// which ranks that exchange heads get them.
void Staging::pick(std::span<const int32_t> from, int32_t* to, Whose whose) const {
  const bool whole_run = parts_.heads && !parts_.fixes_sequences();
  const bool as_given =
      (parts_.context == 1 && !parts_.fixes_sequences()) || (whole_run && whose == Whose::all);
  if (as_given || from.empty()) {
    std::copy(from.begin(), from.end(), to);
    return;
  }
  const int pieces = parts_.fixes_sequences() ? parts_.sequence_strands : parts_.context;
  const int own = pieces / parts_.context, runs = whole_run ? 1 : 2;  // of a piece of a sample
  const int here = whose == Whose::all ? pieces : own;
  const int first = whose == Whose::all ? 0 : parts_.context_rank * own;
  const int64_t samples = samples_ / (own * runs);  // of a slice
  const int64_t whole = static_cast<int64_t>(from.size()) / (rows_ / samples_ * samples);
  const int64_t length = whole / (pieces * runs);
  for (const int32_t* slice = from.data(); slice != from.data() + from.size(); slice += samples * whole) {
    for (int run = 0; run < here * runs; ++run) {
      const int piece = first + run / runs;
      const int chunk = run % runs == 0 ? piece : 2 * pieces - 1 - piece;
      for (int64_t sample = 0; sample < samples; ++sample)
        to = std::copy_n(slice + sample * whole + chunk * length, length, to);
    }
  }
}

// Rows of each slice where a sample or a document in it begins. ConfigError 271: more than kernels can take.
void Staging::find_offsets(const int32_t* begins, int32_t* offsets) const {
  const int64_t words = whole_document_words_ > 0 ? whole_document_words_ : document_words_;
  const int64_t slices = rows_ / samples_, rows = words / slices, length = rows / samples_;
  const int64_t places = offset_words_ / slices, most = samples_ * kernels::most_documents(length);
  for (int64_t slice = 0; slice < slices; ++slice, begins += rows, offsets += places) {
    int64_t found = 0;
    for (int64_t row = 0; row < rows; ++row) {
      if (row % length > 0 && begins[row] == begins[row - 1]) continue;
      if (found == most) {
        throw base::ConfigError(
            271,
            fmt::format("data.pack = true: a slice of samples of {} tokens has more than {} documents; set "
                        "data.pack=false",
                        length, most));
      }
      offsets[found++] = static_cast<int32_t>(row);
    }
    std::fill(offsets + found, offsets + places, static_cast<int32_t>(rows));
  }
}

void Staging::in_use(device::Device& device, device::Stream stream) {
  device.record(slots_[current_].done, stream);
  slots_[current_].busy = true;
}

Binder::Binder(BindContext context)
    : c_(std::move(context)),
      kernels_(kernels::kernels_for(c_.device.id().kind)),
      stream_(c_.streams.at(Lane::compute)) {
  launch_ = {.stream = stream_, .tf32 = c_.options.tf32};
  for (const model::Block& block : c_.model.blocks) layouts_.push_back(model::layout_of(block));
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const optim::Optimizer& o = c_.options.optimizer;
    const std::vector<kernels::Chunk> all = model::chunks_of(layouts_[b], o.weight_decay, o.decay_all);
    first_slot_.push_back(slots_);
    slots_ += layouts_[b].slots;
    parts_.emplace_back();
    if (c_.program.blocks[b].held()) fill_chunks(b, all);
  }
}

char* Binder::own(int buffer, int block) const {
  const Tensor flat = c_.memory.tensor(buffer);
  const bool all_of_it = c_.program.shards.empty() || c_.program.buffers[static_cast<size_t>(buffer)].sharded;
  return flat.as<char>() +
         (all_of_it ? 0 : c_.program.own_shard(block).values.begin * device::size_of(flat.dtype));
}

std::function<char*(int)> Binder::own_values(const Instruction& i) const {
  return [this, block = i.block](int buffer) { return own(buffer, block); };
}

Binder::Call Binder::bind(const Instruction& i) {
  const kernels::Launch lane{.stream = c_.streams.at(i.lane)};
  return std::visit(program::Cases{
                        [&](const program::BeginStep&) { return begin_step(i); },
                        [&](const program::LoadSlice&) { return load(i); },
                        [&](const program::RunSegment& run) { return segment(i, run); },
                        [&](const program::FoldStatistics&) { return fold_statistics(i); },
                        [&](const program::SumValues& what) { return SeamBinder(c_, i).bind(what); },
                        [&](const program::GatherTokens& what) { return SeamBinder(c_, i).bind(what); },
                        [&](const program::ScatterTokens& what) { return SeamBinder(c_, i).bind(what); },
                        [&](const program::ExchangeHeads& what) { return SeamBinder(c_, i).bind(what); },
                        [&](const program::ShiftRing& what) { return SeamBinder(c_, i).bind(what); },
                        [&](const program::AddEdges&) { return add_edges(i); },
                        [&](const program::SendValues&) { return bind_send(c_, i); },
                        [&](const program::RecvValues&) { return bind_recv(c_, i); },
                        [&](const program::SendTied& tied) { return bind_send_tied(c_, layouts_, i, tied); },
                        [&](const program::RecvTied&) { return bind_recv(c_, i); },
                        [&](const program::SendWeights&) { return bind_send(c_, i); },
                        [&](const program::RecvWeights&) { return bind_recv(c_, i); },
                        [&](const program::GatherWeights&) { return bind_gather_weights(c_, i, lane); },
                        [&](const program::ReleaseWeights&) { return Call([] {}); },  // placement knows
                        [&](const program::DequantizeWeights&) { return dequantize(i); },
                        [&](const program::JoinStrands&) { return join_strands(i); },
                        [&](const program::SumPartials&) { return bind_sum_partials(c_, layouts_, i, lane); },
                        [&](const program::ReduceGradients& what) { return bind_reduce(c_, i, what, lane); },
                        [&](const program::GatherSums&) { return bind_gather_sums(c_, i, lane); },
                        [&](const program::AddTied& tied) { return add_tied(i, tied); },
                        [&](const program::SumInputs&) { return bind_sum_inputs(c_, i, lane); },
                        [&](const program::SumScalars&) { return bind_sum_scalars(c_, i, lane); },
                        [&](const program::GatherStatistics&) { return bind_gather_statistics(c_, i, lane); },
                        [&](const program::Norm& norm) { return this->norm(i, norm); },
                        [&](const program::ToOwners&) {
                          return bind_to_owners(c_, layouts_[static_cast<size_t>(i.block)], i, own_values(i));
                        },
                        [&](const program::Update& what) { return update(i, what); },
                        [&](const program::FromOwners&) {
                          return bind_from_owners(c_, layouts_[static_cast<size_t>(i.block)], i,
                                                  own_values(i));
                        },
                    },
                    i.what);
}

Tensor Binder::used(const std::vector<Use>& uses, Role role, int block) const {
  for (const Use& use : uses) {
    if (use.role == role && use.block == block) return c_.memory.tensor(use.buffer);
  }
  LS_ASSERT(false, std::string("no ") + name_of(role));
  return {};
}

// The host's numbers of the step.
Binder::Call Binder::begin_step(const Instruction& i) {
  const Tensor inputs = used(i.writes, Role::inputs);
  std::vector<Tensor> zeros;
  for (const Use& use : i.writes) {
    if (use.role == Role::losses || use.role == Role::zeros) zeros.push_back(c_.memory.tensor(use.buffer));
  }
  return [this, inputs, zeros] {
    c_.device.copy(inputs.data, c_.staging.inputs(), sizeof(StepInputs), CopyKind::host_to_device, stream_);
    for (const Tensor& values : zeros) c_.device.fill_zero(values.data, values.bytes(), stream_);
  };
}

Binder::Call Binder::load(const Instruction& i) {
  std::vector<std::pair<Tensor, std::string>> fields;
  for (const Use& use : i.writes) fields.emplace_back(c_.memory.tensor(use.buffer), use.name);
  const std::vector<int64_t>& own = c_.program.own_slices;
  const int64_t slice = std::find(own.begin(), own.end(), i.slice) - own.begin();
  return [this, fields, slice] {
    for (const auto& [to, field] : fields) {
      c_.device.copy(to.data, c_.staging.words(field) + slice * to.numel(), to.bytes(),
                     CopyKind::host_to_device, stream_);
    }
  };
}

// A parameter inside its block's flat buffer. A tied weight is read where its owner keeps it; its gradient
// has a slot of its own in this block.
Tensor Binder::parameter(const Instruction& i, const Use& use) const {
  const auto block = static_cast<size_t>(i.block);
  const model::PlacedParam& own = layouts_[block].find(segment_of(i).name() + "." + use.name);
  int64_t offset = own.offset;
  if (use.role == Role::weight && model::stored_as(own.spec) == model::Stored::quantized) {
    offset = own.offset_in_segment;  // in what was dequantized for this segment
  } else if (use.role == Role::weight && !own.spec.tied_to.empty()) {
    offset = model::find_tied(layouts_, own.spec).param->offset;
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
  const model::Parts& parts = c_.program.parts;
  frame->slice = {.slice = static_cast<uint32_t>(slice),
                  .samples = c_.program.samples_per_slice,
                  .seq_len = c_.program.seq_len,
                  .context = parts.fixes_sequences() ? parts.sequence_strands : parts.context,
                  .context_rank = parts.fixes_sequences() ? parts.first_piece() : parts.context_rank,
                  .ring = parts.fixes_sequences() || (parts.context > 1 && !parts.heads),
                  .training = c_.program.training};
  frame->device = &c_.device;
  const program::RunSegment* run = i.get<program::RunSegment>();  // null: FoldStatistics
  frame->part = run != nullptr ? run->part : -1;
  frame->last_part = run == nullptr || run->last_part;
  frame->accumulate = run != nullptr && run->accumulate;
  frame->input_gradient = run == nullptr || run->input_gradient;
  for (const model::ParamSpec& spec :
       c_.model.blocks[static_cast<size_t>(i.block)].params_of(static_cast<size_t>(i.segment))) {
    if (spec.train.frozen) frame->freeze(spec.key);
  }
  frame->slices = c_.program.slices;
  frame->inputs = c_.memory.find("step inputs").as<StepInputs>();
  frame->state = c_.memory.find("step state").as<StepState>();
  frame->on_host = c_.staging.now();
  // Tensor ranks compute the same losses; those of the first count.
  const bool counts = parts.tensor_rank == 0;
  const auto slices = static_cast<size_t>(c_.program.slices), place = counts ? slice : slices;
  auto* losses = c_.memory.find("slice losses").as<double>();
  frame->loss =
      losses + place * static_cast<size_t>(parts.sequence_strands) + static_cast<size_t>(parts.first_piece());
  if (c_.model.pairs)
    frame->sequences = losses + slices + 1 + place * static_cast<size_t>(c_.program.samples_per_slice);
  if (run != nullptr && run->keeps_tape) frame->graph = &graphs_[{i.block, i.segment, i.slice}];
  for (const auto* uses : {&i.reads, &i.writes}) {
    for (const Use& use : *uses) {
      if (use.role == Role::workspace) {
        const Tensor workspace = c_.memory.tensor(use.buffer);
        frame->launch.workspace = workspace.data;
        frame->launch.workspace_bytes = workspace.bytes();
        continue;
      }
      const bool of_parameter = use.role == Role::weight || use.role == Role::grad;
      frame->bind(text_of(use), of_parameter ? parameter(i, use) : c_.memory.tensor(use.buffer));
    }
  }
  return frame;
}

Binder::Call Binder::segment(const Instruction& i, const program::RunSegment& run) {
  const model::Segment* segment = &segment_of(i);
  const std::shared_ptr<model::Frame> frame = this->frame(i);
  switch (run.pass) {
    case Pass::backward_input:
      return [segment, frame] { segment->backward_input(*frame); };
    case Pass::backward_weight:
      return [segment, frame] { segment->backward_weight(*frame); };
    case Pass::prepare:
      return [segment, frame] { segment->prepare(*frame); };
    case Pass::forward:
    case Pass::loss:
    case Pass::recompute:
      break;
  }
  return [segment, frame] { segment->forward(*frame); };
}

// A segment's weights one by one: where each is kept, it has blocks of its own.
Binder::Call Binder::dequantize(const Instruction& i) {
  const model::BlockLayout& layout = layouts_[static_cast<size_t>(i.block)];
  const Tensor from = c_.memory.tensor(i.reads[0].buffer), to = c_.memory.tensor(i.writes[0].buffer);
  const std::string segment = segment_of(i).name() + ".";
  std::vector<kernels::Dequantize> calls;
  for (const model::PlacedParam& param : layout.params) {
    if (!param.spec.key.starts_with(segment) || model::stored_as(param.spec) != model::Stored::quantized)
      continue;
    calls.push_back({.format = layout.format,
                     .count = param.spec.shape.numel(),
                     .blocks = from.as<char>() + kernels::quantized_bytes(layout.format, param.offset),
                     .type = to.dtype,
                     .values = to.as<char>() + param.offset_in_segment * device::size_of(to.dtype)});
  }
  return [this, calls] {
    for (const kernels::Dequantize& call : calls) kernels_.dequantize(call, launch_);
  };
}

Binder::Call Binder::add_edges(const Instruction& i) {
  const Tensor a = c_.memory.tensor(i.reads[0].buffer), b = c_.memory.tensor(i.reads[1].buffer);
  const Tensor sum = c_.memory.tensor(i.writes[0].buffer);
  const kernels::AddEdges add{sum.dtype, sum.numel(), a.data, b.data, sum.data};
  return [this, add] { kernels_.add_edges(add, launch_); };
}

Binder::Call Binder::join_strands(const Instruction& i) {
  const Tensor into = used(i.writes, Role::into), from = used(i.reads, Role::from);
  const kernels::Add add{into.numel(), into.as<float>(), from.as<float>()};
  return [this, add] { kernels_.add(add, launch_); };
}

// The tied slot onto the gradient of the parameter that holds the values; where gradients are sharded,
// this rank's elements of both.
Binder::Call Binder::add_tied(const Instruction& i, const program::AddTied& tied) {
  const Tensor into = used(i.writes, Role::into), from = used(i.reads, Role::tied);
  const kernels::Add add = this->tied(i, tied.param, into, from);
  return [this, add] { kernels_.add(add, launch_); };
}

kernels::Add Binder::tied(const Instruction& i, int param, const Tensor& into, const Tensor& from) const {
  const std::vector<model::PlacedParam>& params = layouts_[static_cast<size_t>(i.block)].params;
  const model::PlacedParam& slot = params[static_cast<size_t>(param)];
  const model::TiedTo owner = model::find_tied(layouts_, slot.spec);
  const bool received = !c_.program.blocks[static_cast<size_t>(i.block)].held();  // the slot alone
  if (c_.program.shards.empty()) {
    return {slot.spec.shape.numel(), into.as<float>() + owner.param->offset,
            from.as<float>() + (received ? 0 : slot.offset)};
  }
  const size_t k = program::tied_slot(layouts_[static_cast<size_t>(i.block)], param);
  const program::Shard &mine = c_.program.own_shard(i.block), &theirs = c_.program.own_shard(owner.block);
  const program::Span span = mine.gradients[k];
  const int64_t at = owner.param->offset + span.begin - slot.offset;  // in the owner's values
  const bool shares = c_.program.ranks.round_robin();
  return {span.count, into.as<float>() + (shares ? at - theirs.values.begin : at),
          from.as<float>() + (received ? 0
                              : shares ? mine.offsets[k]
                                       : span.begin)};
}

Binder::Call Binder::fold_statistics(const Instruction& i) {
  const model::Segment* segment = &segment_of(i);
  return [segment, frame = this->frame(i)] { segment->fold_statistics(*frame); };
}

Binder::Call Binder::norm(const Instruction& i, const program::Norm& norm) {
  std::vector<kernels::SquareSums> passes;
  const Tensor sums = c_.memory.find("square sums");
  for (size_t b = 0; b < layouts_.size() && norm.part != program::Norm::Part::finish; ++b) {
    const int block = static_cast<int>(b);
    for (const OwnPart& part : parts_[b]) {
      if (part.chunks == 0) continue;
      const Use& gradient = *std::find_if(i.reads.begin(), i.reads.end(), [&](const Use& use) {
        return use.role == Role::gradient && use.block == block;
      });
      passes.push_back({reinterpret_cast<float*>(own(gradient.buffer, block)) + part.offset,
                        used(i.reads, Role::chunks, block).as<kernels::Chunk>() + part.first_chunk,
                        part.chunks, sums.as<double>() + first_slot_[b]});
    }
  }
  if (norm.part == program::Norm::Part::squares) {  // the others' are zero
    return [this, passes, sums] {
      c_.device.fill_zero(sums.data, sums.bytes(), stream_);
      for (const kernels::SquareSums& pass : passes) kernels_.square_sums(pass, launch_);
    };
  }
  const kernels::NormFinish finish{.sums = sums.as<double>(),
                                   .chunk_count = slots_,
                                   .slice_losses = used(i.reads, Role::losses).as<double>(),
                                   .slices = c_.program.losses(),
                                   .inputs = used(i.reads, Role::inputs).as<StepInputs>(),
                                   .state = used(i.writes, Role::state).as<StepState>(),
                                   .policy = c_.options.optimizer.policy};
  return [this, passes, finish] {
    for (const kernels::SquareSums& pass : passes) kernels_.square_sums(pass, launch_);
    kernels_.norm_finish(finish, launch_);
  };
}

}  // namespace lockstep::run

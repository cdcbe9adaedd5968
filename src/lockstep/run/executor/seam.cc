#include "lockstep/run/executor/seam.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/device/alignment.h"
#include "lockstep/program/shards.h"

namespace lockstep::run {

using device::Tensor;
using program::Instruction;
using program::Use;

namespace {

using Call = std::function<void()>;

Tensor part_of(const Tensor& whole, int64_t part, int64_t parts) {
  LS_ASSERT(whole.shape[0] % parts == 0, "rows that the ranks do not divide");
  const int64_t rows = whole.shape[0] / parts, width = whole.shape.numel() / whole.shape[0];
  return {whole.as<char>() + part * rows * width * device::size_of(whole.dtype), whole.dtype, {rows, width}};
}

std::vector<Tensor> parts_of(const Tensor& whole, int parts) {
  std::vector<Tensor> all;
  for (int q = 0; q < parts; ++q) all.push_back(part_of(whole, q, parts));
  return all;
}

Call bind_gather_tokens(comm::Group& group, device::Device& device, const Tensor& part, const Tensor& whole,
                        device::Stream stream) {
  const std::vector<Tensor> parts = parts_of(whole, group.size());
  const Tensor own = parts[static_cast<size_t>(group.rank())];
  return [&group, &device, part, parts, own, stream] {
    device.copy(own.data, part.data, part.bytes(), device::CopyKind::device_to_device, stream);
    group.all_gather(parts, stream);
  };
}

Call bind_scatter_tokens(comm::Group& group, const Tensor& whole, const Tensor& part, device::Stream stream) {
  const std::vector<Tensor> parts = parts_of(whole, group.size());
  return [&group, parts, part, stream] { group.reduce_scatter(parts, part, stream); };
}

// In a ring: to the neighbour, and from the other one.
Call bind_shift(comm::Group& group, const Tensor& from, const Tensor& to, bool onward,
                device::Stream stream) {
  const int size = group.size(), self = group.rank();
  const int next = (self + (onward ? 1 : size - 1)) % size, before = (self + (onward ? size - 1 : 1)) % size;
  std::vector<Tensor> send(static_cast<size_t>(size), Tensor{nullptr, from.dtype, {0}}), recv = send;
  send[static_cast<size_t>(next)] = from;
  recv[static_cast<size_t>(before)] = to;
  return [&group, send, recv, stream] { group.all_to_all(send, recv, stream); };
}

// Between "all columns of some tokens" and "all tokens of some columns". A row of qkv is q, k and v side by
// side, and each of the three is dealt out by heads; other edges are one group of columns.
class Exchange {
 public:
  Exchange(comm::Group& group, device::Device& device, const program::Program& program,
           std::vector<int64_t> columns, const Tensor& tokens, const Tensor& heads, device::Stream stream)
      : group_(group),
        device_(device),
        stream_(stream),
        samples_(program.parts.fixes_sequences() ? 1 : program.samples_per_slice),  // pieces: rank after rank
        length_(program.seq_len * program.samples_per_slice / samples_),
        columns_(std::move(columns)),
        tokens_(tokens),
        heads_(heads) {}

  void to_heads(const Tensor& packed, const Tensor& arrived) const {
    pack(tokens_, packed, true);
    group_.all_to_all(parts_of(packed, group_.size()), parts_of(arrived, group_.size()), stream_);
    for (int64_t q = 0; q < group_.size(); ++q) {  // rank q's tokens stand at its place of every sequence
      const Tensor part = part_of(arrived, q, group_.size());
      rows(heads_.as<char>() + q * length_ * heads_row(), length_ * group_.size() * heads_row(),
           part.as<char>(), length_ * heads_row());
    }
  }

  void to_tokens(const Tensor& packed, const Tensor& arrived) const {
    for (int64_t q = 0; q < group_.size(); ++q) {
      const Tensor part = part_of(packed, q, group_.size());
      rows(part.as<char>(), length_ * heads_row(), heads_.as<char>() + q * length_ * heads_row(),
           length_ * group_.size() * heads_row());
    }
    group_.all_to_all(parts_of(packed, group_.size()), parts_of(arrived, group_.size()), stream_);
    pack(tokens_, arrived, false);
  }

 private:
  int64_t element() const { return device::size_of(tokens_.dtype); }
  int64_t heads_row() const { return heads_.shape[1] * element(); }
  // One run of a sequence for each sample.
  void rows(char* to, int64_t to_pitch, const char* from, int64_t from_pitch) const {
    device_.copy_rows(to, to_pitch, from, from_pitch, length_ * heads_row(), samples_, stream_);
  }
  // Columns of rank q between this rank's tokens and its part of `packed`.
  void pack(const Tensor& tokens, const Tensor& packed, bool out) const {
    const int64_t row = tokens.shape[1] * element();
    for (int64_t q = 0; q < group_.size(); ++q) {
      char* part = part_of(packed, q, group_.size()).as<char>();
      int64_t group_begin = 0, at = 0;
      for (const int64_t columns : columns_) {
        const int64_t width = columns / group_.size() * element();
        char* here = tokens.as<char>() + group_begin * element() + q * width;
        if (out) {
          device_.copy_rows(part + at, heads_row(), here, row, width, tokens.shape[0], stream_);
        } else {
          device_.copy_rows(here, row, part + at, heads_row(), width, tokens.shape[0], stream_);
        }
        group_begin += columns;
        at += width;
      }
    }
  }

  comm::Group& group_;
  device::Device& device_;
  device::Stream stream_;
  int64_t samples_, length_;
  std::vector<int64_t> columns_;  // of each group
  Tensor tokens_, heads_;
};

std::vector<Tensor> spans_of(const Tensor& whole, const std::vector<program::Span>& spans) {
  std::vector<Tensor> all;
  for (const program::Span& span : spans)
    all.push_back({whole.as<char>() + span.begin * device::size_of(whole.dtype), whole.dtype, {span.count}});
  return all;
}

// Every rank's addends of this rank's share come in, and are summed over the tree into `to`.
Call bind_tree(const BindContext& c, const Instruction& i, comm::Group& group,
               const std::vector<Tensor>& shares, const Tensor& to) {
  const auto staging = std::find_if(i.writes.begin(), i.writes.end(),
                                    [](const Use& use) { return use.role == program::Role::staging; });
  const std::vector<Tensor> arrived = staged_addends(c.memory.tensor(staging->buffer),
                                                     shares[static_cast<size_t>(group.rank())], group.size());
  const kernels::SumAddends sum =
      sum_of_addends(arrived, shares[static_cast<size_t>(group.rank())], group.rank(), to);
  const kernels::Launch launch{.stream = c.streams.at(i.lane)};
  const kernels::Kernels& kernels = kernels::kernels_for(c.device.id().kind);
  std::vector<Tensor> sent = shares, received = arrived;
  sent[static_cast<size_t>(group.rank())].shape = received[static_cast<size_t>(group.rank())].shape = {0};
  return [&group, &kernels, sent, received, sum, launch] {
    group.all_to_all(sent, received, launch.stream);
    kernels.sum_addends(sum, launch);
  };
}

}  // namespace

std::vector<Tensor> staged_addends(const Tensor& staging, const Tensor& like, int ranks) {
  const int64_t stride = base::round_up(like.bytes(), device::kAlignment);
  LS_ASSERT(stride * ranks <= staging.bytes(), "staging too small for the ranks' addends");
  std::vector<Tensor> all;
  for (int q = 0; q < ranks; ++q) all.push_back({staging.as<char>() + q * stride, like.dtype, like.shape});
  return all;
}

kernels::SumAddends sum_of_addends(const std::vector<Tensor>& arrived, const Tensor& own, int self,
                                   const Tensor& to) {
  kernels::SumAddends sum{.in = own.dtype,
                          .out = to.dtype,
                          .count = own.numel(),
                          .inputs = static_cast<int>(arrived.size()),
                          .to = to.data};
  for (size_t q = 0; q < arrived.size(); ++q)
    sum.from[q] = static_cast<int>(q) == self ? own.data : arrived[q].data;
  return sum;
}

SeamBinder::SeamBinder(const BindContext& context, const Instruction& i)
    : c_(context),
      i_(i),
      stream_(context.streams.at(i.lane)),
      group_(context.options.ranks->group(i.among, i.lane)),
      from_(context.memory.tensor(i.reads[0].buffer)),
      to_(context.memory.tensor(i.writes[0].buffer)) {}

Call SeamBinder::bind(const program::SumValues& sum) const {
  if (sum.tree) {
    const std::vector<program::Span> shares = program::cut_evenly(from_.numel(), group_.size());
    const std::vector<Tensor> to = spans_of(to_, shares);
    const Call add =
        bind_tree(c_, i_, group_, spans_of(from_, shares), to[static_cast<size_t>(group_.rank())]);
    return [add, &group = group_, to, stream = stream_] {
      add();
      group.all_gather(to, stream);
    };
  }
  return [&group = group_, from = from_, stream = stream_] { group.all_reduce(from, stream); };
}

Call SeamBinder::bind(const program::GatherTokens& gather) const {
  return each_piece(gather.pieces, [&](const Tensor& part, const Tensor& whole) {
    return bind_gather_tokens(group_, c_.device, part, whole, stream_);
  });
}

Call SeamBinder::bind(const program::ScatterTokens& scatter) const {
  return each_piece(scatter.pieces, [&](const Tensor& whole, const Tensor& part) {
    if (scatter.tree) return bind_tree(c_, i_, group_, parts_of(whole, group_.size()), part);
    return bind_scatter_tokens(group_, whole, part, stream_);
  });
}

Call SeamBinder::each_piece(int pieces, const std::function<Call(const Tensor&, const Tensor&)>& bind) const {
  if (pieces == 1) return bind(from_, to_);
  std::vector<Call> calls;
  for (int k = 0; k < pieces; ++k) calls.push_back(bind(part_of(from_, k, pieces), part_of(to_, k, pieces)));
  return [calls] {
    for (const Call& call : calls) call();
  };
}

Call SeamBinder::bind(const program::ShiftRing& ring) const {
  return bind_shift(group_, from_, to_, ring.onward, stream_);
}

Call SeamBinder::bind(const program::ExchangeHeads& exchange_heads) const {
  const bool to_heads = exchange_heads.to_heads;
  const BindContext& c = c_;
  const Instruction& i = i_;
  const Tensor from = from_, to = to_;
  const Tensor packed = c.memory.tensor(i.writes[1].buffer), arrived = c.memory.tensor(i.writes[2].buffer);
  const auto& segment =
      c.model.blocks[static_cast<size_t>(i.block)].segments()[static_cast<size_t>(i.segment)];
  const Tensor tokens = to_heads ? from : to;
  std::vector<int64_t> columns = segment->column_groups();
  if (columns.empty()) columns = {tokens.shape[1]};
  const auto exchange =
      std::make_shared<Exchange>(group_, c.device, c.program, columns, tokens, to_heads ? to : from, stream_);
  if (to_heads) return [exchange, packed, arrived] { exchange->to_heads(packed, arrived); };
  return [exchange, packed, arrived] { exchange->to_tokens(packed, arrived); };
}

namespace {

Call send_all(const BindContext& c, const Instruction& i, std::vector<Tensor> values) {
  comm::Group& group = c.options.ranks->group(i.among, i.lane);
  return [&group, values = std::move(values), stream = c.streams.at(i.lane)] {
    for (const Tensor& value : values) group.send(value, 1 - group.rank(), stream);
  };
}

// This rank's elements of a tied slot that another stage adds.
Tensor tied_values(const BindContext& c, const std::vector<model::BlockLayout>& layouts, const Instruction& i,
                   int param) {
  const Tensor gradient = c.memory.tensor(i.reads[0].buffer);
  const auto block = static_cast<size_t>(i.block);
  const model::PlacedParam& slot = layouts[block].params[static_cast<size_t>(param)];
  program::Span span{slot.offset, slot.spec.shape.numel()};
  if (!c.program.shards.empty()) {
    const size_t k = program::tied_slot(layouts[block], param);
    const program::Shard& shard = c.program.own_shard(i.block);
    span = shard.gradients[k];
    if (c.program.ranks.round_robin()) span.begin = shard.offsets[k];
  }
  return {gradient.as<float>() + span.begin, device::DType::f32, {span.count}};
}

}  // namespace

Call bind_send(const BindContext& c, const Instruction& i) {
  std::vector<Tensor> values;
  for (const Use& use : i.reads) values.push_back(c.memory.tensor(use.buffer));
  return send_all(c, i, std::move(values));
}

Call bind_send_tied(const BindContext& c, const std::vector<model::BlockLayout>& layouts,
                    const Instruction& i, const program::SendTied& tied) {
  return send_all(c, i, {tied_values(c, layouts, i, tied.param)});
}

Call bind_recv(const BindContext& c, const Instruction& i) {
  comm::Group& group = c.options.ranks->group(i.among, i.lane);
  std::vector<Tensor> values;
  for (const Use& use : i.writes) values.push_back(c.memory.tensor(use.buffer));
  return [&group, values, stream = c.streams.at(i.lane)] {
    for (const Tensor& value : values) group.recv(value, 1 - group.rank(), stream);
  };
}

}  // namespace lockstep::run

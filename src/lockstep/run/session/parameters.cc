#include "lockstep/run/session/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>

#include "lockstep/base/hash.h"
#include "lockstep/base/philox.h"
#include "lockstep/base/round.h"
#include "lockstep/checkpoint/formats/widen.h"
#include "lockstep/checkpoint/params_hash.h"
#include "lockstep/kernels/optimizer/step_state.h"
#include "lockstep/run/executor/reduce.h"

namespace lockstep::run {

using device::CopyKind;
using device::DType;
using device::Tensor;

namespace {

// The order of a tensor in checkpoints: by block, then as the block lists them (parameters_hash.cc knows it
// too).
int64_t order_of(size_t block, size_t index) { return static_cast<int64_t>(block << 32 | index); }

checkpoint::Piece piece_of(const std::string& name, const device::Shape& whole, const model::Cut& cut,
                           const Parameters::Held& held) {
  const bool quantized = held.format != kernels::Quantized::none;
  checkpoint::Piece piece =
      checkpoint::whole_piece({name, quantized ? DType::f32 : held.values.dtype, whole});
  if (cut.pads()) {
    const int64_t begin = cut.part * model::rows_of_part(cut.rows, cut.parts);
    checkpoint::cut_rows(piece, std::min(begin, cut.rows), model::true_rows(cut.rows, cut.part, cut.parts));
  } else if (cut.cuts() && !cut.sizes.empty()) {
    checkpoint::cut_groups(piece, cut.dim, cut.part, cut.parts, cut.sizes);
  } else if (cut.cuts()) {
    checkpoint::cut(piece, cut.dim, cut.part, cut.parts, cut.groups);
  }
  return checkpoint::part_of(piece, held.first, held.count());
}

// Without the padding of a vocabulary, which lies behind its last row.
Parameters::Held unpadded(Parameters::Held held, const device::Shape& whole, const model::Cut& cut) {
  if (!cut.pads()) return held;
  const int64_t row = whole.numel() / cut.rows, end = model::true_rows(cut.rows, cut.part, cut.parts) * row;
  const int64_t count = std::clamp<int64_t>(end - held.first, 0, held.values.numel());
  if (count == 0) held.first = 0;
  held.values.shape = {count};
  return held;
}

// Between -bound and bound, each a function of (seed, stream, element) alone. Adapters are small: drawn here.
std::vector<float> uniform_values(float bound, uint64_t seed, uint64_t stream, int64_t first, int64_t count) {
  constexpr uint64_t kUniform = 0x756E69666F726D;  // draws of another kind than the normal ones
  const uint64_t key = base::mix64(base::mix64(seed) ^ stream);
  std::vector<float> values(static_cast<size_t>(count));
  base::Random4 random{};
  for (int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<uint64_t>(first + i);
    if (i == 0 || number % 4 == 0) random = base::philox(key, number / 4, kUniform);
    const uint32_t words[] = {random.x, random.y, random.z, random.w};
    values[static_cast<size_t>(i)] = bound * (2 * base::unit_float(words[number % 4]) - 1);
  }
  return values;
}

}  // namespace

Parameters::Parameters(const model::Model& model, const program::Program& program, const Memory& memory,
                       device::Device& device, const Ranks& ranks)
    : model_(model),
      program_(program),
      memory_(memory),
      device_(device),
      kernels_(kernels::kernels_for(device.id().kind)),
      ranks_(ranks) {
  for (const model::Block& block : model.blocks) {
    layouts_.push_back(model::layout_of(block));
    first_chunk_.emplace_back();
    std::set<std::string> seen;  // of several parts of a parameter, the first speaks for the whole
    for (const model::ParamSpec& spec : block.params()) {
      if (!seen.insert(spec.name).second) continue;
      first_chunk_.back().push_back(chunk_count_);
      if (spec.holds_values())
        chunk_count_ += base::divide_up(whole_shape(spec.cut, spec.shape).numel(), kernels::kChunk);
    }
  }
}

void Parameters::initialize(uint64_t seed, float loss_scale) {
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const program::BlockBuffers& keep = program_.blocks[b];
    if (!keep.held()) continue;
    std::vector<int> zeroed{keep.master};
    if (keep.frozen >= 0) zeroed.push_back(keep.frozen);
    if (keep.quantized >= 0) zeroed.push_back(keep.quantized);
    for (const program::StateBuffer& state : keep.state) zeroed.push_back(state.buffer);
    for (const int buffer : zeroed) {
      const Tensor t = memory_.tensor(buffer);
      if (t.bytes() == 0) continue;
      if (program_.buffers[static_cast<size_t>(buffer)].host) {
        std::memset(t.data, 0, static_cast<size_t>(t.bytes()));
      } else {
        device_.fill_zero(t.data, t.bytes(), nullptr);
      }
    }
    for (const model::PlacedParam& param : layouts_[b].params) {
      if (param.spec.holds_values()) fill(held(param, static_cast<int>(b)), param.spec, seed);
    }
  }
  fill_tables(Tables::all, model_.seq_len);
  kernels::StepState start;
  start.loss_scale = loss_scale;
  write(state(), &start);
  refresh_compute();
  device_.synchronize(nullptr);
}

// Drawn in fp32. What is kept in another type is rounded as products' copies are, some of it at a time, in
// the memory that steps will use: a model that fits is made, however large its largest tensor.
void Parameters::fill(const Held& held, const model::ParamSpec& spec, uint64_t seed) const {
  const device::Shape whole = whole_shape(spec.cut, spec.shape);
  const Held real = unpadded(held, whole, spec.cut);
  const int64_t count = real.count();
  if (count == 0) return;
  const std::vector<checkpoint::Run> runs = checkpoint::runs_of(piece_of(spec.name, whole, spec.cut, real));
  if (real.values.dtype == DType::f32)
    return draw({runs, 0, count}, spec, seed, real.values.as<float>());  // not quantized: those are bytes
  constexpr int64_t kAtOnce = int64_t{1} << 22;                          // a multiple of quantized blocks
  const int64_t each = std::min(count, kAtOnce);
  const Tensor lent = memory_.between_steps();
  const bool borrows = lent.bytes() >= each * 4;
  auto* const drawn = borrows ? lent.as<float>() : static_cast<float*>(device_.allocate(each * 4));
  for (int64_t begin = 0; begin < count; begin += each) {
    const int64_t some = std::min(each, count - begin);
    draw({runs, begin, some}, spec, seed, drawn);
    round_into(real, begin, some, drawn);
  }
  if (!borrows) device_.free(drawn);
}

// The first values of some elements of what this rank holds.
void Parameters::draw(const Drawn& of, const model::ParamSpec& spec, uint64_t seed, float* to) const {
  using Kind = model::Init::Kind;
  if (spec.init.kind == Kind::zeros || spec.init.kind == Kind::ones)
    return kernels_.fill_value({of.count, to, spec.init.kind == Kind::ones ? 1.0f : 0.0f}, {});
  for (const checkpoint::Run& run : of.runs) {
    const program::Span part = program::intersect({run.from, run.count}, {of.begin, of.count});
    if (part.count == 0) continue;
    const int64_t at = run.at + part.begin - run.from;
    float* const values = to + part.begin - of.begin;
    if (spec.init.kind == Kind::uniform) {
      const std::vector<float> host =
          uniform_values(spec.init.deviation, seed, base::hash_text(spec.name), at, part.count);
      write({values, DType::f32, {part.count}}, host.data());
    } else if (spec.init.kind == Kind::given) {
      write({values, DType::f32, {part.count}}, spec.init.values + at);
    } else {
      kernels_.fill_normal({part.count, values, 0, spec.init.deviation, seed, base::hash_text(spec.name), at},
                           {});
    }
  }
}

void Parameters::round_into(const Held& held, int64_t begin, int64_t count, const float* drawn) const {
  char* const to = held.values.as<char>();
  if (held.format == kernels::Quantized::none) {
    kernels_.cast(
        {DType::f32, held.values.dtype, count, drawn, to + begin * device::size_of(held.values.dtype)}, {});
    return device_.synchronize(nullptr);
  }
  std::vector<float> host(static_cast<size_t>(count));
  device_.copy(host.data(), drawn, count * 4, CopyKind::device_to_host, nullptr);
  device_.synchronize(nullptr);
  std::vector<char> blocks(static_cast<size_t>(kernels::quantized_bytes(held.format, count)));
  kernels::quantize(held.format, host.data(), count, blocks.data());
  write({to + kernels::quantized_bytes(held.format, begin), DType::u8, {static_cast<int64_t>(blocks.size())}},
        blocks.data());
}

// Of a flat buffer that holds these elements of the block.
Parameters::Held Parameters::held_of(const Tensor& flat, const program::Span& holds, bool sharded,
                                     const model::PlacedParam& param, kernels::Quantized format) const {
  const program::Span mine = program::intersect(holds, {param.offset, param.spec.shape.numel()});
  if (mine.count == 0) return {.sharded = sharded, .values = {nullptr, flat.dtype, {0}}, .format = format};
  if (format != kernels::Quantized::none) {
    char* const blocks = flat.as<char>() + kernels::quantized_bytes(format, mine.begin - holds.begin);
    return {.sharded = sharded,
            .first = mine.begin - param.offset,
            .values = {blocks, flat.dtype, {kernels::quantized_bytes(format, mine.count)}},
            .format = format,
            .elements = mine.count};
  }
  char* const data = flat.as<char>() + (mine.begin - holds.begin) * device::size_of(flat.dtype);
  return {.sharded = sharded, .first = mine.begin - param.offset, .values = {data, flat.dtype, {mine.count}}};
}

Parameters::Held Parameters::held(const model::PlacedParam& param, int block) const {
  const program::BlockBuffers& keep = program_.blocks[static_cast<size_t>(block)];
  const model::Stored stored = model::stored_as(param.spec);
  const int buffer = keep.stored(stored);
  const bool sharded = program_.buffers[static_cast<size_t>(buffer)].sharded;
  const Tensor flat = memory_.tensor(buffer);
  const program::Span holds = sharded ? program_.own_shard(block).kept(stored).span
                                      : program::Span{0, layouts_[static_cast<size_t>(block)].count(stored)};
  return held_of(flat, holds, sharded, param, param.spec.train.format);
}

Parameters::Held Parameters::held(const program::StateBuffer& state, const model::PlacedParam& param) const {
  const bool sharded = program_.buffers[static_cast<size_t>(state.buffer)].sharded;
  const Tensor flat = memory_.tensor(state.buffer);
  if (state.param >= 0) {
    return {
        .sharded = sharded, .of_owner = state.of_owner, .values = {flat.data, flat.dtype, {flat.numel()}}};
  }
  return held_of(flat, state.values, sharded, param);
}

void Parameters::fill_tables_for(int64_t length) { fill_tables(Tables::by_length, length); }

void Parameters::fill_tables(Tables which, int64_t length) {
  std::set<std::string> filled;  // blocks share tables by name, and one may take milliseconds to compute
  for (const model::Block& block : model_.blocks) {
    for (const auto& segment : block.segments()) {
      std::vector<Tensor> tables;
      std::vector<std::vector<char>> host;
      const std::vector<model::BufferSpec> specs = segment->buffers();
      bool all_there = true;
      for (const model::BufferSpec& spec : specs) {
        const bool wanted = which == Tables::all || spec.by_length;
        all_there = (!wanted || !filled.insert(spec.name).second) && all_there;
        host.emplace_back(static_cast<size_t>(spec.shape.numel() * device::size_of(spec.dtype)));
        tables.push_back({host.back().data(), spec.dtype, spec.shape});
      }
      if (all_there) continue;
      segment->fill_buffers(tables, length);
      for (size_t k = 0; k < tables.size(); ++k) {
        if (const Tensor to = memory_.find(specs[k].name)) write(to, tables[k].data);
      }
    }
  }
}

void Parameters::refresh_compute() {
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const program::BlockBuffers& keep = program_.blocks[b];
    if (!keep.held() || model_.compute == DType::f32 || layouts_[b].value_count == 0) continue;
    const Tensor from = memory_.tensor(keep.master), to = memory_.tensor(keep.compute);
    const bool shares = program_.buffers[static_cast<size_t>(keep.master)].sharded;
    const bool whole = shares && !program_.buffers[static_cast<size_t>(keep.compute)].sharded;
    const int64_t at = whole ? program_.own_shard(static_cast<int>(b)).values.begin : 0;
    kernels_.cast(
        {DType::f32, model_.compute, from.numel(), from.data, to.as<char>() + at * device::size_of(to.dtype)},
        {});
    if (!whole) continue;
    device_.synchronize(nullptr);
    const bool by_nodes = program_.ranks.split() == program::Among::shard;
    for (const program::Among among :
         by_nodes ? std::vector{program::Among::inter_node, program::Among::intra_node}
                  : std::vector{program::Among::shard}) {
      for (const std::vector<Tensor>& parts :
           gather_parts(program_, {.block = static_cast<int>(b)}, among, to))
        ranks_.group(among, program::Lane::gather).all_gather(parts);
      device_.synchronize(nullptr);
    }
  }
  device_.synchronize(nullptr);
  share_copies();
}

// Values that another stage keeps a copy of, as the end of a step hands them over, and those that no step
// does.
void Parameters::share_copies() const {
  for (const auto* list : {&program_.instructions, &program_.setup}) {
    for (const program::Instruction& i : *list) {
      const bool sends = i.is<program::SendWeights>();
      if (!sends && !i.is<program::RecvWeights>()) continue;
      comm::Group& group = ranks_.group(i.among, i.lane);
      const Tensor values = memory_.tensor((sends ? i.reads : i.writes)[0].buffer);
      if (sends) {
        group.send(values, 1 - group.rank());
      } else {
        group.recv(values, 1 - group.rank());
      }
      device_.synchronize(nullptr);
    }
  }
}

std::vector<Parameters::Named> Parameters::named() const {
  std::vector<Named> all;
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const program::BlockBuffers& keep = program_.blocks[b];
    if (!keep.held()) continue;
    for (const model::PlacedParam& p : layouts_[b].params) {
      if (!p.spec.holds_values()) continue;
      Named named{
          p.spec.name, whole_shape(p.spec.cut, p.spec.shape), p.spec.cut, held(p, static_cast<int>(b)), {}};
      named.order = order_of(b, static_cast<size_t>(p.index));
      named.dtype = named.master.format == kernels::Quantized::none ? named.master.values.dtype : DType::f32;
      named.frozen = p.spec.train.frozen;
      const int k = static_cast<int>(&p - layouts_[b].params.data());
      for (const program::StateBuffer& state : keep.state) {
        const std::vector<int>& params = layouts_[b].regions[static_cast<size_t>(state.region)].params;
        if (state.param == k) {
          named.state.push_back({state.name, state.shape, {}, held(state, p)});
        } else if (state.param < 0 && std::find(params.begin(), params.end(), k) != params.end()) {
          named.state.push_back({state.name, named.shape, named.cut, held(state, p)});
        }
      }
      all.push_back(std::move(named));
    }
  }
  std::sort(all.begin(), all.end(), [](const Named& a, const Named& c) { return a.order < c.order; });
  return all;
}

std::vector<Parameters::Named> Parameters::statistics() const {
  std::vector<Named> all;
  for (size_t b = 0; b < model_.blocks.size(); ++b) {
    size_t index = 0;
    for (const auto& segment : model_.blocks[b].segments()) {
      for (const model::BufferSpec& spec : segment->buffers()) {
        if (spec.constant) continue;
        const Tensor values = memory_.find(spec.name);
        if (values)
          all.push_back({spec.name, spec.shape, {}, {.values = values}, {}, spec.dtype, order_of(b, index)});
        ++index;
      }
    }
  }
  return all;
}

Parameters::Saved Parameters::saved_as(const std::string& name, const Named& param, const Held& all,
                                       checkpoint::Kind kind) const {
  const Held held = unpadded(all, param.shape, param.cut);
  const program::DataRanks& ranks = program_.ranks;
  Saved saved;
  saved.piece = piece_of(name, param.shape, param.cut, held);
  saved.piece.tensor = {name, saved.piece.tensor.dtype, param.shape, kind, param.order};
  saved.values = held.values;
  saved.format = held.format;
  saved.sharded = held.sharded;
  saved.cut = param.cut.cuts() || held.of_owner;  // no other tensor rank holds the same
  saved.copy = held.sharded ? ranks.replica : ranks.self();
  saved.copies = held.sharded ? ranks.replicas : ranks.width();
  const auto also = [&](int rank, int of) {
    saved.copy = saved.copy * of + rank;
    saved.copies *= of;
  };
  also(program_.parts.context_rank, program_.parts.context);
  if (!saved.cut) also(program_.parts.tensor_rank, program_.parts.tensor);
  return saved;
}

std::vector<Parameters::Saved> Parameters::saved() const {
  std::vector<Saved> all;
  for (const Named& param : named()) {
    all.push_back(saved_as(param.name, param, param.master, checkpoint::Kind::weight));
    all.back().frozen = param.frozen;
    for (const State& state : param.state) {
      Named kept{param.name, state.shape, state.cut, {}, {}};
      kept.order = param.order;
      all.push_back(saved_as(param.name + "." + state.name, kept, state.held, checkpoint::Kind::moment));
    }
  }
  for (const Named& one : statistics())
    all.push_back(saved_as(one.name, one, one.master, checkpoint::Kind::statistic));
  return all;
}

void Parameters::write(const Tensor& to, const void* host) const {
  device_.copy(to.data, host, to.bytes(), CopyKind::host_to_device, nullptr);
  device_.synchronize(nullptr);
}

void Parameters::read(const Tensor& from, void* host) const {
  device_.copy(host, from.data, from.bytes(), CopyKind::device_to_host, nullptr);
  device_.synchronize(nullptr);
}

void Parameters::read_dequantized(kernels::Quantized format, const void* blocks, int64_t count,
                                  float* host) const {
  auto* const wide = static_cast<float*>(device_.allocate(count * 4));
  kernels_.dequantize({format, count, blocks, DType::f32, wide}, {});
  read({wide, DType::f32, {count}}, host);
  device_.free(wide);
}

}  // namespace lockstep::run

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
#include "lockstep/checkpoint/params_hash.h"
#include "lockstep/kernels/optimizer/step_state.h"
#include "lockstep/run/executor/reduce.h"

namespace lockstep::run {

using device::CopyKind;
using device::DType;
using device::Tensor;

namespace {

// The order of a tensor in checkpoints: by block, then as the block lists them.
int64_t order_of(size_t block, size_t index) { return static_cast<int64_t>(block << 32 | index); }

checkpoint::Piece piece_of(const std::string& name, const device::Shape& whole, const model::Cut& cut,
                           const Parameters::Held& held) {
  checkpoint::Piece piece = checkpoint::whole_piece({name, held.values.dtype, whole});
  if (cut.pads()) {
    const int64_t begin = cut.part * model::rows_of_part(cut.rows, cut.parts);
    checkpoint::cut_rows(piece, std::min(begin, cut.rows), model::true_rows(cut.rows, cut.part, cut.parts));
  } else if (cut.cuts() && !cut.sizes.empty()) {
    checkpoint::cut_groups(piece, cut.dim, cut.part, cut.parts, cut.sizes);
  } else if (cut.cuts()) {
    checkpoint::cut(piece, cut.dim, cut.part, cut.parts, cut.groups);
  }
  return checkpoint::part_of(piece, held.first, held.values.numel());
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

}  // namespace

Parameters::Parameters(const model::Model& model, const program::Program& program, const Memory& memory,
                       device::Device& device, const Ranks& ranks)
    : model_(model),
      program_(program),
      memory_(memory),
      device_(device),
      kernels_(kernels::kernels_for(device.id().kind)),
      ranks_(ranks) {
  for (const model::Block& block : model.blocks) layouts_.push_back(model::layout_of(block));
}

void Parameters::initialize(uint64_t seed, float loss_scale) {
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const program::BlockBuffers& keep = program_.blocks[b];
    if (!keep.held()) continue;
    std::vector<int> zeroed = keep.moments;
    zeroed.push_back(keep.master);
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
      if (param.spec.tied_to.empty()) fill(held(keep.master, param, static_cast<int>(b)), param.spec, seed);
    }
  }
  fill_tables(Tables::all, model_.seq_len);
  kernels::StepState start;
  start.loss_scale = loss_scale;
  write(state(), &start);
  refresh_compute();
  device_.synchronize(nullptr);
}

void Parameters::fill(const Held& held, const model::ParamSpec& spec, uint64_t seed) const {
  const device::Shape whole = whole_shape(spec.cut, spec.shape);
  const Held real = unpadded(held, whole, spec.cut);
  const int64_t count = real.values.numel();
  if (count == 0) return;
  if (spec.init.kind == model::Init::Kind::zeros || spec.init.kind == model::Init::Kind::ones) {
    const float value = spec.init.kind == model::Init::Kind::ones ? 1.0f : 0.0f;
    return kernels_.fill_value({count, real.values.as<float>(), value}, {});
  }
  for (const checkpoint::Run& run : checkpoint::runs_of(piece_of(spec.name, whole, spec.cut, real))) {
    float* to = real.values.as<float>() + run.from;
    if (spec.init.kind == model::Init::Kind::given) {
      write({to, DType::f32, {run.count}}, spec.init.values + run.at);
    } else {
      kernels_.fill_normal({run.count, to, 0, spec.init.deviation, seed, base::hash_text(spec.name), run.at},
                           {});
    }
  }
}

Parameters::Held Parameters::held(int buffer, const model::PlacedParam& param, int block) const {
  const Tensor flat = memory_.tensor(buffer);
  const int64_t size = param.spec.shape.numel();
  const auto at = [&](int64_t element) { return flat.as<char>() + element * device::size_of(flat.dtype); };
  if (!program_.buffers[static_cast<size_t>(buffer)].sharded)
    return {false, 0, {at(param.offset), flat.dtype, {size}}};
  const program::Span mine = program_.own_shard(block).values;
  const int64_t begin = std::max(mine.begin, param.offset), end = std::min(mine.end(), param.offset + size);
  if (begin >= end) return {true, 0, {nullptr, flat.dtype, {0}}};
  return {true, begin - param.offset, {at(begin - mine.begin), flat.dtype, {end - begin}}};
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
    if (!keep.held() || model_.compute == DType::f32) continue;
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
      for (const std::vector<Tensor>& parts : gather_parts(program_, static_cast<int>(b), among, to))
        ranks_.group(among, program::Lane::gather).all_gather(parts);
      device_.synchronize(nullptr);
    }
  }
  device_.synchronize(nullptr);
  share_copies();
}

// Values that another stage keeps a copy of, as the end of a step hands them over.
void Parameters::share_copies() const {
  for (const program::Instruction& i : program_.instructions) {
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

std::vector<Parameters::Named> Parameters::named() const {
  std::vector<Named> all;
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const program::BlockBuffers& keep = program_.blocks[b];
    if (!keep.held()) continue;
    for (const model::PlacedParam& p : layouts_[b].params) {
      if (!p.spec.tied_to.empty()) continue;
      Named named{p.spec.name,
                  whole_shape(p.spec.cut, p.spec.shape),
                  p.spec.cut,
                  held(keep.master, p, static_cast<int>(b)),
                  {}};
      named.order = order_of(b, static_cast<size_t>(&p - layouts_[b].params.data()));
      for (const int moment : keep.moments) named.moments.push_back(held(moment, p, static_cast<int>(b)));
      all.push_back(std::move(named));
    }
  }
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
          all.push_back({spec.name, spec.shape, {}, {false, 0, values}, {}, spec.dtype, order_of(b, index)});
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
  saved.piece.tensor = {name, held.values.dtype, param.shape, kind, param.order};
  saved.values = held.values;
  saved.sharded = held.sharded;
  saved.cut = param.cut.cuts();
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
  constexpr const char* kMoments[] = {".m", ".v"};
  std::vector<Saved> all;
  for (const Named& param : named()) {
    all.push_back(saved_as(param.name, param, param.master, checkpoint::Kind::weight));
    for (size_t k = 0; k < param.moments.size(); ++k)
      all.push_back(saved_as(param.name + kMoments[k], param, param.moments[k], checkpoint::Kind::moment));
  }
  for (const Named& one : statistics())
    all.push_back(saved_as(one.name, one, one.master, checkpoint::Kind::statistic));
  return all;
}

std::vector<uint64_t> Parameters::hash_chunks(const Tensor& values,
                                              const std::vector<kernels::Chunk>& chunks) const {
  std::vector<uint64_t> hashes(chunks.size() * 2);
  const auto table_bytes = static_cast<int64_t>(chunks.size() * sizeof(kernels::Chunk));
  const auto hash_bytes = static_cast<int64_t>(hashes.size() * sizeof(uint64_t));
  auto* table = static_cast<kernels::Chunk*>(device_.allocate(table_bytes));
  auto* result = static_cast<uint64_t*>(device_.allocate(hash_bytes));
  device_.copy(table, chunks.data(), table_bytes, CopyKind::host_to_device, nullptr);
  kernels_.hash_chunks({values.as<float>(), table, static_cast<int64_t>(chunks.size()), result}, {});
  device_.copy(hashes.data(), result, hash_bytes, CopyKind::device_to_host, nullptr);
  device_.synchronize(nullptr);
  device_.free(table);
  device_.free(result);
  return hashes;
}

std::vector<kernels::Chunk> Parameters::own_chunks(size_t block, int64_t& first) const {
  std::vector<kernels::Chunk> chunks = model::chunks_of(layouts_[block], 0, false);
  first = 0;
  if (program_.shards.empty()) return chunks;
  const program::Shard& shard = program_.own_shard(static_cast<int>(block));
  const int64_t base =
      program_.buffers[static_cast<size_t>(program_.blocks[block].master)].sharded ? shard.values.begin : 0;
  first = shard.first_chunk;
  std::vector<kernels::Chunk> mine(chunks.begin() + shard.first_chunk,
                                   chunks.begin() + shard.first_chunk + shard.chunks);
  for (kernels::Chunk& chunk : mine) chunk.begin -= base;
  return mine;
}

// Where tensor ranks hold parts of parameters: of each rank's runs, in the whole's own chunks.
checkpoint::HashSums Parameters::hash_runs() const {
  checkpoint::HashSums sums;
  for (const Saved& one : saved()) {
    if (one.piece.tensor.kind != checkpoint::Kind::weight || one.copy > 0) continue;
    std::vector<float> host(static_cast<size_t>(one.piece.count));
    read(one.values, host.data());
    for (const checkpoint::Run& run : checkpoint::runs_of(one.piece)) {
      sums.add(one.piece.tensor.order, run.at,
               std::span(host).subspan(static_cast<size_t>(run.from), static_cast<size_t>(run.count)));
    }
  }
  return sums;
}

std::string Parameters::hash_of(const checkpoint::HashSums& sums) const {
  std::map<int64_t, int64_t> index;        // of a parameter, by its order
  std::vector<int64_t> first_chunk = {0};  // of each parameter
  for (size_t b = 0; b < layouts_.size(); ++b) {
    for (size_t k = 0; k < layouts_[b].params.size(); ++k) {
      const model::ParamSpec& spec = layouts_[b].params[k].spec;
      if (!spec.tied_to.empty()) continue;
      index[order_of(b, k)] = static_cast<int64_t>(index.size());
      const int64_t elements = whole_shape(spec.cut, spec.shape).numel();
      first_chunk.push_back(first_chunk.back() + base::divide_up(elements, kernels::kChunk));
    }
  }
  std::vector<uint64_t> all(static_cast<size_t>(first_chunk.back()) * 2, 0);
  for (const auto& [chunk, sum] : sums.sums()) {
    const auto at =
        static_cast<size_t>(first_chunk[static_cast<size_t>(index.at(chunk.first))] + chunk.second) * 2;
    all[at] = sum.of[0];
    all[at + 1] = sum.of[1];
  }
  return checkpoint::fold_hashes(ranks_.sum(std::move(all)));
}

std::string Parameters::hash() const {
  if (program_.parts.tensor > 1) return hash_of(hash_runs());
  std::vector<uint64_t> all;
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const size_t before = all.size();
    all.resize(before + 2 * model::chunks_of(layouts_[b], 0, false).size(), 0);
    if (!program_.blocks[b].held()) continue;
    int64_t first = 0;
    const std::vector<kernels::Chunk> chunks = own_chunks(b, first);
    if (chunks.empty()) continue;
    const std::vector<uint64_t> hashes = hash_chunks(memory_.tensor(program_.blocks[b].master), chunks);
    std::copy(hashes.begin(), hashes.end(), all.begin() + static_cast<int64_t>(before) + 2 * first);
  }
  // Ranks that share a copy fill in each other's zeros; every copy says the same, so only the first speaks.
  const bool shares = !program_.shards.empty();
  if (shares || program_.stages.count > 1) {
    const int copy = shares ? program_.ranks.replica : program_.ranks.self();
    if (copy > 0 || program_.parts.context_rank > 0) std::fill(all.begin(), all.end(), 0);
    all = ranks_.sum(std::move(all));
  }
  return checkpoint::fold_hashes(all);
}

bool Parameters::holds_shares() const {
  return std::any_of(program_.blocks.begin(), program_.blocks.end(), [&](const program::BlockBuffers& keep) {
    return program_.buffers[static_cast<size_t>(keep.master)].sharded;
  });
}

uint64_t Parameters::held_hash() const {
  uint64_t hash = 0;
  for (size_t b = 0; b < layouts_.size(); ++b) {
    const int master = program_.blocks[b].master;
    int64_t first = 0;
    const std::vector<kernels::Chunk> chunks = program_.buffers[static_cast<size_t>(master)].sharded
                                                   ? own_chunks(b, first)
                                                   : model::chunks_of(layouts_[b], 0, false);
    if (chunks.empty()) continue;
    for (const uint64_t word : hash_chunks(memory_.tensor(master), chunks))
      hash = base::hash_combine(hash, word);
  }
  return hash;
}

void Parameters::write(const Tensor& to, const void* host) const {
  device_.copy(to.data, host, to.bytes(), CopyKind::host_to_device, nullptr);
  device_.synchronize(nullptr);
}

void Parameters::read(const Tensor& from, void* host) const {
  device_.copy(host, from.data, from.bytes(), CopyKind::device_to_host, nullptr);
  device_.synchronize(nullptr);
}

}  // namespace lockstep::run

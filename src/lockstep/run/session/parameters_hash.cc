// params_hash of what ranks hold: chunks in the model's own order, whoever has them and however they are
// trained.
#include <algorithm>
#include <span>

#include "lockstep/base/hash.h"
#include "lockstep/base/round.h"
#include "lockstep/checkpoint/formats/widen.h"
#include "lockstep/checkpoint/params_hash.h"
#include "lockstep/run/session/parameters.h"

namespace lockstep::run {

using device::CopyKind;
using device::DType;
using device::Tensor;

namespace {

// Block and parameter of an order (Parameters::Named).
std::pair<size_t, size_t> place_of(int64_t order) {
  return {static_cast<size_t>(order) >> 32, static_cast<size_t>(order) & 0xFFFFFFFFu};
}

}  // namespace

std::vector<uint64_t> Parameters::hash_fp32(const float* values,
                                            const std::vector<kernels::Chunk>& chunks) const {
  std::vector<uint64_t> hashes(chunks.size() * 2);
  const auto table_bytes = static_cast<int64_t>(chunks.size() * sizeof(kernels::Chunk));
  const auto hash_bytes = static_cast<int64_t>(hashes.size() * sizeof(uint64_t));
  auto* table = static_cast<kernels::Chunk*>(device_.allocate(table_bytes));
  auto* result = static_cast<uint64_t*>(device_.allocate(hash_bytes));
  device_.copy(table, chunks.data(), table_bytes, CopyKind::host_to_device, nullptr);
  kernels_.hash_chunks({values, table, static_cast<int64_t>(chunks.size()), result}, {});
  device_.copy(hashes.data(), result, hash_bytes, CopyKind::device_to_host, nullptr);
  device_.synchronize(nullptr);
  device_.free(table);
  device_.free(result);
  return hashes;
}

// Of the values in fp32, whatever type they are kept in: then a few chunks at a time.
std::vector<uint64_t> Parameters::hash_chunks(const Chunks& own) const {
  if (own.values.dtype == DType::f32) return hash_fp32(own.values.as<float>(), own.chunks);
  const bool quantized = own.format != kernels::Quantized::none;
  constexpr size_t kAtOnce = 64;
  std::vector<uint64_t> hashes;
  for (size_t first = 0; first < own.chunks.size(); first += kAtOnce) {
    const size_t last = std::min(first + kAtOnce, own.chunks.size());
    std::vector<kernels::Chunk> some(own.chunks.begin() + static_cast<ptrdiff_t>(first),
                                     own.chunks.begin() + static_cast<ptrdiff_t>(last));
    const int64_t begin = some.front().begin, count = some.back().begin + some.back().count - begin;
    for (kernels::Chunk& chunk : some) chunk.begin -= begin;
    auto* const wide = static_cast<float*>(device_.allocate(count * 4));
    if (quantized) {
      kernels_.dequantize(
          {own.format, count, own.values.as<char>() + kernels::quantized_bytes(own.format, begin), DType::f32,
           wide},
          {});
    } else {
      kernels_.cast({own.values.dtype, DType::f32, count,
                     own.values.as<char>() + begin * device::size_of(own.values.dtype), wide},
                    {});
    }
    for (const uint64_t word : hash_fp32(wide, some)) hashes.push_back(word);
    device_.free(wide);
  }
  return hashes;
}

std::vector<Parameters::Chunks> Parameters::own_chunks(size_t block, Take take) const {
  const program::BlockBuffers& keep = program_.blocks[block];
  const program::Shard* shard =
      program_.shards.empty() ? nullptr : &program_.own_shard(static_cast<int>(block));
  std::vector<Chunks> all;
  for (const model::Stored stored : model::kStored) {
    if (keep.stored(stored) < 0) continue;
    const program::Buffer& buffer = program_.buffers[static_cast<size_t>(keep.stored(stored))];
    Chunks own;
    own.values = memory_.tensor(keep.stored(stored));
    own.chunks = model::chunks_of(layouts_[block], stored);
    if (stored == model::Stored::quantized) own.format = keep.format;
    for (const model::PlacedParam& param : layouts_[block].params) {
      if (!param.spec.holds_values() || model::stored_as(param.spec) != stored) continue;
      const int64_t count = base::divide_up(param.spec.shape.numel(), kernels::kChunk);
      for (int64_t c = 0; c < count; ++c)
        own.numbers.push_back(first_chunk_[block][static_cast<size_t>(param.index)] + c);
    }
    if (shard != nullptr && (buffer.sharded || take == Take::shard)) {
      const program::Shard::Kept kept = shard->kept(stored);
      const int64_t first = kept.first_chunk, last = first + kept.chunks;
      own.chunks = {own.chunks.begin() + first, own.chunks.begin() + last};
      own.numbers = {own.numbers.begin() + first, own.numbers.begin() + last};
      const int64_t base = buffer.sharded ? kept.span.begin : 0;
      for (kernels::Chunk& chunk : own.chunks) chunk.begin -= base;
    }
    if (!own.chunks.empty()) all.push_back(std::move(own));
  }
  return all;
}

// Where tensor ranks hold parts of parameters: of each rank's runs, in the whole's own chunks.
checkpoint::HashSums Parameters::hash_runs() const {
  checkpoint::HashSums sums;
  for (const Saved& one : saved()) {
    if (one.piece.tensor.kind != checkpoint::Kind::weight || one.copy > 0) continue;
    std::vector<float> host(static_cast<size_t>(one.piece.count));
    if (one.format != kernels::Quantized::none) {
      read_dequantized(one.format, one.values.data, one.piece.count, host.data());
    } else {
      std::vector<char> raw(static_cast<size_t>(one.values.bytes()));
      read(one.values, raw.data());
      checkpoint::widen(raw.data(), one.values.dtype, one.piece.count, host.data());
    }
    for (const checkpoint::Run& run : checkpoint::runs_of(one.piece)) {
      sums.add(one.piece.tensor.order, run.at,
               std::span(host).subspan(static_cast<size_t>(run.from), static_cast<size_t>(run.count)));
    }
  }
  return sums;
}

// In the model's order, those of all ranks.
std::vector<uint64_t> Parameters::sums_of(const checkpoint::HashSums& sums) const {
  std::vector<uint64_t> all(static_cast<size_t>(chunk_count_) * 2, 0);
  for (const auto& [chunk, sum] : sums.sums()) {
    const auto [block, index] = place_of(chunk.first);
    const auto at = static_cast<size_t>(first_chunk_[block][index] + chunk.second) * 2;
    all[at] = sum.of[0];
    all[at + 1] = sum.of[1];
  }
  return ranks_.sum(std::move(all));
}

std::string Parameters::hash_of(const checkpoint::HashSums& sums) const {
  return checkpoint::fold_hashes(sums_of(sums));
}

std::string Parameters::hash() const { return checkpoint::fold_hashes(hash_sums()); }

std::string Parameters::hash_with(std::vector<uint64_t> sums, const checkpoint::HashSums& of,
                                  const std::vector<checkpoint::Whole>& tensors) const {
  for (const auto& [chunk, sum] : of.sums()) {
    const auto [block, index] = place_of(tensors[static_cast<size_t>(chunk.first)].order);
    const auto at = static_cast<size_t>(first_chunk_[block][index] + chunk.second) * 2;
    sums[at] = sum.of[0];
    sums[at + 1] = sum.of[1];
  }
  return checkpoint::fold_hashes(sums);
}

std::vector<uint64_t> Parameters::hash_sums() const {
  if (program_.parts.cuts_products()) return sums_of(hash_runs());
  std::vector<uint64_t> all(static_cast<size_t>(chunk_count_) * 2, 0);
  for (size_t b = 0; b < layouts_.size(); ++b) {
    if (!program_.blocks[b].held()) continue;
    for (const Chunks& own : own_chunks(b, Take::shard)) {
      const std::vector<uint64_t> hashes = hash_chunks(own);
      for (size_t k = 0; k < own.numbers.size(); ++k) {
        const auto at = static_cast<size_t>(own.numbers[k]) * 2;
        all[at] = hashes[2 * k], all[at + 1] = hashes[2 * k + 1];
      }
    }
  }
  // Ranks that share a copy fill in each other's zeros; every copy says the same, so only the first speaks.
  const bool shares = !program_.shards.empty();
  if (shares || program_.stages.count > 1) {
    const int copy = shares ? program_.ranks.replica : program_.ranks.self();
    if (copy > 0 || program_.parts.context_rank > 0) std::fill(all.begin(), all.end(), 0);
    all = ranks_.sum(std::move(all));
  }
  return all;
}

bool Parameters::holds_shares() const {
  const auto sharded = [&](int buffer) {
    return buffer >= 0 && program_.buffers[static_cast<size_t>(buffer)].sharded;
  };
  return std::any_of(program_.blocks.begin(), program_.blocks.end(), [&](const program::BlockBuffers& keep) {
    return sharded(keep.master) || sharded(keep.frozen) || sharded(keep.quantized);
  });
}

uint64_t Parameters::held_hash() const {
  uint64_t hash = 0;
  for (size_t b = 0; b < layouts_.size(); ++b) {
    if (!program_.blocks[b].held()) continue;
    for (const Chunks& own : own_chunks(b, Take::all)) {
      for (const uint64_t word : hash_chunks(own)) hash = base::hash_combine(hash, word);
    }
  }
  return hash;
}

}  // namespace lockstep::run

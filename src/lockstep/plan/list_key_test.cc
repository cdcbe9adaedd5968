#include "lockstep/plan/list_key.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>

#include "lockstep/program/testing.h"

namespace lockstep::plan {
namespace {

using program::Instruction;
using program::Program;

// The list without the numbers of slices and sizes of shares.
std::string shape_of(const Program& program) {
  std::string text;
  std::map<int, int> slices;
  for (const Instruction& i : program.instructions) {
    const int slice = slices.try_emplace(i.slice, static_cast<int>(slices.size())).first->second;
    const auto* run = i.get<program::RunSegment>();
    text += fmt::format("{} {} {}.{} s{}{} {} {}:", i.what.index(), program::name_of(i.lane), i.block,
                        i.segment, slice, program::stage_of(i.what), program::name_of(i.among),
                        run != nullptr && run->accumulate);
    for (const program::Use& use : i.reads) text += fmt::format(" {}", use.buffer);
    text += " >";
    for (const program::Use& use : i.writes) text += fmt::format(" {}", use.buffer);
    text += "\n";
  }
  return text;
}

TEST(ListKey, RanksWithTheSameKeyHaveTheSameList) {
  int shared = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    program::Draw draw(seed);
    const int replicas = 1 + static_cast<int>(draw.below(4)), shard = 1 + static_cast<int>(draw.below(4));
    program::Case drawn = program::case_of({"model.layers=" + std::to_string(1 + draw.below(2)),
                                            "model.hidden=32", "model.heads=2", "data.seq_len=8"},
                                           device::DType::f32);
    drawn.layout.strands = replicas * shard + static_cast<int64_t>(draw.below(9));
    drawn.layout.slices = drawn.layout.strands * (1 + draw.below(2));
    program::DataRanks& ranks = drawn.layout.ranks;
    ranks = {
        .replicas = replicas, .shard = shard, .zero = shard == 1 ? 0 : 1 + static_cast<int>(draw.below(3))};
    comm::Mesh mesh;
    mesh.sizes[static_cast<int>(comm::Axis::shard)] = shard;
    mesh.sizes[static_cast<int>(comm::Axis::replica)] = replicas;
    const Lists lists = lists_of(mesh, ranks, drawn.layout.strands);
    std::map<int, std::string> shapes;
    for (int r = 0; r < replicas * shard; ++r) {
      ranks.replica = r / shard;
      ranks.shard_rank = r % shard;
      const std::string shape = shape_of(program::compile(*drawn.model, drawn.layout));
      const auto [it, fresh] = shapes.try_emplace(lists.of[static_cast<size_t>(r)], shape);
      if (!fresh) ++shared;
      EXPECT_EQ(it->second, shape) << "seed " << seed << ", rank " << r << " of " << replicas << "x" << shard
                                   << ", zero " << ranks.zero << ", " << drawn.layout.strands << " strands";
    }
  }
  EXPECT_GT(shared, 100);  // the key is no longer than it has to be
}

TEST(ListKey, ManyRanksHaveFewLists) {
  comm::Mesh mesh;
  mesh.sizes[static_cast<int>(comm::Axis::tensor)] = 8;
  mesh.sizes[static_cast<int>(comm::Axis::shard)] = 64;
  mesh.sizes[static_cast<int>(comm::Axis::pipeline)] = 8;
  const auto began = std::chrono::steady_clock::now();
  const Lists lists = lists_of(mesh, {.shard = 64, .zero = 3}, 64);
  EXPECT_EQ(lists.of.size(), 4096u);
  EXPECT_EQ(lists.first.size(), 8u);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 1);
}

}  // namespace
}  // namespace lockstep::plan

// Property tests of programs for many ranks: each is sound, together they agree, and their lanes never touch
// the same bytes without waiting.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/model/families/family.h"
#include "lockstep/program/check.h"
#include "lockstep/program/compile.h"
#include "lockstep/program/nodes.h"
#include "lockstep/program/testing.h"

namespace lockstep::program {
namespace {

Case random_case(uint32_t seed) {
  Draw draw(seed);
  Case c = case_of(
      {"model.family=" + draw.pick({"gpt2", "llama", "mlp"}), "model.layers=" + draw.pick({"1", "3"}),
       "model.hidden=" + draw.pick({"8", "64"}), "model.heads=2", "model.vocab=" + draw.pick({"64", "2100"}),
       "model.tied=" + draw.pick({"true", "false"}), "data.seq_len=4", "memory.logits_chunk=64"},
      draw.below(2) == 0 ? device::DType::f32 : device::DType::bf16);
  Layout& layout = c.layout;
  layout.strands = 1 + draw.below(12);
  layout.slices = layout.strands * (1 + draw.below(2));
  layout.ranks.zero = static_cast<int>(draw.below(4));
  do {
    layout.ranks.replicas = 1 + static_cast<int>(draw.below(4));
    layout.ranks.shard = layout.ranks.zero == 0 ? 1 : 1 + static_cast<int>(draw.below(4));
  } while (layout.ranks.width() > layout.strands);
  layout.ranks.exact = layout.strands % layout.ranks.width() != 0 || draw.below(4) != 0;
  layout.ranks.staged = draw.below(2) == 0;
  layout.ranks.near_staged = layout.ranks.staged && draw.below(2) == 0;
  layout.ranks.per_node = static_cast<int>(draw.below(6));
  if (layout.ranks.per_node > 0 && layout.ranks.width() % layout.ranks.per_node != 0)
    layout.ranks.per_node = 0;
  resolve_nodes(layout.ranks, layout.strands);
  layout.ranks.bucket_bytes = draw.below(2) == 0 ? 0 : 1 << 20;
  const std::string recompute = draw.pick({"none", "full", "every-2"});
  layout.recompute = parse_recompute(recompute, *c.model);
  treat_some(c, draw);
  c.words += fmt::format(
      "slices {} strands {} zero {} replicas {} shard {} exact {} staged {} a node {} {} recompute {}",
      layout.slices, layout.strands, layout.ranks.zero, layout.ranks.replicas, layout.ranks.shard,
      layout.ranks.exact, layout.ranks.staged, layout.ranks.per_node, layout.ranks.node_first, recompute);
  return c;
}

std::vector<Program> compile_all(const Case& c) {
  std::vector<Program> all;
  for (int p = 0; p < c.layout.ranks.replicas; ++p) {
    for (int r = 0; r < c.layout.ranks.shard; ++r) {
      Layout layout = c.layout;
      layout.ranks.replica = p;
      layout.ranks.shard_rank = r;
      all.push_back(compile(*c.model, layout));
    }
  }
  return all;
}

// What a rank does in the groups of one kind, in order: must be the same on every member.
std::vector<std::string> calls(const Program& program, Among among) {
  std::vector<std::string> list;
  for (const Instruction& i : program.instructions) {
    if (i.among != among) continue;
    std::string call =
        fmt::format("{} {} b{}{}", i.what.index(), name_of(verb_of(i.what)), i.block, stage_of(i.what));
    for (const Use& use : i.writes) {
      if (use.role == Role::sum) call += fmt::format(" sum of b{}", use.block);
    }
    list.push_back(call);
  }
  return list;
}

TEST(RankPrograms, AgreeWithEachOther) {
  int by_node = 0;
  for (uint32_t seed = 1; seed <= 160; ++seed) {
    const Case c = random_case(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, c.words));
    const std::vector<Program> all = compile_all(c);
    std::multiset<int64_t> slices;
    for (size_t k = 0; k < all.size(); ++k) {
      ASSERT_NO_THROW(check(all[k], *c.model)) << "rank " << k;
      slices.insert(all[k].own_slices.begin(), all[k].own_slices.end());
      const auto shard = static_cast<size_t>(c.layout.ranks.shard);
      EXPECT_EQ(calls(all[k], Among::all), calls(all[0], Among::all));
      EXPECT_EQ(calls(all[k], Among::shard), calls(all[k / shard * shard], Among::shard)) << "rank " << k;
      EXPECT_EQ(calls(all[k], Among::replica).size(), calls(all[0], Among::replica).size()) << "rank " << k;
      by_node += calls(all[k], Among::intra_node).empty() ? 0 : 1;
      for (const Among among : {Among::intra_node, Among::inter_node})
        EXPECT_EQ(calls(all[k], among), calls(all[k / shard * shard], among)) << "rank " << k;
    }
    EXPECT_EQ(static_cast<int64_t>(slices.size()), c.layout.slices);
    for (int64_t s = 0; s < c.layout.slices; ++s) EXPECT_EQ(slices.count(s), 1u) << "slice " << s;
  }
  EXPECT_GT(by_node, 20) << "too few of the drawn layouts go by nodes";
}

// Of every instruction: the last one of each lane that has surely ended before it begins.
using Clock = std::array<int, 5>;
std::vector<Clock> clocks(const Program& program) {
  std::vector<Clock> known(program.instructions.size());
  std::array<int, 5> last = {-1, -1, -1, -1, -1};
  for (size_t n = 0; n < known.size(); ++n) {
    const Instruction& i = program.instructions[n];
    Clock clock = {-1, -1, -1, -1, -1};
    const auto after = [&](int other) {
      if (other < 0) return;
      for (size_t l = 0; l < clock.size(); ++l)
        clock[l] = std::max(clock[l], known[static_cast<size_t>(other)][l]);
      int& mine =
          clock[static_cast<size_t>(thread_of(program.instructions[static_cast<size_t>(other)].lane))];
      mine = std::max(mine, other);
    };
    after(last[static_cast<size_t>(thread_of(i.lane))]);
    for (const int other : i.waits) after(other);
    known[n] = clock;
    last[static_cast<size_t>(thread_of(i.lane))] = static_cast<int>(n);
  }
  return known;
}

bool overlap(const Program& program, const std::vector<Use>& a, const std::vector<Use>& b) {
  for (const Use& x : a) {
    for (const Use& y : b) {
      const Buffer &m = program.buffers[static_cast<size_t>(x.buffer)],
                   &n = program.buffers[static_cast<size_t>(y.buffer)];
      if (m.persistent != n.persistent || m.external || n.external) continue;
      if (m.offset < n.offset + n.bytes() && n.offset < m.offset + m.bytes()) return true;
    }
  }
  return false;
}

// The number of pairs on different lanes that touch the same bytes, at least one writing, without an order.
int races(const Program& program) {
  const std::vector<Clock> known = clocks(program);
  int found = 0;
  for (size_t b = 0; b < known.size(); ++b) {
    const Instruction& later = program.instructions[b];
    for (size_t a = 0; a < b; ++a) {
      const Instruction& earlier = program.instructions[a];
      if (thread_of(earlier.lane) == thread_of(later.lane)) continue;
      if (known[b][static_cast<size_t>(thread_of(earlier.lane))] >= static_cast<int>(a)) continue;
      found += overlap(program, earlier.writes, later.writes) ||
               overlap(program, earlier.writes, later.reads) || overlap(program, earlier.reads, later.writes);
    }
  }
  return found;
}

TEST(RankPrograms, NeverTouchTheSameBytesWithoutWaiting) {
  int waits = 0, noticed = 0;
  for (uint32_t seed = 101; seed <= 125; ++seed) {
    const Case c = random_case(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, c.words));
    for (Program& program : compile_all(c)) {
      place(program);
      order(program);
      ASSERT_EQ(races(program), 0);
      // Leave out one wait: unless another happens to cover it, the proof must fail.
      for (Instruction& i : program.instructions) {
        if (i.waits.empty() || waits - noticed > 40 || noticed > 40) continue;
        const std::vector<int> kept = std::exchange(i.waits, {});
        ++waits;
        noticed += races(program) > 0;
        i.waits = kept;
      }
    }
  }
  EXPECT_GT(noticed, waits / 2) << "of " << waits;
}

TEST(RankPrograms, FaultsAreNoticed) {
  recipe::Resolved resolved =
      recipe::read_recipe({.file = "", .overrides = {"model.layers=2", "memory.logits_chunk=64"}});
  model::resolve_model(resolved, 50);
  const model::Model model = model::build_model(resolved.recipe, device::DType::f32);
  struct Fault {
    const char* name;
    bool (*hit)(const Instruction&);
    void (*make)(Instruction&);
  };
  const auto gradients = [](const Instruction& i) { return i.is<ReduceGradients, SumPartials>(); };
  const auto scalars = [](const Instruction& i) { return i.is<SumScalars>(); };
  const Fault faults[] = {
      {"a reduction is missing", gradients, nullptr},
      {"losses are not added up", scalars, nullptr},
      {"labels are not counted on all ranks", [](const Instruction& i) { return i.is<SumInputs>(); },
       nullptr},
      {"a partial sum is not given",
       [](const Instruction& i) { return i.is<ReduceGradients>() && i.reads.size() > 1; },
       [](Instruction& i) { i.reads.erase(i.reads.begin()); }},
      {"a gather is missing", [](const Instruction& i) { return i.is<GatherWeights>() && i.slice >= 0; },
       nullptr},
      {"a node's ranks do not sum first",
       [](const Instruction& i) { return i.is<ReduceGradients>() && i.among == Among::intra_node; }, nullptr},
      {"nodes do not meet",
       [](const Instruction& i) { return i.is<ReduceGradients>() && i.among == Among::inter_node; }, nullptr},
      {"a node's ranks keep a piece each", [](const Instruction& i) { return i.is<GatherSums>(); }, nullptr},
      {"a strand is summed elsewhere", [](const Instruction& i) { return i.runs(Pass::backward_weight); },
       [](Instruction& i) { i.slice += 1; }},
  };
  for (const auto& [zero, per_node] : {std::pair(0, 0), {1, 0}, {3, 0}, {0, 2}, {1, 2}, {3, 2}}) {
    Layout layout{
        .slice = {2, 16}, .slices = 8, .strands = 8, .kernels = &kernels::kernels_for(device::Kind::cpu)};
    const int width = per_node > 0 ? 4 : 3;
    layout.ranks.zero = zero;
    layout.ranks.shard = zero == 0 ? 1 : width;
    layout.ranks.replicas = zero == 0 ? width : 1;
    layout.ranks.per_node = per_node;
    resolve_nodes(layout.ranks, layout.strands);
    ASSERT_EQ(layout.ranks.node_first, per_node > 0);
    layout.ranks.bucket_bytes = 0;
    ASSERT_NO_THROW(check(compile(model, layout), model));
    for (const Fault& fault : faults) {
      Program program = compile(model, layout);
      bool made = false;
      for (size_t n = 0; n < program.instructions.size() && !made; ++n) {
        if (!fault.hit(program.instructions[n])) continue;
        made = true;
        if (fault.make == nullptr) {
          program.instructions.erase(program.instructions.begin() + static_cast<int64_t>(n));
        } else {
          fault.make(program.instructions[n]);
        }
      }
      if (!made) continue;
      EXPECT_THROW(check(program, model), base::Bug)
          << fault.name << ", zero " << zero << ", a node " << per_node;
    }
  }
}

TEST(Shares, CoverEveryElementOnceAndKeepTiedOnesTogether) {
  for (uint32_t seed = 201; seed <= 230; ++seed) {
    const Case c = random_case(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, c.words));
    std::vector<model::BlockLayout> layouts;
    for (const model::Block& block : c.model->blocks) layouts.push_back(model::layout_of(block));
    for (const int ranks : {1, 2, 3, 5, 8}) {
      const auto shards = cut_into_shards(layouts, ranks);
      for (size_t b = 0; b < layouts.size(); ++b) {
        std::vector<int> covered(static_cast<size_t>(layouts[b].grad_count), 0);
        int64_t chunks = 0;
        for (const Shard& shard : shards[b]) {
          chunks += shard.chunks;
          for (const Span& span : shard.gradients) {
            for (int64_t e = span.begin; e < span.end(); ++e) ++covered[static_cast<size_t>(e)];
          }
        }
        EXPECT_EQ(chunks, static_cast<int64_t>(model::chunks_of(layouts[b], 0, false).size()));
        std::map<model::Stored, std::vector<int>> of;
        for (const model::Stored stored : {model::Stored::frozen, model::Stored::quantized}) {
          of[stored].resize(static_cast<size_t>(layouts[b].count(stored)));
          for (const Shard& shard : shards[b]) {
            const Span span = shard.kept(stored).span;
            if (stored == model::Stored::quantized) {
              EXPECT_EQ(span.begin % kernels::kQuantizedBlock, 0);
              EXPECT_EQ(span.count % kernels::kQuantizedBlock, 0);
            }
            for (int64_t e = span.begin; e < span.end(); ++e) ++of[stored][static_cast<size_t>(e)];
          }
        }
        for (const model::PlacedParam& param : layouts[b].params) {
          if (!param.spec.holds_values() && param.spec.train.frozen) continue;
          const int64_t elements = param.spec.shape.numel();
          const std::vector<int>& all =
              param.spec.train.frozen ? of.at(model::stored_as(param.spec)) : covered;
          for (int64_t e = 0; e < elements; ++e) {
            ASSERT_EQ(all[static_cast<size_t>(param.offset + e)], 1)
                << param.spec.name << " of " << ranks << " ranks";
          }
          int holders = 0;
          for (const Shard& shard : shards[b])
            holders += intersect(shard.values, {param.offset, elements}).count > 0 ? 1 : 0;
          if (param.spec.trained() && param.spec.train.whole) {
            EXPECT_EQ(holders, 1) << param.spec.name;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::program

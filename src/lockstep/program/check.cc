#include "lockstep/program/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/program/compile.h"
#include "lockstep/program/nodes.h"

namespace lockstep::program {

namespace {

class Checker {
 public:
  Checker(const Program& program, const model::Model& model)
      : program_(program), model_(model), written_(program.buffers.size(), false) {
    for (size_t b = 0; b < program.buffers.size(); ++b)
      written_[b] = program.buffers[b].persistent || program.buffers[b].bytes() == 0;
  }

  void run() {
    for (const Instruction& i : program_.instructions) {
      for (const Use& use : i.reads) {
        if (!written_[static_cast<size_t>(use.buffer)])
          fail(i, "reads " + name(use) + " before anything writes it");
      }
      judge(i);
      for (const Use& use : i.writes) written_[static_cast<size_t>(use.buffer)] = true;
    }
  }

 private:
  // What is promised of each kind of instruction, beside that it reads what is there.
  void judge(const Instruction& i) {
    const auto nothing = [](const auto&) {};
    std::visit(Cases{[&](const RunSegment& run) { segment(i, run); },
                     [&](const JoinStrands&) { join(i); },
                     [&](const SumInputs&) { summed_.insert(i.reads[0].buffer); },
                     [&](const SumScalars&) { summed_.insert(i.reads[0].buffer); },
                     [&](const SumPartials&) {
                       for (const Use& use : i.reads) added_.insert({use.buffer, i.among});
                     },
                     [&](const ReduceGradients& reduce) { this->reduce(i, reduce); },
                     [&](const GatherSums&) {
                       for (const Use& use : i.writes) pieces_.erase(use.buffer);
                     },
                     [&](const Norm&) { norm(i); },
                     [&](const Update&) { update(i); },
                     [&](const ToOwners&) {
                       if (!normed_) fail(i, "comes before the norm");
                     },
                     [&](const FromOwners& it) { nothing(it); },
                     [&](const BeginStep& it) { nothing(it); },
                     [&](const LoadSlice& it) { nothing(it); },
                     [&](const FoldStatistics& it) { nothing(it); },
                     [&](const AddTied& it) { nothing(it); },
                     [&](const GatherWeights& it) { nothing(it); },
                     [&](const ReleaseWeights& it) { nothing(it); },
                     [&](const DequantizeWeights& it) { nothing(it); },
                     [&](const GatherStatistics& it) { nothing(it); },
                     [&](const SumValues& it) { nothing(it); },
                     [&](const GatherTokens& it) { nothing(it); },
                     [&](const ScatterTokens& it) { nothing(it); },
                     [&](const ExchangeHeads& it) { nothing(it); },
                     [&](const ShiftRing& it) { nothing(it); },
                     [&](const AddEdges& it) { nothing(it); },
                     [&](const SendValues& it) { nothing(it); },
                     [&](const RecvValues& it) { nothing(it); },
                     [&](const SendTied& it) { nothing(it); },
                     [&](const RecvTied& it) { nothing(it); },
                     [&](const SendWeights& it) { nothing(it); },
                     [&](const RecvWeights& it) { nothing(it); }},
               i.what);
  }

  void segment(const Instruction& i, const RunSegment& run) {
    if (run.pass == Pass::loss) needs_sum(i, Role::inputs);
    if (run.pass == Pass::loss || run.pass == Pass::backward_weight) fold(i, run);
  }

  std::string name(const Use& use) const {
    return program_.buffers[static_cast<size_t>(use.buffer)].name + " as " + text_of(use);
  }
  [[noreturn]] void fail(const Instruction& i, const std::string& what) const {
    base::throw_bug("program", static_cast<int>(&i - program_.instructions.data()),
                    "the step program is sound", title(program_, model_, i) + " " + what);
  }
  int64_t per_strand() const { return program_.slices / program_.strands; }

  // Numbers of all ranks must have been added up before they are used.
  void needs_sum(const Instruction& i, Role role) const {
    if (!program_.training || program_.alone()) return;
    for (const Use& use : i.reads) {
      if (use.role == role && !summed_.contains(use.buffer)) fail(i, "reads " + name(use) + " of one rank");
    }
  }

  // Gradients of ranks that worked on other tokens of the same slices must have been added up.
  void needs_added(const Instruction& i, const Use& use) const {
    if (program_.buffers[static_cast<size_t>(use.buffer)].bytes() == 0) return;
    if (program_.parts.context > 1 && !added_.contains({use.buffer, Among::context}))
      fail(i, "reads " + name(use) + " of one context rank's tokens");
    if (tensor_ranks_add(use) && !added_.contains({use.buffer, Among::tensor}))
      fail(i, "reads " + name(use) + " of one tensor rank's tokens");
  }

  // Where the numeric contract fixes the order of their sums, only blocks that have any are summed.
  bool tensor_ranks_add(const Use& use) const {
    if (!program_.parts.fixes_products()) return program_.parts.sequence;
    const int block = program_.buffers[static_cast<size_t>(use.buffer)].block;
    const std::vector<model::ParamSpec> params = model_.blocks[static_cast<size_t>(block)].params();
    return std::any_of(params.begin(), params.end(),
                       [](const model::ParamSpec& spec) { return spec.partial && !spec.train.frozen; });
  }

  // Gradients of a strand are folded in slice order: the first writes, the others add.
  void fold(const Instruction& i, const RunSegment& pass) {
    // Of a slice whose first round was counted.
    const bool later_round = pass.pass == Pass::loss && pass.part > 1;
    for (const Use& use : i.writes) {
      if (use.role != Role::grad || later_round) continue;
      if (normed_) fail(i, "changes a gradient after the norm");
      added_.erase({use.buffer, Among::context});
      added_.erase({use.buffer, Among::tensor});
      Run& run = folds_[use.buffer][fmt::format("{}.{}", i.segment, text_of(use))];
      const int64_t slice = i.slice;
      if (!program_.ranks.exact) {
        run = pass.accumulate ? Run{run.begin, slice + 1} : Run{slice, slice + 1};
      } else if (!pass.accumulate) {
        if (slice % per_strand() != 0) fail(i, "starts a strand in the middle");
        run = {slice, slice + 1};
      } else {
        const bool next = slice % per_strand() != 0 ||  // or a strand of one slice, onto its half of a node
                          (per_strand() == 1 && joins(program_.strands, run, {slice, slice + 1}));
        if (run.end != slice || !next) fail(i, "is folded out of slice order");
        run.end = slice + 1;
      }
    }
  }

  Run strands_in(const Run& slices) const { return {slices.begin / per_strand(), slices.end / per_strand()}; }

  void join(const Instruction& i) {
    auto& right = folds_[i.reads[0].buffer];
    for (auto& [key, run] : folds_[i.writes[0].buffer]) {
      const Run other = right.at(key);
      if (!joins(program_.strands, strands_in(run), strands_in(other)))
        fail(i, "sums strands that are not neighbours in the tree");
      run.end = other.end;
    }
  }

  // Each partial sum that goes in must be the one that the assignment of strands says; then the group's sums
  // come out.
  void reduce(const Instruction& i, const ReduceGradients& what) {
    const DataRanks& r = program_.ranks;
    if (normed_) fail(i, "changes a gradient after the norm");
    const StrandAssignment assignment = r.assignment(program_.strands);
    std::vector<Run> in, out;
    Stack kept(program_.strands);
    std::vector<Run> before;  // what earlier rounds left
    const Among group = i.among == Among::intra_node || i.among == Among::inter_node ? r.split() : i.among;
    const bool near = i.among == Among::intra_node, far = i.among == Among::inter_node;
    if ((near || far) && !r.node_first) fail(i, "goes by nodes, but the tree over strands does not");
    if (what.round >= 0) {
      for (int64_t round = 0; r.exact && round <= what.round; ++round) {
        before = kept.runs();
        for (int q = 0; q < r.shard; ++q) {
          if (const int64_t s = assignment.in_round(r.replica, q, round); s >= 0) kept.push({s, s + 1});
        }
      }
      const int64_t s = assignment.in_round(r.replica, r.shard_rank, what.round);
      if (s >= 0) in = {{s, s + 1}};
      out = kept.runs();
    } else if (group == Among::shard) {
      in = own_nodes(assignment, r.replica, r.shard_rank);
      out = nodes_of(program_.strands, assignment.of_replica(r.replica));
    } else {
      in = r.sharded() ? nodes_of(program_.strands, assignment.of_replica(r.replica))
                       : own_nodes(assignment, r.replica, r.shard_rank);
      out = {{0, program_.strands}};
    }
    // In two stages, the node's sum stands between.
    const std::vector<Run> of_node = {
        near || far ? node_strands(r, program_.strands, reduce_self(r, Among::inter_node), what.round)
                    : Run{}};
    if (near) out = of_node, before.clear();
    if (far) in = of_node;
    std::map<int, int> blocks;  // of a block: partial sums given
    for (const Use& use : i.writes) {
      if (use.role == Role::sum) blocks[program_.buffers[static_cast<size_t>(use.buffer)].block] = 0;
    }
    std::map<int, size_t> found;  // of a block: levels that earlier rounds left
    for (const Use& use : i.reads) {
      if (r.exact && use.role == Role::kept) {
        const size_t k = found[program_.buffers[static_cast<size_t>(use.buffer)].block]++;
        const auto& there = folds_[use.buffer];
        if (k >= before.size() || there.empty() || strands_in(there.begin()->second) != before[k]) {
          fail(i, "continues " + name(use) + ", which does not hold the rounds before");
        }
      }
      if (use.role != Role::node) continue;
      needs_added(i, use);
      const int block = program_.buffers[static_cast<size_t>(use.buffer)].block;
      const auto k = static_cast<size_t>(blocks[block]++);
      if (!r.exact) continue;
      if (k >= in.size()) fail(i, "gives more partial sums than this rank has");
      for (const auto& [key, run] : folds_[use.buffer]) {
        if (strands_in(run) != in[k])
          fail(i, fmt::format("gives {} with strands {} to {}", name(use), strands_in(run).begin,
                              strands_in(run).end));
      }
    }
    for (const auto& [block, given] : blocks) {
      if (r.exact && given != static_cast<int>(in.size()))
        fail(i, fmt::format("gives {} of {} partial sums of b{}", given, in.size(), block));
    }
    std::map<int, size_t> written;
    for (const Use& use : i.writes) {
      if (use.role != Role::sum) continue;
      const size_t k = written[program_.buffers[static_cast<size_t>(use.buffer)].block]++;
      if (far && group == Among::replica) pieces_.insert(use.buffer);
      const bool whole =
          group == Among::replica ||
          (r.replicas == 1 && (what.round < 0 || what.round + 1 == assignment.rounds(r.replica)));
      for (const Among with : {Among::context, Among::tensor}) added_.insert({use.buffer, with});
      folds_[use.buffer].clear();
      folds_[use.buffer]["all"] = !r.exact
                                      ? Run{0, whole ? program_.slices : 0}
                                      : Run{out.at(k).begin * per_strand(), out.at(k).end * per_strand()};
    }
  }

  void norm(const Instruction& i) {
    needs_sum(i, Role::inputs);
    needs_sum(i, Role::losses);
    for (const Use& use : i.reads) {
      if (use.role != Role::gradient) continue;
      if (program_.ranks.width() == 1) needs_added(i, use);
      if (pieces_.contains(use.buffer)) fail(i, "reads " + name(use) + ", of which this rank has one piece");
      for (const auto& [key, run] : folds_[use.buffer]) {
        if (run.begin != 0 || run.end != program_.slices) {
          fail(i, fmt::format("finds {} of {} slices in {} {}", run.end - run.begin, program_.slices,
                              name(use), key));
        }
      }
    }
    normed_ = true;
  }

  void update(const Instruction& i) {
    if (!normed_) fail(i, "comes before the norm");
    if (folds_[i.reads[0].buffer].empty()) fail(i, "has no gradient");
  }

  const Program& program_;
  const model::Model& model_;
  std::vector<bool> written_;
  std::map<int, std::map<std::string, Run>> folds_;  // of a gradient buffer: parameter to the slices in it
  std::set<std::pair<int, Among>> added_;            // gradients
  std::set<int> pieces_;                             // gradients of which the node's ranks hold a piece each
  std::set<int> summed_;                             // scalars of all ranks
  bool normed_ = false;
};

// No two values that are alive together share bytes. Only of a program whose buffers have their places.
void check_places(const Program& program, const model::Model& model) {
  const std::vector<Lifetime> lives = lifetimes(program);
  std::map<int, std::vector<int>> begins, ends;  // instruction to buffers
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    const bool placed = lives[b].first >= 0 && buffer.offset >= 0 && buffer.bytes() > 0;
    if (!placed || buffer.external || buffer.persistent) continue;
    begins[lives[b].first].push_back(static_cast<int>(b));
    ends[lives[b].last].push_back(static_cast<int>(b));
  }
  std::map<int64_t, int> alive;  // offset to buffer
  const auto end_of = [&](int b) {
    return program.buffers[static_cast<size_t>(b)].offset + program.buffers[static_cast<size_t>(b)].bytes();
  };
  for (const auto& [n, buffers] : begins) {
    for (auto it = ends.begin(); it != ends.end() && it->first < n; it = ends.erase(it)) {
      for (const int b : it->second) alive.erase(program.buffers[static_cast<size_t>(b)].offset);
    }
    for (const int b : buffers) {
      const auto next = alive.lower_bound(program.buffers[static_cast<size_t>(b)].offset);
      const bool hits_next = next != alive.end() && next->first < end_of(b);
      const bool hits_last = next != alive.begin() &&
                             end_of(std::prev(next)->second) > program.buffers[static_cast<size_t>(b)].offset;
      if (hits_next || hits_last) {
        const int other = hits_next ? next->second : std::prev(next)->second;
        base::throw_bug("program", n, "the step program is sound",
                        fmt::format("{} writes {} where {} is still needed",
                                    title(program, model, program.instructions[static_cast<size_t>(n)]),
                                    program.buffers[static_cast<size_t>(b)].name,
                                    program.buffers[static_cast<size_t>(other)].name));
      }
      alive[program.buffers[static_cast<size_t>(b)].offset] = b;
    }
  }
}

}  // namespace

void check(const Program& program, const model::Model& model) {
  Checker(program, model).run();
  check_places(program, model);
}

std::vector<Lifetime> lifetimes(const Program& program) {
  std::vector<Lifetime> lives(program.buffers.size());
  const int end = static_cast<int>(program.instructions.size()) - 1;
  for (int n = 0; n <= end; ++n) {
    const Instruction& i = program.instructions[static_cast<size_t>(n)];
    for (const auto* uses : {&i.reads, &i.writes}) {
      for (const Use& use : *uses) {
        Lifetime& life = lives[static_cast<size_t>(use.buffer)];
        if (life.first < 0) life.first = n;
        life.last = n;
      }
    }
  }
  for (size_t b = 0; b < lives.size(); ++b) {
    if (program.buffers[b].persistent) lives[b] = {0, end};
  }
  return lives;
}

}  // namespace lockstep::program

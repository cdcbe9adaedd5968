#include "lockstep/program/check.h"

#include <fmt/format.h>

#include <set>

#include "lockstep/base/error.h"

namespace lockstep::program {

namespace {

// A run of slices or strands [begin, end).
struct Run {
  int64_t begin = 0, end = 0;
};

// The nodes of the one tree that strands are summed over: {begin, middle, end}.
void tree_nodes(int64_t begin, int64_t end, std::set<std::vector<int64_t>>& nodes) {
  if (end - begin < 2) return;
  int64_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  nodes.insert({begin, begin + half, end});
  tree_nodes(begin, begin + half, nodes);
  tree_nodes(begin + half, end, nodes);
}

class Checker {
 public:
  Checker(const Program& program, const model::Model& model)
      : program_(program), model_(model), written_(program.buffers.size(), false) {
    tree_nodes(0, program.strands, nodes_);
    for (size_t b = 0; b < program.buffers.size(); ++b) written_[b] = program.buffers[b].persistent;
  }

  void run() {
    for (const Instruction& i : program_.instructions) {
      for (const Use& use : i.reads) {
        if (!written_[static_cast<size_t>(use.buffer)]) fail(i, "reads " + name(use) + " before anything writes it");
      }
      switch (i.op) {
        case Op::loss:
        case Op::backward_weight: fold(i); break;
        case Op::sum: sum(i); break;
        case Op::norm: norm(i); break;
        case Op::update: update(i); break;
        default: break;
      }
      if (i.predicated && i.op != Op::update) fail(i, "is predicated, but only an update may be");
      for (const Use& use : i.writes) written_[static_cast<size_t>(use.buffer)] = true;
    }
  }

 private:
  std::string name(const Use& use) const { return program_.buffers[static_cast<size_t>(use.buffer)].name + " as " + use.role; }
  [[noreturn]] void fail(const Instruction& i, const std::string& what) const {
    base::throw_bug("program", static_cast<int>(&i - program_.instructions.data()), "the step program is sound",
                    title(program_, model_, i) + " " + what);
  }
  int64_t per_strand() const { return program_.slices / program_.strands; }

  // Gradients of a strand are folded in slice order: the first writes, the others add.
  void fold(const Instruction& i) {
    for (const Use& use : i.writes) {
      if (!use.role.starts_with("grad.")) continue;
      if (normed_) fail(i, "changes a gradient after the norm");
      Run& run = folds_[{use.buffer, fmt::format("{}.{}", i.segment, use.role)}];
      const int64_t slice = i.slice;
      if (!i.accumulate) {
        if (slice % per_strand() != 0) fail(i, "starts a strand in the middle");
        run = {slice, slice + 1};
      } else {
        if (run.end != slice || slice % per_strand() == 0) fail(i, "is folded out of slice order");
        run.end = slice + 1;
      }
    }
  }

  void sum(const Instruction& i) {
    const int into = i.writes[0].buffer, from = i.reads[0].buffer;
    if (i.reads[0].role == "tied") return;
    for (auto& [key, run] : folds_) {
      if (key.first != into) continue;
      const Run right = folds_.at({from, key.second});
      const std::vector<int64_t> node{run.begin / per_strand(), run.end / per_strand(), right.end / per_strand()};
      if (run.end != right.begin || !nodes_.contains(node)) fail(i, "sums strands that are not neighbours in the tree");
      run.end = right.end;
    }
  }

  void norm(const Instruction& i) {
    for (const Use& use : i.reads) {
      if (!use.role.starts_with("gradient.")) continue;
      for (const auto& [key, run] : folds_) {
        if (key.first == use.buffer && (run.begin != 0 || run.end != program_.slices)) {
          fail(i, fmt::format("finds {} of {} slices in {} {}", run.end - run.begin, program_.slices, name(use), key.second));
        }
      }
    }
    normed_ = true;
  }

  void update(const Instruction& i) {
    if (!normed_) fail(i, "comes before the norm");
    if (!i.predicated) fail(i, "is not predicated on finite gradients");
    bool found = false;
    for (const auto& [key, run] : folds_) found = found || key.first == i.reads[0].buffer;
    if (!found) fail(i, "has no gradient");
  }

  const Program& program_;
  const model::Model& model_;
  std::vector<bool> written_;
  std::set<std::vector<int64_t>> nodes_;
  std::map<std::pair<int, std::string>, Run> folds_;  // {gradient buffer, parameter} to the slices in it
  bool normed_ = false;
};

}  // namespace

void check(const Program& program, const model::Model& model) { Checker(program, model).run(); }

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

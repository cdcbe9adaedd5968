// Recomputation: forward work whose values are dropped is done again just before the backward pass
// needs it. A rewrite of the list: reads of dropped values are redirected to what `recompute` writes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/program/compile.h"

namespace lockstep::program {

namespace {

class Rewriter {
 public:
  Rewriter(Program& program, const model::Model& model, const Recompute& recompute)
      : program_(program), model_(model), recompute_(recompute), producer_(program.buffers.size(), -1) {
    for (size_t n = 0; n < program.instructions.size(); ++n) {
      const Instruction& i = program.instructions[n];
      if (i.op != Op::forward) continue;
      for (const Use& use : i.writes) producer_[static_cast<size_t>(use.buffer)] = static_cast<int>(n);
    }
  }

  void run() {
    const std::vector<Instruction> old = program_.instructions;
    std::vector<Instruction> list;
    for (const Instruction& original : old) {
      Instruction i = original;
      if (i.op == Op::forward && dropped(i)) i.keeps_tape = false;
      if (i.op == Op::backward_input || i.op == Op::backward_weight) {
        std::map<int, int> moved;
        for (Use& use : i.reads) {
          const int again = redo(use.buffer, group(i), old, list);
          moved[use.buffer] = again;
          use.buffer = again;
        }
        for (auto& [written, reused] : i.may_reuse) {
          if (moved.contains(reused)) reused = moved.at(reused);
        }
      }
      list.push_back(std::move(i));
    }
    program_.instructions = std::move(list);
  }

 private:
  // Blocks of one group keep only what comes into the group.
  int group(const Instruction& i) const {
    return recompute_.every > 0 ? i.block / recompute_.every : i.block;
  }

  bool dropped(const Instruction& i) const {
    if (recompute_.every > 0) return true;
    const auto& segments = model_.blocks[static_cast<size_t>(i.block)].segments();
    const std::string name = segments[static_cast<size_t>(i.segment)]->name();
    return std::find(recompute_.segments.begin(), recompute_.segments.end(), name) !=
           recompute_.segments.end();
  }

  // The buffer that holds `buffer`'s value again for the backward pass of `in_group`: itself when it was
  // kept, else one that a recompute instruction, appended to `list` now, writes.
  int redo(int buffer, int in_group, const std::vector<Instruction>& old, std::vector<Instruction>& list) {
    const int at = producer_[static_cast<size_t>(buffer)];
    if (at < 0) return buffer;
    const Instruction& source = old[static_cast<size_t>(at)];
    if (!dropped(source) || group(source) != in_group) return buffer;
    if (const auto done = again_.find(buffer); done != again_.end()) return done->second;
    Instruction i = source;
    i.op = Op::recompute;
    i.keeps_tape = true;
    for (Use& use : i.reads) use.buffer = redo(use.buffer, in_group, old, list);
    for (Use& use : i.writes) {
      Buffer copy = program_.buffers[static_cast<size_t>(use.buffer)];
      copy.name += " again";
      if (copy.kind == BufferKind::edge) copy.kind = BufferKind::saved;
      const int fresh = program_.add_buffer(std::move(copy));
      again_[use.buffer] = fresh;
      use.buffer = fresh;
    }
    producer_.resize(program_.buffers.size(), -1);
    list.push_back(std::move(i));
    return again_.at(buffer);
  }

  Program& program_;
  const model::Model& model_;
  const Recompute& recompute_;
  std::vector<int> producer_;  // of a buffer: the forward instruction that writes it, by old index
  std::map<int, int> again_;   // dropped buffer to its recomputed one
};

}  // namespace

void rewrite_recompute(Program& program, const model::Model& model, const Recompute& recompute) {
  if (recompute.none()) return;
  Rewriter(program, model, recompute).run();
}

Recompute parse_recompute(const std::string& text, const model::Model& model) {
  Recompute recompute;
  if (text == "none" || text.empty()) return recompute;
  if (text == "full") {
    recompute.every = 1;
    return recompute;
  }
  if (text.starts_with("every-")) {
    recompute.every = std::atoi(text.c_str() + 6);
    if (recompute.every >= 1) return recompute;
    throw base::ConfigError(
        130, fmt::format("memory.recompute = \"{}\": write every-K with K of at least 1, as every-2", text));
  }
  std::set<std::string> known;
  for (const model::Block& block : model.blocks) {
    for (const auto& segment : block.segments()) {
      if (segment->name() != "logits") known.insert(segment->name());
    }
  }
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    name.erase(0, name.find_first_not_of(' '));
    name.erase(name.find_last_not_of(' ') + 1);
    if (!known.contains(name)) {
      std::string names;
      for (const std::string& k : known) names += (names.empty() ? "" : ", ") + k;
      throw base::ConfigError(
          131, fmt::format("memory.recompute = \"{}\": this model has no segment \"{}\"; it has: {}. "
                           "Or use none, full, every-K",
                           text, name, names));
    }
    recompute.segments.push_back(name);
    begin = end + 1;
  }
  return recompute;
}

}  // namespace lockstep::program

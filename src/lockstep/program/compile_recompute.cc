// Recomputation: forward work whose values are dropped is done again just before the backward pass
// needs it. A rewrite of the list: reads of dropped values are redirected to what `recompute` writes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/program/compile.h"

namespace lockstep::program {

namespace {

// For each buffer, instructions in the order of the list. Programs have a hundred thousand of both: one flat
// list is several times as fast as one for each buffer.
class ByBuffer {
 public:
  // `each(n, tell)` calls tell(buffer) for those that instruction n is listed at.
  template <class Each>
  ByBuffer(size_t buffers, size_t instructions, const Each& each) : first_(buffers + 1, 0) {
    for (size_t n = 0; n < instructions; ++n) each(n, [&](int buffer) { ++first_[at(buffer) + 1]; });
    for (size_t b = 0; b < buffers; ++b) first_[b + 1] += first_[b];
    std::vector<size_t> next(first_.begin(), first_.end() - 1);
    all_.resize(first_.back());
    for (size_t n = 0; n < instructions; ++n) each(n, [&](int buffer) { all_[next[at(buffer)]++] = n; });
  }
  std::span<const size_t> of(int buffer) const {
    if (at(buffer) + 1 >= first_.size()) return {};  // it was added later
    return std::span(all_).subspan(first_[at(buffer)], first_[at(buffer) + 1] - first_[at(buffer)]);
  }

 private:
  static size_t at(int buffer) { return static_cast<size_t>(buffer); }
  std::vector<size_t> first_, all_;
};

class Rewriter {
 public:
  Rewriter(Program& program, const model::Model& model, const Recompute& recompute)
      : program_(program),
        model_(model),
        recompute_(recompute),
        old_(std::move(program.instructions)),
        producers_(program.buffers.size(), old_.size(),
                   [&](size_t n, const auto& tell) {
                     if (!goes_forward(old_[n])) return;
                     for (const Use& use : old_[n].writes) tell(use.buffer);
                   }),
        again_(program.buffers.size(), -1),
        done_(old_.size(), false) {}

  void run() {
    std::vector<Instruction> list;
    list.reserve(old_.size() + old_.size() / 2);
    for (Instruction& original : old_) {
      // What goes forward may be copied once more, where it runs again.
      Instruction i = goes_forward(original) ? original : std::move(original);
      if (i.runs(Pass::forward) && dropped(i)) i.get<RunSegment>()->keeps_tape = false;
      if (i.runs(Pass::backward_input) || i.runs(Pass::backward_weight)) {
        std::map<int, int> moved;
        for (Use& use : i.reads) {
          const int again = redo(use.buffer, old_.size(), group(i), list);
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

  // Segments, and the collectives behind them.
  bool goes_forward(const Instruction& i) const {
    if (i.runs(Pass::forward)) return true;
    return i.lane == Lane::seam &&
           program_.buffers[static_cast<size_t>(i.writes[0].buffer)].kind == BufferKind::edge;
  }

  bool dropped(const Instruction& i) const {
    if (recompute_.every > 0) return true;
    const auto& segments = model_.blocks[static_cast<size_t>(i.block)].segments();
    const std::string name = segments[static_cast<size_t>(i.segment)]->name();
    return std::find(recompute_.segments.begin(), recompute_.segments.end(), name) !=
           recompute_.segments.end();
  }

  // The buffer that holds `buffer`'s value again for the backward pass of `in_group`: itself when it was
  // kept, else one that is written again by what is appended to `list` now. Several may have written it, one
  // after the other: those before instruction `until` count.
  int redo(int buffer, size_t until, int in_group, std::vector<Instruction>& list) {
    for (const size_t n : producers_.of(buffer)) {
      if (n >= until) break;
      if (!dropped(old_[n]) || group(old_[n]) != in_group) return buffer;
      redo_instruction(n, in_group, list);
    }
    const int again = again_of(buffer);
    return again < 0 ? buffer : again;
  }

  void redo_instruction(size_t n, int in_group, std::vector<Instruction>& list) {
    if (done_[n]) return;
    done_[n] = true;
    Instruction i = old_[n];
    if (RunSegment* run = i.get<RunSegment>()) run->pass = Pass::recompute, run->keeps_tape = true;
    for (Use& use : i.reads) use.buffer = redo(use.buffer, n, in_group, list);
    for (Use& use : i.writes) {
      if (const int known = again_of(use.buffer); known >= 0) {
        use.buffer = known;
        continue;
      }
      Buffer copy = program_.buffers[static_cast<size_t>(use.buffer)];
      copy.name += " again";
      if (copy.kind == BufferKind::edge) copy.kind = BufferKind::saved;
      const int fresh = program_.add_buffer(std::move(copy));
      again_[static_cast<size_t>(use.buffer)] = fresh;
      use.buffer = fresh;
    }
    list.push_back(std::move(i));
  }

  // The recomputed one of a dropped buffer; -1: there is none (yet).
  int again_of(int buffer) const {
    return static_cast<size_t>(buffer) < again_.size() ? again_[static_cast<size_t>(buffer)] : -1;
  }

  Program& program_;
  const model::Model& model_;
  const Recompute& recompute_;
  std::vector<Instruction> old_;  // those that do not go forward have moved on once they were seen
  ByBuffer producers_;            // of a buffer: what writes it on the way forward
  std::vector<int> again_;        // by buffer
  std::vector<bool> done_;        // instructions that run again
};

// Values that go from forward to nothing but weights' gradients, and that a backward_input makes again: they
// end with the forward pass, and what reads them moves behind what makes them again.
void drop_cheap(Program& program) {
  std::vector<Instruction>& list = program.instructions;
  const ByBuffer readers(program.buffers.size(), list.size(), [&](size_t n, const auto& tell) {
    for (const Use& use : list[n].reads) tell(use.buffer);
  });
  std::vector<std::pair<size_t, size_t>> behind;  // an instruction, and what moves behind it
  std::vector<bool> moved(list.size(), false);
  for (size_t n = 0; n < list.size(); ++n) {
    for (const Use& again : std::exchange(list[n].may_remake, {})) {
      const std::span<const size_t> all = readers.of(again.buffer);
      const auto later = [&](size_t r) { return list[r].runs(Pass::backward_weight); };
      const bool droppable = std::any_of(all.begin(), all.end(), later) &&
                             std::all_of(all.begin(), all.end(),
                                         [&](size_t r) { return list[r].runs(Pass::forward) || later(r); });
      if (!droppable) continue;
      Buffer copy = program.buffers[static_cast<size_t>(again.buffer)];
      copy.name += " again";
      copy.kind = BufferKind::saved;
      list[n].moved_bytes += copy.bytes();
      const int fresh = program.add_buffer(std::move(copy));
      list[n].writes.push_back({fresh, again.role, again.name});
      for (const size_t r : all) {
        if (!later(r)) continue;
        for (Use& use : list[r].reads) {
          if (use.buffer == again.buffer) use.buffer = fresh;
        }
        if (r >= n || moved[r]) continue;
        moved[r] = true;
        behind.emplace_back(n, r);
      }
    }
  }
  std::vector<Instruction> sorted;
  sorted.reserve(list.size());
  auto next = behind.begin();  // in the order of those behind which they move
  for (size_t n = 0; n < list.size(); ++n) {
    if (!moved[n]) sorted.push_back(std::move(list[n]));
    for (; next != behind.end() && next->first == n; ++next) sorted.push_back(std::move(list[next->second]));
  }
  list = std::move(sorted);
}

}  // namespace

void rewrite_recompute(Program& program, const model::Model& model, const Recompute& recompute) {
  if (recompute.none()) return;
  if (recompute.cheap) return drop_cheap(program);
  Rewriter(program, model, recompute).run();
}

Recompute parse_recompute(const std::string& text, const model::Model& model) {
  Recompute recompute;
  if (text == "none" || text.empty()) return recompute;
  if (text == "cheap") {
    recompute.cheap = true;
    return recompute;
  }
  if (text == "full") {
    recompute.every = 1;
    return recompute;
  }
  if (text.starts_with("every-")) {
    recompute.every = base::parse_number<int>(std::string_view(text).substr(6)).value_or(0);
    if (recompute.every >= 1) return recompute;
    throw base::ConfigError(
        130, fmt::format("memory.recompute = \"{}\": expected every-K with K of at least 1, such as every-2",
                         text));
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
      throw base::ConfigError(131, fmt::format("memory.recompute = \"{}\": this model has no segment \"{}\"; "
                                               "it has {}. Other values: auto, none, cheap, full, every-K",
                                               text, name, names));
    }
    recompute.segments.push_back(name);
    begin = end + 1;
  }
  return recompute;
}

}  // namespace lockstep::program

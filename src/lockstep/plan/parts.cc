#include "lockstep/plan/parts.h"

#include <algorithm>
#include <array>
#include <map>

#include "lockstep/base/stretches.h"
#include "lockstep/plan/roofline.h"

namespace lockstep::plan {

using program::Among;
using program::BufferKind;
using program::Instruction;
using program::Lane;

namespace {

constexpr const char* kBubble = "pipeline bubble";

const char* waiting_for(const Instruction& i) {
  switch (i.among) {
    case Among::tensor:
      return "exposed tensor communication";
    case Among::context:
      return "exposed context communication";
    case Among::next:
    case Among::previous:
      return kBubble;
    default:
      return "exposed data communication";
  }
}

// One class of ranks, from the step's begin to its end.
class Day {
 public:
  Day(const program::Program& program, const std::vector<Span>& spans, double end, const Machine& machine)
      : program_(program), spans_(spans), end_(end), machine_(machine) {}

  std::map<std::string, double> parts() {
    double clock = 0;
    int last = -1;
    for (size_t n = 0; n < spans_.size(); ++n) {
      const Instruction& i = program_.instructions[n];
      if (spans_[n].end < 0) continue;
      if (last < 0 || spans_[n].end > spans_[static_cast<size_t>(last)].end) last = static_cast<int>(n);
      if (program::thread_of(i.lane) != Lane::compute) continue;
      wait(i, clock, spans_[n].begin);
      work(i, spans_[n].end - spans_[n].begin);
      clock = spans_[n].end;
    }
    // Behind the last computation: what this rank still sends or gathers, then others that are not done yet.
    const double own = last < 0 ? clock : spans_[static_cast<size_t>(last)].end;
    if (last >= 0 && own > clock)
      add(waiting_for(program_.instructions[static_cast<size_t>(last)]), own - clock);
    add(kBubble, end_ - std::max(own, clock));
    return std::move(parts_);
  }

 private:
  void add(const std::string& name, double seconds) {
    if (seconds > 0) parts_[name] += seconds;
  }

  void work(const Instruction& i, double seconds) {
    if (i.among != Among::none) return add(waiting_for(i), seconds);
    const WorkSeconds kinds = work_seconds(machine_, program_, i);
    for (int k = 0; k < kWorks; ++k) add(name_of(static_cast<Work>(k)), kinds.of[k]);
  }

  // Of those it waits for, the one that is done last is the one it waits for.
  void wait(const Instruction& i, double from, double until) {
    if (until <= from) return;
    const Instruction* blocker = nullptr;
    double done = -1;
    for (const int w : i.waits) {
      const Span& span = spans_[static_cast<size_t>(w)];
      if (span.end > done) done = span.end, blocker = &program_.instructions[static_cast<size_t>(w)];
    }
    if (i.among != Among::none && (blocker == nullptr || done < until)) blocker = &i;  // its own meeting
    add(blocker != nullptr && blocker->among != Among::none ? waiting_for(*blocker) : kBubble, until - from);
  }

  const program::Program& program_;
  const std::vector<Span>& spans_;
  double end_;
  const Machine& machine_;
  std::map<std::string, double> parts_;
};

const char* held_as(const program::Buffer& buffer) {
  switch (buffer.kind) {
    case BufferKind::master:
      return "master weights";
    case BufferKind::compute:
      return buffer.persistent ? "weights" : "gathered weights";
    case BufferKind::frozen:
      return buffer.persistent ? "frozen weights" : "gathered weights";
    case BufferKind::quantized:
      return buffer.persistent ? "quantized weights" : "dequantized weights";
    case BufferKind::gradient:
      return "gradients";
    case BufferKind::optimizer:
      return "optimizer";
    case BufferKind::state:
      return "tables and state";
    case BufferKind::workspace:
      return "workspace";
    case BufferKind::scratch:
      return buffer.block < 0 ? "received from other ranks" : "activations";
    default:
      return "activations";
  }
}

constexpr const char* kCommunication = "communication";
constexpr const char* kNothing = "nothing";

// One class of ranks. What meets others begins when this rank has come to it, as its marks would say.
void add_verbs(const program::Program& program, const std::vector<Span>& spans, double end,
               const std::function<void(const std::string&, double)>& add) {
  std::array<double, program::kLanes> clocks{};
  std::vector<base::Stretch> computes, communicates;
  for (size_t n = 0; n < spans.size(); ++n) {
    const Instruction& i = program.instructions[n];
    if (spans[n].end < 0) continue;
    double& clock = clocks[static_cast<size_t>(program::thread_of(i.lane))];
    double begin = clock;
    for (const int wait : i.waits) begin = std::max(begin, spans[static_cast<size_t>(wait)].end);
    if (i.among == Among::none) begin = spans[n].begin;
    clock = spans[n].end;
    if (i.lane == Lane::compute) {
      computes.emplace_back(begin, clock);
      add(program::name_of(program::verb_of(i.what)), clock - begin);
    } else if (i.lane != Lane::host) {
      communicates.emplace_back(begin, clock);
    }
  }
  const auto busy = base::joined(std::move(computes)), moves = base::joined(std::move(communicates));
  const double exposed = base::length(moves) - base::length_of_both(busy, moves);
  add(kCommunication, exposed);
  add(kNothing, end - base::length(busy) - exposed);
}

// The largest first.
std::vector<TimePart> sorted(const std::map<std::string, double>& sums) {
  std::vector<TimePart> parts;
  for (const auto& [name, seconds] : sums) parts.push_back({name, seconds});
  std::stable_sort(parts.begin(), parts.end(),
                   [](const TimePart& a, const TimePart& b) { return a.seconds > b.seconds; });
  return parts;
}

}  // namespace

std::vector<TimePart> time_parts(const World& world, const Walk& walk, const Machine& machine) {
  std::map<std::string, double> sums;
  for (size_t c = 0; c < walk.classes.list.size(); ++c) {
    const RankClass& one = walk.classes.list[c];
    const double share = static_cast<double>(one.size) / world.ranks();
    Day day(*world.programs[static_cast<size_t>(one.program)], walk.spans[c], walk.step_seconds, machine);
    for (const auto& [name, seconds] : day.parts()) sums[name] += share * seconds;
  }
  return sorted(sums);
}

std::vector<TimePart> verb_parts(const World& world, const Walk& walk) {
  std::map<std::string, double> sums;
  for (size_t c = 0; c < walk.classes.list.size(); ++c) {
    const RankClass& one = walk.classes.list[c];
    const double share = static_cast<double>(one.size) / world.ranks();
    add_verbs(*world.programs[static_cast<size_t>(one.program)], walk.spans[c], walk.step_seconds,
              [&](const std::string& verb, double seconds) {
                if (seconds > 0) sums[verb] += share * seconds;
              });
  }
  return sorted(sums);
}

std::vector<MemoryPart> memory_parts(const program::Program& program, const program::MemoryPlan& memory) {
  std::map<std::string, int64_t> sums;
  const std::vector<program::Lifetime> lives = program::lifetimes(program);
  int64_t known = 0;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const program::Buffer& buffer = program.buffers[b];
    const bool alive = buffer.persistent ? !buffer.host
                                         : lives[b].first >= 0 && lives[b].first <= memory.peak_instruction &&
                                               memory.peak_instruction <= lives[b].last;
    if (!alive) continue;
    sums[held_as(buffer)] += buffer.bytes();
    known += buffer.bytes();
  }
  if (memory.peak_bytes() > known) sums["gaps between buffers"] = memory.peak_bytes() - known;
  std::vector<MemoryPart> parts;
  for (const auto& [name, bytes] : sums) parts.push_back({name, bytes});
  std::stable_sort(parts.begin(), parts.end(),
                   [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  return parts;
}

}  // namespace lockstep::plan

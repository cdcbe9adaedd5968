// Order between lanes, from memory alone: an instruction waits for those of other lanes that came before it
// in the list and touch the same bytes, unless both only read. Placement reuses memory by the list's order,
// so this one rule keeps data and memory right whatever the lanes' speeds are.
#include <algorithm>
#include <array>
#include <map>

#include "lockstep/program/check.h"

namespace lockstep::program {

namespace {

size_t lane_of(const Instruction& i) { return static_cast<size_t>(thread_of(i.lane)); }

// Who touched a run of bytes last, by lane; -1 is nobody.
struct Touched {
  int writer = -1;
  size_t writer_lane = 0;
  std::array<int, kLanes> readers = nobody();
  static constexpr std::array<int, kLanes> nobody() {
    std::array<int, kLanes> none{};
    none.fill(-1);
    return none;
  }
};

// The bytes of one arena, cut where accesses begin and end.
class Bytes {
 public:
  // Runs of [begin, end), cut there if need be.
  template <class Visit>
  void visit(int64_t begin, int64_t end, Visit visit_run) {
    if (begin >= end) return;
    cut(begin);
    cut(end);
    auto it = runs_.find(begin);
    for (; it != runs_.end() && it->first < end; ++it) visit_run(it->second);
  }

 private:
  void cut(int64_t at) {
    const auto next = runs_.upper_bound(at);
    if (next == runs_.begin()) {
      runs_.emplace(at, Touched{});
      return;
    }
    const auto before = std::prev(next);
    if (before->first != at) runs_.emplace_hint(next, at, before->second);
  }
  std::map<int64_t, Touched> runs_;
};

class Orderer {
 public:
  explicit Orderer(Program& program) : program_(program) { seen_.fill(Touched::nobody()); }

  void run() {
    for (size_t n = 0; n < program_.instructions.size(); ++n) {
      Instruction& i = program_.instructions[n];
      const size_t lane = lane_of(i);
      std::array<int, kLanes> wait = Touched::nobody();
      const auto behind = [&](int other, size_t other_lane) {
        if (other >= 0 && other_lane != lane) wait[other_lane] = std::max(wait[other_lane], other);
      };
      for (const Use& use : i.reads) {
        each_run(use, [&](Touched& run) { behind(run.writer, run.writer_lane); });
      }
      for (const Use& use : i.writes) {
        each_run(use, [&](Touched& run) {
          behind(run.writer, run.writer_lane);
          for (size_t l = 0; l < kLanes; ++l) behind(run.readers[l], l);
        });
      }
      for (const Use& use : i.reads) {
        each_run(use, [&](Touched& run) { run.readers[lane] = static_cast<int>(n); });
      }
      for (const Use& use : i.writes) {
        each_run(use,
                 [&](Touched& run) { run = Touched{.writer = static_cast<int>(n), .writer_lane = lane}; });
      }
      i.waits.clear();
      for (size_t l = 0; l < kLanes; ++l) {
        if (wait[l] <= seen_[lane][l]) continue;  // a wait before this one on the same lane covers it
        seen_[lane][l] = wait[l];
        i.waits.push_back(wait[l]);
      }
    }
  }

 private:
  template <class Visit>
  void each_run(const Use& use, Visit visit) {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(use.buffer)];
    if (buffer.external || buffer.offset < 0) return;
    (buffer.host         ? host_
     : buffer.persistent ? persistent_
                         : transient_)
        .visit(buffer.offset, buffer.offset + buffer.bytes(), visit);
  }

  Program& program_;
  Bytes persistent_, transient_, host_;
  std::array<std::array<int, kLanes>, kLanes> seen_;
};

}  // namespace

Lane thread_of(Lane lane) { return lane == Lane::host ? Lane::compute : lane; }

void order(Program& program) {
  const bool one_lane = std::all_of(program.instructions.begin(), program.instructions.end(),
                                    [](const Instruction& i) { return thread_of(i.lane) == Lane::compute; });
  if (one_lane) return;
  Orderer(program).run();
}

}  // namespace lockstep::program

// Reuse: a value may take over the memory of one that nobody reads any more. A rewrite of the list:
// where a plan allows it and the read is the last, the written buffer becomes the read one.
#include "lockstep/program/check.h"
#include "lockstep/program/compile.h"

namespace lockstep::program {

void rewrite_reuse(Program& program) {
  std::vector<int> last_read(program.buffers.size(), -1), last_write(program.buffers.size(), -1);
  std::vector<int> becomes(program.buffers.size());
  for (size_t b = 0; b < becomes.size(); ++b) becomes[b] = static_cast<int>(b);
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    for (const Use& use : program.instructions[n].reads)
      last_read[static_cast<size_t>(use.buffer)] = static_cast<int>(n);
    for (const Use& use : program.instructions[n].writes)
      last_write[static_cast<size_t>(use.buffer)] = static_cast<int>(n);
  }
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    for (const auto& [written, reused] : program.instructions[n].may_reuse) {
      const auto w = static_cast<size_t>(written), r = static_cast<size_t>(reused);
      const bool fits =
          program.buffers[w].bytes() == program.buffers[r].bytes() && !program.buffers[r].persistent;
      // `reused` may itself stand for others that were merged into it: its last read is kept up to date
      // below.
      const auto target = static_cast<size_t>(becomes[r]);
      if (!fits || last_read[target] > static_cast<int>(n) || last_write[target] >= static_cast<int>(n))
        continue;
      becomes[w] = becomes[r];
      last_read[target] = std::max(last_read[target], last_read[w]);
      last_write[target] = std::max(last_write[target], last_write[w]);
    }
  }
  for (Instruction& i : program.instructions) {
    for (auto* uses : {&i.reads, &i.writes}) {
      for (Use& use : *uses) use.buffer = becomes[static_cast<size_t>(use.buffer)];
    }
    i.may_reuse.clear();
  }
}

}  // namespace lockstep::program

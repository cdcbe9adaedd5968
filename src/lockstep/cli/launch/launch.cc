// lockstep launch: torchrun's flags and environment, for any program.
#include <fmt/format.h>

#include "lockstep/cli/commands.h"
#include "lockstep/cli/launch/launch_flags.h"
#include "lockstep/launch/start.h"

namespace lockstep::cli {

int launch_command(Arguments& arguments) {
  launch::Words words;
  std::vector<std::string> program;
  arguments.program("PROGRAM", program,
                    "a Python script, a module with -m, or any other program, with its arguments");
  add_launch_flags(arguments, words, FlagsFor::any_program);
  arguments.example("lockstep launch --nproc-per-node 4 train.py --lr 0.1",
                    "four ranks of a script on this machine");
  arguments.example(
      "lockstep launch --nnodes 2 --node-rank 0 --rdzv-endpoint host0:29400 --nproc-per-node gpu train.py",
      "one rank per GPU on two nodes; use --node-rank 1 on the other node");
  arguments.example("lockstep launch --max-restarts 3 --tee 3 --log-dir logs train.py",
                    "with restarts and per-rank logs");
  arguments.example("PET_NPROC_PER_NODE=4 lockstep launch --max_restarts 3 train.py",
                    "options as variables and with underscores, as in torchrun");
  if (!arguments.parse()) return 0;
  return launch::launch_program(words, program, say_on_console);
}

}  // namespace lockstep::cli

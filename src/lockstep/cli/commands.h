// The commands, one file each. A command declares its words, parses them and returns the exit code:
//
//     int init_command(Arguments& arguments);   // in init.cc
//
// Errors are thrown, not printed: main.cc catches them, prints one sentence and exits with the error's code.
// Reports go to standard output (as JSON with --json), progress and remarks to standard error, both through
// print.h. A new command is a file, a line here and a row in main.cc.
#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/arguments.h"

namespace lockstep::cli {

int init_command(Arguments& arguments);
int train_command(Arguments& arguments);
int launch_command(Arguments& arguments);
int drill_command(Arguments& arguments);
int plan_command(Arguments& arguments);
int prices_command(Arguments& arguments);
int receipt_command(Arguments& arguments);
int shop_command(Arguments& arguments);
int budget_command(Arguments& arguments);
int tune_command(Arguments& arguments);
int verify_command(Arguments& arguments);
int generate_command(Arguments& arguments);
int tokenize_command(Arguments& arguments);
int data_command(Arguments& arguments);
int eval_command(Arguments& arguments);
int export_command(Arguments& arguments);
int inspect_command(Arguments& arguments);
int metrics_command(Arguments& arguments);
int plot_command(Arguments& arguments);
int top_command(Arguments& arguments);
int dash_command(Arguments& arguments);
int attach_command(Arguments& arguments);
int replay_command(Arguments& arguments);
int audit_command(Arguments& arguments);
int profile_command(Arguments& arguments);
int notify_command(Arguments& arguments);
int explain_command(Arguments& arguments);
int schema_command(Arguments& arguments);
int doctor_command(Arguments& arguments);
int topo_command(Arguments& arguments);
int bench_command(Arguments& arguments);
int submit_command(Arguments& arguments);
int jobs_command(Arguments& arguments);
int logs_command(Arguments& arguments);
int stop_command(Arguments& arguments);
int why_command(Arguments& arguments);
int ssh_command(Arguments& arguments);
int targets_command(Arguments& arguments);

int completions_command(Arguments& arguments);
int man_command(Arguments& arguments);

// Every command, as its own declarations describe it.
std::vector<Description> describe_commands();
// `lockstep --complete WORD...`: what the last word may become, a line each; nothing: perhaps a file.
int complete(const std::vector<std::string>& words);

// `lockstep explain program ...` and `lockstep explain memory ...`: the words after the subject.
int explain_program(const std::vector<std::string>& words);
int explain_memory(const std::vector<std::string>& words);
int explain_parameters(const std::vector<std::string>& words);
int data_show(const std::vector<std::string>& words);       // `lockstep data show ...`
int bench_data(const std::vector<std::string>& words);      // `lockstep bench data ...`
int bench_step(const std::vector<std::string>& words);      // `lockstep bench step ...`
int bench_machine(const std::vector<std::string>& words);   // `lockstep bench machine ...`
int bench_generate(const std::vector<std::string>& words);  // `lockstep bench generate ...`

// `lockstep bench checkpoint ...`.
int bench_checkpoint(const std::vector<std::string>& words);

}  // namespace lockstep::cli

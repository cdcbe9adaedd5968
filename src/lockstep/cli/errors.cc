// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::cli {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {108, "No such command", {"The command is misspelt."}, {"`lockstep --help` lists the commands."}},
      {110,
       "A file stands in the way",
       {"`init` does not overwrite a file."},
       {"Choose another name, or add --force to overwrite it."}},
      {111,
       "Nothing by that name to explain",
       {"The word is no key, section, error code or other subject."},
       {"`lockstep explain` alone lists what can be explained."}},
      {162,
       "Not a folder with a model",
       {"`lockstep generate` was given a name that is not a folder, or no run stands in runs/first."},
       {"Name the folder that `lockstep train` printed, a checkpoint or a Hugging Face folder."}},
      {163,
       "Text from a model that does not predict tokens",
       {"`lockstep generate` needs a language model."},
       {"Use it on runs of the gpt2, llama or mlp family."}},
      {323,
       "No such checkpoint",
       {"--resume names a folder that does not exist."},
       {"`ls RUN/checkpoints` shows what there is."}},
      {327,
       "Nothing to evaluate on",
       {"The data has no held-out part: data.eval_fraction is 0 and data.eval_path is not set."},
       {"Name a file with data.eval_path, or set data.eval_fraction."}},
      {328,
       "No checkpoint of the run can be used",
       {"Every checkpoint of the folder is damaged: files are missing, cut off or changed. Each is named "
        "above."},
       {"Bring the files back from a copy.", "Start over with --resume never, or in a folder of its own."}},
      {329,
       "A run whose newest checkpoints are damaged",
       {"`lockstep inspect --check` found one that can be used, and newer ones that cannot."},
       {"Remove them, or bring their files back: until then everybody takes the older one."}},
      {561,
       "A drill that cannot be held",
       {"A fault that does not exist, a count that is none, or too many ranks."},
       {"`lockstep drill --help` lists the options; without --faults every fault is tried once."}},
      {603,
       "The run that a drill compares with did not finish",
       {"The recipe does not train on this machine, even undisturbed."},
       {"Run `lockstep train` with the same recipe and --nproc first; its message says what is wrong."}},
      {604,
       "A model whose loss is not a finite number",
       {"Its weights are infinite or not numbers: training went wrong before they were saved.",
        "Its values overflow in the type that it was evaluated in."},
       {"Evaluate an older checkpoint of the run.", "Evaluate with precision.compute=fp32."}},
      {624,
       "verify was stopped",
       {"Ctrl-C, or a scheduler's signal."},
       {"Run it again; name fewer layouts with --layouts if time is short."}},
      {819,
       "No more threads",
       {"The user's limit of processes (`ulimit -u`) or pids.max of the control group is reached: threads "
        "count "
        "as processes."},
       {"Raise the limit: some twenty for each rank, besides run.threads.", "Set run.threads=1."}},
      {820,
       "A path of the system that cannot be used",
       {"The working folder was removed under the command, or /proc is not mounted."},
       {"Change to a folder that is there; mount /proc."}},
  };
}

}  // namespace lockstep::cli

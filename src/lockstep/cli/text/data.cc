// lockstep data: what a run would read.
#include "lockstep/base/error.h"
#include "lockstep/cli/commands.h"

namespace lockstep::cli {

int data_command(Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words();
  if (!words.empty() && words[0] == "show") return data_show({words.begin() + 1, words.end()});
  std::string subject;
  arguments.positional("SUBJECT", subject,
                       "show: print samples as the model sees them (`lockstep data show --help`)");
  arguments.example("lockstep data show chat.jsonl --tokenizer Qwen3-8B/", "what is trained on, in colour");
  if (!arguments.parse()) return 0;
  throw base::ConfigError(109, "data takes a subject: lockstep data show PATH");
}

}  // namespace lockstep::cli

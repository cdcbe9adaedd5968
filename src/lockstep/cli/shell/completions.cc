// lockstep completions: a few lines for a shell, which asks the program itself (`lockstep --complete`) what a
// word may become. So commands, options, recipe keys, their values and run names are never out of date.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// bash cuts words at '=': what is offered is then only what follows it. It writes on the line what it is
// given: names of folders are quoted, or they would be commands.
constexpr const char* kBash = R"(_lockstep() {
  local line=${COMP_LINE:0:COMP_POINT} words current
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  current=${words[-1]}
  local IFS=$'\n'
  COMPREPLY=($(command "${words[0]}" --complete "${words[@]:1}" 2>/dev/null))
  if ((${#COMPREPLY[@]})); then COMPREPLY=($(printf '%q\n' "${COMPREPLY[@]}")); fi
  if [[ $current == *=* && $COMP_WORDBREAKS == *=* ]]; then COMPREPLY=("${COMPREPLY[@]#*=}"); fi
  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o bashdefault -o default -F _lockstep lockstep
)";

constexpr const char* kZsh = R"(#compdef lockstep
_lockstep() {
  local -a found
  found=("${(@f)$(command $words[1] --complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if (( ${#found} )) && [[ -n $found[1] ]]; then
    compadd -S '' -a found
  else
    _files
  fi
}
if [[ $funcstack[1] == _lockstep ]]; then _lockstep; else compdef _lockstep lockstep; fi
)";

constexpr const char* kFish = R"(function __lockstep_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l found (command $words[1] --complete $words[2..-1] 2>/dev/null)
  if set -q found[1]
    printf '%s\n' $found
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c lockstep -f -a '(__lockstep_complete)'
)";

struct Shell {
  const char* name;
  const char* script;
  const char* use;
};
constexpr Shell kShells[] = {
    {"bash", kBash, "in ~/.bashrc: source <(lockstep completions bash)"},
    {"zsh", kZsh, "in ~/.zshrc, behind compinit: source <(lockstep completions zsh)"},
    {"fish", kFish, "lockstep completions fish > ~/.config/fish/completions/lockstep.fish"}};

using Words = std::vector<std::string>;

void offer(Words& found, const std::string& word, const std::string& typed) {
  if (word.starts_with(typed)) found.push_back(word);
}

// Of optim.na: optim.name=; of optim.name=a: optim.name=adamw.
void offer_keys(Words& found, const std::string& typed) {
  const size_t equals = typed.find('=');
  if (equals == std::string::npos) {
    for (const recipe::Key& key : recipe::recipe_keys()) offer(found, key.name + "=", typed);
    return;
  }
  const recipe::Key* key = recipe::find_key(typed.substr(0, equals));
  if (key == nullptr) return;
  Words values = key->choices;
  if (key->type == recipe::Key::Type::boolean) values = {"true", "false"};
  if (key->type == recipe::Key::Type::auto_integer) values.push_back("auto");
  for (const std::string& value : values) offer(found, key->name + "=" + value, typed);
}

bool takes_keys(const Description& command) {
  return std::any_of(command.positionals.begin(), command.positionals.end(), [](const auto& row) {
    return row.shown.starts_with("KEY=VALUE") || row.shown.starts_with("key=value");
  });
}

bool takes_run(const Description& command) {
  return std::any_of(command.positionals.begin(), command.positionals.end(), [](const auto& row) {
    return row.shown.starts_with("RUN") || row.shown == "DIR" || row.shown == "SRC";
  });
}

// Of "--resume VALUE" and "--tokens, --max-tokens N", not of "--quiet, -q".
bool takes_value(const Description& command, const std::string& option) {
  return std::any_of(command.options.begin(), command.options.end(), [&](const auto& row) {
    const std::string& shown = row.shown;
    const size_t last = shown.rfind(' ') + 1;
    if (last == 0 || shown[last] == '-') return false;
    return fmt::format(" {},", shown.substr(0, last - 1)).find(fmt::format(" {},", option)) !=
           std::string::npos;
  });
}

void offer_runs(Words& found, const std::string& typed) {
  std::error_code error;
  for (fs::directory_iterator at("runs", error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored)) offer(found, "runs/" + at->path().filename().string(), typed);
  }
}

Words completions_of(const Words& words) {
  Words found;
  const std::string typed = words.empty() ? "" : words.back();
  const std::vector<Description> commands = describe_commands();
  if (words.size() < 2) {
    for (const Description& command : commands) offer(found, command.command, typed);
    for (const char* word : {"help", "--help", "--version"}) offer(found, word, typed);
    return found;
  }
  const std::string& name = words[0];
  if (name == "help" || (name == "man" && !typed.starts_with("-"))) {
    for (const Description& command : commands) offer(found, command.command, typed);
    return found;
  }
  for (const Description& command : commands) {
    if (command.command != name) continue;
    const std::string& before = words[words.size() - 2];
    if (words.size() > 2 && takes_value(command, before)) {  // otherwise a file, which the shell knows
      if (before == "--run" || before == "--resume") offer_runs(found, typed);
    } else if (typed.starts_with("-")) {
      for (const std::string& option : command.option_names) {
        if (option.find('_') == std::string::npos) offer(found, option, typed);
      }
      offer(found, "--help", typed);
    } else {
      const bool explains = name == "explain" && typed.find('=') == std::string::npos;
      if (explains)
        for (const recipe::Key& key : recipe::recipe_keys()) offer(found, key.name, typed);
      else if (takes_keys(command))
        offer_keys(found, typed);
      if (takes_run(command)) offer_runs(found, typed);
      if (name == "completions")
        for (const Shell& shell : kShells) offer(found, shell.name, typed);
    }
  }
  return found;
}

}  // namespace

int complete(const Words& words) {
  Words found = completions_of(words);
  std::sort(found.begin(), found.end());
  for (const std::string& word : found) print("{}\n", word);
  return 0;
}

int completions_command(Arguments& arguments) {
  std::string name;
  arguments.positional("SHELL", name, "bash, zsh or fish");
  for (const Shell& shell : kShells)
    arguments.example(std::string("lockstep completions ") + shell.name, shell.use);
  if (!arguments.parse()) return 0;
  Words names;
  for (const Shell& shell : kShells) {
    names.push_back(shell.name);
    if (name != shell.name) continue;
    std::fputs(shell.script, stdout);
    return 0;
  }
  throw base::ConfigError(109, fmt::format("completions: {}; expected one of {}",
                                           name.empty() ? "which shell?"
                                                        : base::quoted(name) + " is not a shell "
                                                                               "that is known here",
                                           base::join(names, ", ")));
}

}  // namespace lockstep::cli

// lockstep man: manual pages, made of what the commands declare for --help.
#include <fmt/format.h>

#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/print.h"

namespace lockstep::cli {
namespace {

// Text that no formatter takes for its own: dashes stay dashes, and no line begins with a request.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string upper(std::string name) {
  for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return name;
}

std::string title(const std::string& name, const std::string& summary) {
  return fmt::format(".TH {} 1 \"\" \"Lockstep {}\" \"Lockstep\"\n.SH NAME\n{} \\- {}\n", upper(name),
                     base::kVersion, plain(name), plain(summary));
}

std::string rows(const char* heading, const std::vector<Description::Row>& all) {
  if (all.empty()) return "";
  std::string out = fmt::format(".SH {}\n", heading);
  for (const Description::Row& row : all)
    out += fmt::format(".TP\n.B {}\n{}\n", plain(row.shown), plain(row.help));
  return out;
}

std::string page_of(const Description& command) {
  std::string words;
  for (const Description::Row& row : command.positionals)
    words += fmt::format(" [\\fI{}\\fR]", plain(row.shown));
  const std::string options = command.options.empty() ? "" : " [options]";
  return title("lockstep-" + command.command, command.summary) +
         fmt::format(".SH SYNOPSIS\n.B lockstep {}\n{}\n", plain(command.command),
                     command.runs_program ? options + words : words + options) +
         rows("ARGUMENTS", command.positionals) + rows("OPTIONS", command.options) +
         rows("EXAMPLES", command.examples) + ".SH SEE ALSO\n.BR lockstep (1)\n";
}

std::string page_of_all(const std::vector<Description>& commands) {
  std::string out = title("lockstep", "train deep networks on one device or many") +
                    ".SH SYNOPSIS\n.B lockstep\n\\fICOMMAND\\fR [...]\n.SH DESCRIPTION\n"
                    "The same recipe and seed give the same bits, on one rank or many.\n.SH COMMANDS\n";
  for (const Description& command : commands)
    out += fmt::format(".TP\n.BR lockstep\\-{} (1)\n{}\n", plain(command.command), plain(command.summary));
  return out +
         ".SH EXIT STATUS\n0 done, 1 failed, 2 rejected, 3 unusable data or checkpoint, 75 preempted and "
         "saved: run "
         "again.\n";
}

}  // namespace

int man_command(Arguments& arguments) {
  std::string name, folder;
  arguments.positional("COMMAND", name, "whose page; default: the page about all of them");
  arguments.option("--out", folder, "write every page into this folder instead");
  arguments.example("lockstep man train | man -l -", "read the page of train");
  arguments.example("lockstep man --out ~/.local/share/man/man1", "install all pages: man lockstep-train");
  if (!arguments.parse()) return 0;
  const std::vector<Description> commands = describe_commands();
  if (!folder.empty()) {
    base::make_folders(folder);
    base::write_file_durable(folder + "/lockstep.1", page_of_all(commands));
    for (const Description& command : commands)
      base::write_file_durable(fmt::format("{}/lockstep-{}.1", folder, command.command), page_of(command));
    print("{} pages in {}\n", commands.size() + 1, folder);
    return 0;
  }
  if (name.empty()) {
    std::fputs(page_of_all(commands).c_str(), stdout);
    return 0;
  }
  std::vector<std::string> names;
  for (const Description& command : commands) {
    names.push_back(command.command);
    if (command.command != name) continue;
    std::fputs(page_of(command).c_str(), stdout);
    return 0;
  }
  throw base::ConfigError(
      108, fmt::format("{} is not a command; commands are {}", base::quoted(name), base::join(names, ", ")));
}

}  // namespace lockstep::cli

#include "lockstep/base/error_catalogue.h"

#include <algorithm>

namespace lockstep::base {

// Ranges: 01xx recipe and usage, 02xx data, 03xx checkpoint, 04xx device and memory, 05xx communication and
// launch, 06xx run and numerics, 07xx set-up, 08xx files. Numbers are never reused. Keep them in order.
const std::vector<ErrorExplanation>& error_catalogue() {
  static const std::vector<ErrorExplanation> rows = {
      {101,
       "A key or section that recipes do not have",
       {"A name is misspelt, or stands in the wrong section.",
        "The recipe was written for another version of Lockstep or for another trainer."},
       {"`lockstep explain` lists every key; `lockstep explain optim` those of one section.",
        "Editors check recipes as you type with the schema from `lockstep schema`."}},
      {102,
       "A value of the wrong type",
       {"Text where a number belongs, or the other way round.",
        "A section is used as a value, or a value as a section."},
       {"`lockstep explain KEY` shows the type, the range and an example.",
        "In a recipe, text stands in double quotes: name = \"first\"."}},
      {103,
       "A number out of range",
       {"The value makes no sense for this key, such as zero layers.",
        "A minus sign or exponent slipped in."},
       {"`lockstep explain KEY` shows the range."}},
      {104,
       "Text that the key does not allow",
       {"The key has a fixed list of values or a fixed form.",
        "The text is longer than 4096 bytes or holds control characters."},
       {"`lockstep explain KEY` lists what is allowed."}},
      {105,
       "The recipe is not valid TOML",
       {"A bracket or quote is not closed, or text has no quotes.", "The same key is set twice."},
       {"Look at the line and column in the message.",
        "`lockstep init -` prints a whole valid recipe to compare with."}},
      {106,
       "The recipe file cannot be read",
       {"The path is misspelt or relative to another folder.",
        "It is a folder, is larger than 1 MiB, or may not "
        "be read by this user."},
       {"Check the path with `ls -l`.", "`lockstep init FILE` writes a commented recipe to start from."}},
      {107,
       "An override without key or '='",
       {"A word on the command line is neither an option nor key=value.",
        "Blanks around '=' split it into several words."},
       {"Write key=value without blanks, as in optim.lr=1e-3.",
        "Quote values with blanks: 'data.path=my file.txt'."}},
      {108, "No such command", {"The command is misspelt."}, {"`lockstep --help` lists the commands."}},
      {109,
       "Words on the command line that the command does not take",
       {"An option is misspelt, lacks its value, or belongs to another command."},
       {"`lockstep COMMAND --help` lists what it takes, with examples."}},
      {110,
       "A file stands in the way",
       {"`init` does not overwrite a file."},
       {"Choose another name, or add --force to overwrite it."}},
      {111,
       "Nothing by that name to explain",
       {"The word is no key, section, error code or other subject."},
       {"`lockstep explain` alone lists what can be explained."}},
      {801,
       "A file cannot be read",
       {"It does not exist, or this user may not read it.",
        "It is a folder, or larger than such a file can be.", "The disk or the network file system failed."},
       {"Check the path with `ls -l`.", "If the disk failed, `dmesg` says more."}},
      {802,
       "A file cannot be written",
       {"The disk or the quota is full.", "The folder does not exist or may not be written by this user."},
       {"`df -h` and `df -i` show free space and inodes; `lockstep doctor` checks the run folder.",
        "Choose another place with log.folder."}},
      {803,
       "A folder cannot be made",
       {"A file of that name stands there.", "This user may not write in the folder above.",
        "The disk is full or read-only."},
       {"Choose another place with log.folder, or another run.name."}},
      {804,
       "Another process uses the run folder",
       {"The same run is already training here or on another host.",
        "A process of an earlier run is still saving."},
       {"Wait for the process named in the message, or stop it.",
        "Give this run a name of its own: run.name=second."}},
      {806,
       "A recorder ring that cannot be used",
       {"The file is not a ring, was cut short, or was written by another version."},
       {"Look at the rings of the same run and version; the training itself does not need this file."}},
  };
  return rows;
}

const ErrorExplanation* find_error(int number) {
  const auto& rows = error_catalogue();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.number == number; });
  return found == rows.end() ? nullptr : &*found;
}

std::optional<int> parse_code(std::string_view text) {
  if (text.size() >= 2 && (text[0] | 0x20) == 'l' && (text[1] | 0x20) == 's') text.remove_prefix(2);
  if (text.empty() || text.size() > 4) return std::nullopt;
  int number = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = 10 * number + (c - '0');
  }
  return number;
}

}  // namespace lockstep::base

// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::recipe {

std::vector<base::ErrorExplanation> error_rows() {
  return {
      {101,
       "Unknown recipe key or section",
       {"A name is misspelled, or is in the wrong section.",
        "The recipe was written for another version of Lockstep or for another trainer."},
       {"`lockstep explain` lists every key; `lockstep explain optim` those of one section.",
        "Editors check recipes as you type with the schema from `lockstep schema`."}},
      {102,
       "Value of the wrong type",
       {"A string instead of a number, or the other way round.",
        "A section is used as a value, or a value as a section."},
       {"`lockstep explain KEY` shows the type, the range and an example.",
        "In a recipe, strings are in double quotes: name = \"first\"."}},
      {103,
       "Number out of range",
       {"The value is not possible for this key, such as zero layers.", "A stray minus sign or exponent."},
       {"`lockstep explain KEY` shows the range."}},
      {104,
       "Value not allowed for this key",
       {"The key accepts only certain values or a certain form.",
        "The string is longer than 4096 bytes or contains control characters."},
       {"`lockstep explain KEY` lists what is allowed."}},
      {105,
       "Invalid TOML",
       {"A bracket or quote is not closed, or a string has no quotes.", "The same key is set twice."},
       {"See the line and column in the message.",
        "`lockstep init -` prints a complete valid recipe for comparison."}},
      {106,
       "Cannot read the recipe",
       {"The path is misspelled or relative to another folder.",
        "It is a folder, is larger than 1 MiB, or is not readable by this user."},
       {"Check the path with `ls -l`.", "`lockstep init FILE` writes a commented recipe to start from."}},
      {107,
       "Invalid override",
       {"A command-line argument is neither an option nor key=value.",
        "Spaces around '=' split it into several arguments."},
       {"Write key=value without spaces, for example optim.lr=1e-3.",
        "Quote values that contain spaces: 'data.path=my file.txt'."}},
      {112,
       "Several errors in a recipe",
       {"More than one key or value in the file or on the command line is wrong; each line has its own "
        "code."},
       {"Correct them all: `lockstep explain` with a line's code or key says more."}},
      {142,
       "A parameter group that cannot be read",
       {"optim.groups has a word that is no pattern, or a key that groups do not have."},
       {"Write a pattern of names and what is their own, as \"*.bias weight_decay=0\".",
        "In a file, each group may be a table: [[optim.groups]] with match, lr_scale, weight_decay, frozen, "
        "kind."}},
      {148,
       "Sources of data that cannot be read",
       {"data.mix has a source without a path, a word that sources do not have, or a value out of range.",
        "Some sources have a weight and others have none, or two have one name."},
       {"Write each source as PATH=WEIGHT, or as words: \"path=web/ weight=0.7 name=web epochs=2\".",
        "In a file, each source may be a table: [[data.mix]] with path, weight, name, epochs, eval, kind, "
        "field."}},
  };
}

}  // namespace lockstep::recipe

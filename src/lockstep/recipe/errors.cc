// The numbers of this folder's errors, at length (base/error_catalogue.h).
#include "lockstep/base/error_catalogue.h"

namespace lockstep::recipe {

std::vector<base::ErrorExplanation> error_rows() {
  return {
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
      {112,
       "Several mistakes in a recipe",
       {"More than one key or value of the file or of the command line does not fit; each line has its own "
        "code."},
       {"Correct them all: `lockstep explain` with a line's code or key says more."}},
      {142,
       "A parameter group that cannot be read",
       {"optim.groups has a word that is no pattern, or a key that groups do not have."},
       {"Write a pattern of names and what is their own, as \"*.bias weight_decay=0\".",
        "In a file, each group may be a table: [[optim.groups]] with match, lr_scale, weight_decay, frozen, "
        "kind."}},
  };
}

}  // namespace lockstep::recipe

#include "lockstep/recipe/edit_toml.h"

#include <gtest/gtest.h>

namespace lockstep::recipe {
namespace {

TEST(EditToml, KeysAreReplacedAndAdded) {
  struct Row {
    const char *before, *key, *value, *after;
  };
  for (const Row& row : {
           Row{"[batch]\nslices = 4  # ours\n", "batch.slices", "64", "[batch]\nslices = 64  # ours\n"},
           Row{"[batch]\nglobal = 8\n\n[optim]\nlr = 1\n", "batch.slices", "2",
               "[batch]\nglobal = 8\nslices = 2\n\n[optim]\nlr = 1\n"},
           Row{"[batch]\nglobal = 8\n", "memory.recompute", "\"full\"",
               "[batch]\nglobal = 8\n\n[memory]\nrecompute = \"full\"\n"},
           Row{"", "memory.recompute", "\"full\"", "[memory]\nrecompute = \"full\"\n"},
           Row{"batch.slices = 4\n", "batch.slices", "8", "batch.slices = 8\n"},
           Row{"# slices = 1\n[batch]\nslices_x = 1\n", "batch.slices", "8",
               "# slices = 1\n[batch]\nslices_x = 1\nslices = 8\n"},
           Row{"[run]\nname = \"a#b\" # c\n", "run.name", "\"x\"", "[run]\nname = \"x\"  # c\n"},
           Row{"[run]\nname = 'a\\' # c\n", "run.name", "\"x\"", "[run]\nname = \"x\"  # c\n"},
           Row{"[run]\nbatch.slices = 1\n", "batch.slices", "8",
               "[run]\nbatch.slices = 1\n\n[batch]\nslices = 8\n"},
           Row{"[data]\nseq_len = 8\n[[data.mix]]\npath = \"a\"\nseq_len = 4\n[[data.mix]]\npath = \"b\"\n",
               "data.seq_len", "16",
               "[data]\nseq_len = 16\n[[data.mix]]\npath = \"a\"\nseq_len = 4\n[[data.mix]]\npath = \"b\"\n"},
           Row{"[data]\nseq_len = 8\n[[data.mix]]\npath = \"a\"\n[batch]\nglobal = 8\n", "data.field",
               "\"x\"",
               "[data]\nseq_len = 8\nfield = \"x\"\n[[data.mix]]\npath = \"a\"\n[batch]\nglobal = 8\n"},
           Row{"[[data.mix]]\nslices = 1\n[batch]\nslices = 4\n", "batch.slices", "8",
               "[[data.mix]]\nslices = 1\n[batch]\nslices = 8\n"},
           Row{"[optim]\nslices = 1\n[batch]\n", "batch.slices", "8",
               "[optim]\nslices = 1\n[batch]\nslices = 8\n"},
       }) {
    EXPECT_EQ(edit_toml(row.before, {{row.key, row.value}}), row.after) << row.before;
  }
}

}  // namespace
}  // namespace lockstep::recipe

// `lockstep explain program` and `explain memory`.
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/cli/testing.h"

namespace lockstep::cli {
namespace {

TEST(Explain, ProgramAndMemory) {
  base::TemporaryFolder folder;
  const std::vector<Row> rows = {
      {"$L explain program", 0, "backward_input b4.down s0"},
      {"$L explain program memory.recompute=full --all", 0, "recompute b1.qkv s3"},
      {"$L explain program --json | head -c 12", 0, "{\"buffers\":"},
      {"$L explain memory model.layers=2", 0, "activations: layer 1"},
      {"$L explain memory model.layers=9", 0, "activations: layer 1 to layer "},
      // What a step takes can be said before the data is there, where the recipe says how many tokens it
      // knows.
      {"$L explain memory model.layers=2 data.kind=tokens data.path=absent model.vocab=50257", 0, "layer 1"},
      {"$L explain program model.layers=2 data.kind=text data.path=absent", 0, "update"},
      {"$L explain memory data.kind=tokens data.path=absent", 3, "[LS0202]"},
      {"$L explain memory --json | head -c 9", 0, "{\"alive\":"},
      // Ranks that do not exist: the list of one of them, and what each would hold.
      {"$L explain program model.layers=1 parallel.zero=3 --nproc 4 --rank 1", 0,
       "rank 1 of 4, parallel.zero=3; slices 1, 5 of 8"},
      {"$L explain program model.layers=1 parallel.zero=3 --nproc 4", 0, "gather b1 s0 among shard ranks"},
      {"$L explain program model.layers=1 parallel.zero=3 --nproc 4", 0, "release b1 s0"},
      {"$L explain program parallel.pipeline=2 --nproc 4", 0, "the 4 ranks have 2 different programs"},
      {"$L explain memory parallel.auto=true --nproc 2 2>&1", 0, "chosen"},
      {"$L explain program model.layers=1 parallel.zero=3 --nproc 4 | grep 'forward b0.embed s0'", 0,
       "waits #3"},
      {"$L explain program model.layers=1 --nproc 2 | grep 'reduce among replicas'", 0, "b2 b1 b0"},
      {"$L explain program model.layers=1 parallel.zero=3 parallel.shard=2 --nproc 4 --rank 3", 0,
       "rank 1 of 2 in replica 1 of 2"},
      {"$L explain memory model.layers=1 parallel.zero=3 --nproc 3", 0, "ranks"},
      {"$L explain program --nproc 4 --rank 4", 2, "--nproc 4 has ranks 0 to 3"},
      {"$L explain program --nproc 9", 2, "cannot be distributed over 9 data ranks"},
      {"$L explain memory --nproc 0", 2, "--nproc 0"},
      // What is timed is one rank, whatever the recipe is for.
      {"$L tune model.layers=1 model.hidden=16 batch.global=4 data.seq_len=8 parallel.data=2 parallel.zero=3 "
       "--steps 1",
       0, "timed on one rank"},
  };
  expect_rows(folder.path(), rows);
}

}  // namespace
}  // namespace lockstep::cli

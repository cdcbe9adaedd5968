#include "lockstep/run/saving/memory_snapshot.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

using Words = std::vector<std::string>;

// What a launcher keeps: one memory for each rank, which outlives the sessions.
struct Memories {
  std::vector<int> files;
  explicit Memories(int ranks) {
    for (int r = 0; r < ranks; ++r) files.push_back(::memfd_create("test", MFD_CLOEXEC));
  }
  ~Memories() {
    for (const int file : files) ::close(file);
  }
  int of(int rank) const { return ::dup(files[static_cast<size_t>(rank)]); }
  void replace(int rank) {
    ::close(files[static_cast<size_t>(rank)]);
    files[static_cast<size_t>(rank)] = ::memfd_create("test", MFD_CLOEXEC);
  }
  // Flips a bit in the middle of a generation; its commit word stays.
  void damage(int rank, int generation) const {
    const int file = files[static_cast<size_t>(rank)];
    const off_t half = (::lseek(file, 0, SEEK_END) - 4096) / 2, at = 4096 + generation * half + half / 3;
    char byte = 0;
    ASSERT_EQ(::pread(file, &byte, 1, at), 1);
    byte ^= 4;
    ASSERT_EQ(::pwrite(file, &byte, 1, at), 1);
  }
};

struct Ended {
  std::string hash;
  std::optional<int64_t> from;
};

// Trains up to `steps` with whatever the memories hold; every rank must say the same.
Ended train_with(const Memories& memories, int world, const Words& words, int64_t steps,
                 int64_t on_disk = 0) {
  std::vector<Ended> ended(static_cast<size_t>(world));
  on_ranks(world, "shm", [&](comm::World& one) {
    Words all = {"batch.global=8", "batch.slices=8", "batch.strands=8", "checkpoint.snapshot_every=2",
                 "optim.schedule=constant"};
    all.insert(all.end(), words.begin(), words.end());
    all.push_back("run.steps=" + std::to_string(steps));
    Ranks ranks(one);
    Session session(make_plan(tiny_recipe(all), {}, for_this(ranks)), &ranks);
    MemorySnapshots snapshots(session, memories.of(one.rank()));
    TrainOptions options;
    Ended& mine = ended[static_cast<size_t>(one.rank())];
    mine.from = snapshots.restore(on_disk);
    options.first_step = mine.from.value_or(0);
    options.snapshots = &snapshots;
    Observer nobody;
    mine.hash = train(session, options, nobody).params_hash;
  });
  for (const Ended& one : ended) {
    EXPECT_EQ(one.hash, ended[0].hash);
    EXPECT_EQ(one.from, ended[0].from);
  }
  return ended[0];
}

constexpr int64_t kSteps = 12;

struct Layout {
  const char* name;
  int world;
  Words words;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
class MemorySnapshotsOf : public testing::TestWithParam<Layout> {};

TEST_P(MemorySnapshotsOf, BringTheSameBitsBack) {
  LS_NEEDS_HOST_MEMORY();
  const auto& [name, world, words] = GetParam();
  const Memories untouched(world);
  const std::string expected = train_with(untouched, world, words, kSteps).hash;
  const bool shares = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word.starts_with("parallel.zero") || word.starts_with("parallel.tensor") ||
           word.starts_with("parallel.pipeline");
  });
  struct Case {
    const char* what;
    int64_t died_at;
    std::function<void(Memories&)> meanwhile;
    int64_t on_disk;
    std::optional<int64_t> from;
  };
  const int last = world - 1;
  const Case cases[] = {
      {"all have the newest", 7, {}, 0, 6},
      {"right at a snapshot", 8, {}, 0, 8},
      {"before the first", 1, {}, 0, std::nullopt},
      {"the disk has a newer one", 7, {}, 6, std::nullopt},
      {"the disk has an older one", 7, {}, 5, 6},
      // After 6 steps the generations hold 6 and 4: the third snapshot, 6, is in the first.
      {"one is damaged on a rank", 7, [&](Memories& m) { m.damage(last, 0); }, 0,
       shares || world == 1 ? 4 : 6},
      {"a rank has lost its memory", 7, [&](Memories& m) { m.replace(last); }, 0,
       shares || world == 1 ? std::nullopt : std::optional<int64_t>(6)},
      // It writes the lines of metrics.jsonl: the others may be ahead of them.
      {"the newest is damaged on the first rank", 7, [&](Memories& m) { m.damage(0, 0); }, 0, 4},
      {"the first rank has lost its memory", 7, [&](Memories& m) { m.replace(0); }, 0,
       shares || world == 1 ? std::nullopt : std::optional<int64_t>(6)},
      {"all are damaged", 7,
       [&](Memories& m) {
         for (int r = 0; r < world; ++r) m.damage(r, 0), m.damage(r, 1);
       },
       0, std::nullopt},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Memories memories(world);
    train_with(memories, world, words, one.died_at);
    if (one.meanwhile) one.meanwhile(memories);
    const Ended ended = train_with(memories, world, words, kSteps, one.on_disk);
    EXPECT_EQ(ended.from, one.from);
    EXPECT_EQ(ended.hash, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, MemorySnapshotsOf,
    testing::Values(
        Layout{"alone", 1, {}}, Layout{"copies", 3, {}},
        Layout{"bf16", 2, {"precision.compute=bf16", "model.dropout=0.1"}},
        Layout{"fp16_llama", 2, {"precision.compute=fp16", "model.family=llama"}},
        Layout{"zero1", 2, {"parallel.zero=1"}}, Layout{"zero2", 4, {"parallel.zero=2"}},
        Layout{"zero3", 3, {"parallel.zero=3"}},
        Layout{"zero3_pairs_bf16", 4, {"parallel.zero=3", "parallel.shard=2", "precision.compute=bf16"}},
        Layout{"tensor", 2, {"parallel.tensor=2"}}, Layout{"tensor_copies", 4, {"parallel.tensor=2"}},
        Layout{"pipeline", 2, {"parallel.pipeline=2"}},
        Layout{"pipeline_copies", 4, {"parallel.pipeline=2", "model.family=llama"}},
        Layout{"context", 2, {"parallel.context=2"}},
        Layout{"tensor_zero1", 4, {"parallel.tensor=2", "parallel.zero=1"}}),
    [](const auto& row) { return std::string(row.param.name); });

// Ranks that came back from memory may be lost again before they have taken a snapshot of their own.
TEST(MemorySnapshots, ServeARestartThatIsLostToo) {
  LS_NEEDS_HOST_MEMORY();
  const Memories memories(2);
  train_with(memories, 2, {}, 8);
  for (int times = 0; times < 3; ++times) EXPECT_EQ(train_with(memories, 2, {}, 9).from, 8) << times;
}

TEST(MemorySnapshots, CopyingTakesAHundredthOfTheTime) {
  EXPECT_EQ(snapshot_interval(0.001, 1), 1);
  EXPECT_EQ(snapshot_interval(0.5, 1), 50);
  EXPECT_EQ(snapshot_interval(0.501, 1), 51);
  EXPECT_EQ(snapshot_interval(100, 1), 1000) << "so that not too much is done again";
  EXPECT_EQ(snapshot_interval(0, 1), 1);
  EXPECT_EQ(snapshot_interval(1, 0), 1000);
}

// What a run in another layout has left is named by the steps that are lost with it.
TEST(MemorySnapshots, OfAnotherLayoutAreNamed) {
  LS_NEEDS_HOST_MEMORY();
  const Memories memories(2);
  train_with(memories, 2, {"parallel.zero=3"}, 7);
  on_ranks(2, "shm", [&](comm::World& one) {
    Ranks ranks(one);
    Session session(make_plan(tiny_recipe({"parallel.pipeline=2"}), {}, for_this(ranks)), &ranks);
    EXPECT_EQ(MemorySnapshots(session, memories.of(one.rank())).of_other_layout(), 6);
    EXPECT_EQ(MemorySnapshots(session, memories.of(one.rank())).of_other_layout(), 0)
        << "it is this one's now";
  });
}

// Copies suit any number of ranks; shares only the one they were cut for.
TEST(MemorySnapshots, AnotherNumberOfRanks) {
  LS_NEEDS_HOST_MEMORY();
  struct Case {
    const char* zero;
    int from, to;
    std::optional<int64_t> found;
  };
  const Case cases[] = {
      {"0", 2, 4, 6}, {"0", 4, 3, 6}, {"0", 2, 1, 6}, {"3", 2, 4, std::nullopt}, {"2", 4, 2, std::nullopt}};
  for (const Case& one : cases) {
    SCOPED_TRACE(std::string(one.zero) + ": " + std::to_string(one.from) + " to " + std::to_string(one.to));
    const Words words = {std::string("parallel.zero=") + one.zero};
    const Memories untouched(1);
    const std::string expected = train_with(untouched, 1, {}, kSteps).hash;
    Memories memories(std::max(one.from, one.to));
    train_with(memories, one.from, words, 7);
    const Ended ended = train_with(memories, one.to, words, kSteps);
    EXPECT_EQ(ended.from, one.found);
    EXPECT_EQ(ended.hash, expected);
  }
}

// Copies that are large are kept once on a host, and shared from there.
TEST(MemorySnapshots, LargeCopiesAreKeptOnce) {
  LS_NEEDS_HOST_MEMORY();
  const Words words = {"model.vocab=100000", "model.hidden=64", "model.layers=1"};
  const Memories untouched(2);
  const std::string expected = train_with(untouched, 2, words, 4).hash;
  EXPECT_GT(::lseek(untouched.files[0], 0, SEEK_END), int64_t{128} << 20);
  EXPECT_EQ(::lseek(untouched.files[1], 0, SEEK_END), 0);
  Memories memories(2);
  train_with(memories, 2, words, 3);
  const Ended ended = train_with(memories, 2, words, 4);
  EXPECT_EQ(ended.from, 2);
  EXPECT_EQ(ended.hash, expected);
}

// What every rank holds for itself is kept by every rank, however large it is.
TEST(MemorySnapshots, LargePartsAreKeptByEveryRank) {
  LS_NEEDS_HOST_MEMORY();
  for (const char* layout : {"parallel.tensor=2", "parallel.pipeline=2"}) {
    SCOPED_TRACE(layout);
    const Words words = {"model.vocab=100000", "model.hidden=64", "model.layers=2", layout};
    const Memories untouched(2);
    const std::string expected = train_with(untouched, 2, words, 4).hash;
    for (const int file : untouched.files) EXPECT_GT(::lseek(file, 0, SEEK_END), 0);
    Memories memories(2);
    train_with(memories, 2, words, 3);
    const Ended ended = train_with(memories, 2, words, 4);
    EXPECT_EQ(ended.from, 2);
    EXPECT_EQ(ended.hash, expected);
  }
}

TEST(MemorySnapshots, AutoIsTheSameNumberOnEveryRank) {
  LS_NEEDS_HOST_MEMORY();
  const Memories memories(3);
  std::vector<int64_t> every(3);
  on_ranks(3, "shm", [&](comm::World& one) {
    Ranks ranks(one);
    Session session(make_plan(tiny_recipe({"batch.slices=4"}), {}, for_this(ranks)), &ranks);
    MemorySnapshots snapshots(session, memories.of(one.rank()));
    EXPECT_EQ(snapshots.every(), 0);
    EXPECT_FALSE(snapshots.due(1));
    EXPECT_TRUE(snapshots.due(2));
    snapshots.take(2, 0.01 * (1 + one.rank()));  // they differ in what they measured
    every[static_cast<size_t>(one.rank())] = snapshots.every();
    EXPECT_TRUE(snapshots.due(2 + snapshots.every()));
  });
  EXPECT_GE(every[0], 1);
  EXPECT_EQ(every[1], every[0]);
  EXPECT_EQ(every[2], every[0]);
}

}  // namespace
}  // namespace lockstep::run

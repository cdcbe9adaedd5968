// Ranks that save together, on disks that fail at every call there is.
#include "lockstep/checkpoint/saving/save_team.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/checkpoint/saving/faulty_disk.h"
#include "lockstep/checkpoint/testing.h"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;
using Fault = FaultyDisk::Fault;

// Which elements of each tensor a rank writes: rows in turns for even tensors, columns for odd ones.
std::vector<Piece> pieces_of(const Contents& contents, int rank, int ranks) {
  std::vector<Piece> pieces;
  size_t number = 0;
  for (const auto& [tensor, data] : tensors_of(contents)) {
    Piece piece = whole_piece(tensor);
    const int dimension = number++ % 2 == 1 && tensor.shape.rank() == 2 ? 1 : 0;
    if (tensor.shape[dimension] % ranks == 0) {
      cut(piece, dimension, rank, ranks);
    } else if (rank != 0) {
      continue;
    }
    pieces.push_back(piece);
  }
  return pieces;
}

// What a rank's memory holds of the contents.
std::vector<std::byte> memory_of(const Contents& contents, const std::vector<Piece>& pieces,
                                 const SaveTeam& team) {
  std::map<std::string, const std::byte*> data;
  for (const auto& [tensor, from] : tensors_of(contents))
    data[tensor.name] = static_cast<const std::byte*>(from);
  std::vector<std::byte> memory(static_cast<size_t>(team.memory_bytes()));
  for (size_t k = 0; k < pieces.size(); ++k) {
    for (const Run& run : runs_of(pieces[k])) {
      std::memcpy(memory.data() + team.offsets()[k] + run.from * 4, data[pieces[k].tensor.name] + run.at * 4,
                  static_cast<size_t>(run.count) * 4);
    }
  }
  return memory;
}

// Every rank is a thread; each has a disk, and saves these contents one after the other.
struct Saves {
  std::vector<std::vector<Outcome>> outcomes;  // [rank][save]
  bool power_cut = false;
};
Saves save_on(const std::string& run, const std::vector<const Disk*>& disks,
              const std::vector<Contents>& saves, Retention retention = {.keep = 1}) {
  const std::unique_ptr<comm::Store> store = comm::make_local_store();
  Saves result;
  result.outcomes.resize(disks.size());
  std::atomic<bool> cut{false};
  std::vector<std::unique_ptr<SaveTeam>> teams(disks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < disks.size(); ++r) {
    threads.emplace_back([&, r, own = std::shared_ptr<comm::Store>(store->clone())] {
      const auto ranks = static_cast<int>(disks.size());
      const std::vector<Piece> pieces = pieces_of(saves[0], static_cast<int>(r), ranks);
      teams[r] = std::make_unique<SaveTeam>(
          Member{ranks == 1 ? nullptr : own->clone(), static_cast<int>(r), ranks}, pieces,
          SaveOptions{.run_folder = run, .retention = retention, .disk = disks[r], .most_file_bytes = 700});
      try {
        for (const Contents& contents : saves) {
          result.outcomes[r].push_back(
              teams[r]->save(contents.facts, memory_of(contents, pieces, *teams[r])));
        }
      } catch (const FaultyDisk::PowerCut&) {
        cut = true;
      }
      while (cut) {  // one machine: all its ranks go dark
        for (auto& team : teams) {
          if (team) team->give_up();
        }
        break;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  result.power_cut = cut;
  return result;
}

// A mount that has gone leaves a bare folder where the run's was.
// A tensor that some rank has and none writes would be found missing by whoever loads it.
TEST(SaveTeam, WhatIsHeldAndNobodyWritesIsABug) {
  const base::TemporaryFolder run;
  Tensors memory;
  std::vector<Piece> pieces = pieces_of(contents_of(memory, 1), 0, 1);
  std::vector<Whole> held;
  for (const Piece& piece : pieces) held.push_back(piece.tensor);
  const SaveOptions options{.run_folder = run.path()};
  EXPECT_NO_THROW(SaveTeam(Member{}, pieces, options, held));
  pieces.pop_back();
  EXPECT_THROW(SaveTeam(Member{}, pieces, options, held), base::Bug);
}

TEST(SaveTeam, ARunFolderThatIsGoneIsNotMadeAgain) {
  base::TemporaryFolder parent;
  const std::string run = parent.path() + "/run", away = parent.path() + "/away";
  fs::create_directory(run);
  Tensors memory;
  const Contents contents = contents_of(memory, 1);
  const std::vector<Piece> pieces = pieces_of(contents, 0, 1);
  SaveTeam team(Member{}, pieces, SaveOptions{.run_folder = run});
  const auto save = [&](int64_t step) {
    Facts facts = contents.facts;
    facts.step = step;
    return team.save(facts, memory_of(contents, pieces, team)).error;
  };
  EXPECT_EQ(save(1), 0);
  fs::rename(run, away);
  EXPECT_EQ(save(2), 816);
  EXPECT_FALSE(fs::exists(run));
  fs::create_directory(run);
  EXPECT_EQ(save(3), 816);
  EXPECT_TRUE(fs::is_empty(run));
  fs::remove(run);
  fs::rename(away, run);
  EXPECT_EQ(save(4), 0);
  // Mounted again under another number.
  fs::copy(run, away, fs::copy_options::recursive);
  fs::remove_all(run);
  fs::rename(away, run);
  EXPECT_EQ(save(5), 816);
  parent.write("run/config.toml", "");
  EXPECT_EQ(save(6), 0);
}

TEST(SaveTeam, AnyNumberOfRanksWritesTheSameFiles) {
  Tensors memory;
  const Contents contents = contents_of(memory, 7, 24);
  std::string params_hash;
  std::vector<FileSummary> files;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    base::TemporaryFolder run;
    const Saves saved =
        save_on(run.path(), std::vector<const Disk*>(static_cast<size_t>(ranks), &system_disk()), {contents});
    for (const auto& outcomes : saved.outcomes) {
      EXPECT_EQ(outcomes[0].error, 0) << outcomes[0].why;
      EXPECT_EQ(outcomes[0].folder, run.path() + "/checkpoints/step-00000007");
    }
    const Opened opened(saved.outcomes[0][0].folder);
    EXPECT_TRUE(holds(opened, contents)) << ranks;
    EXPECT_NO_THROW(opened.check_all());
    EXPECT_GT(opened.manifest()->files.size(), 5u);  // tensors of ranks and files do not coincide
    if (ranks == 1) params_hash = opened.manifest()->params_hash, files = opened.manifest()->files;
    EXPECT_EQ(opened.manifest()->params_hash, params_hash);
    ASSERT_EQ(opened.manifest()->files.size(), files.size());
    for (size_t f = 0; f < files.size(); ++f) EXPECT_EQ(opened.manifest()->files[f].sums, files[f].sums);
  }
}

TEST(SaveTeam, KeepsTheNewestAndEveryMth) {
  struct Row {
    Retention retention;
    std::vector<int64_t> left;
  };
  for (const Row& row : {Row{{.keep = 2, .every = 4}, {10, 9, 8, 4}},
                         Row{{.keep = 2, .every = 5}, {10, 9, 5}}, Row{{.keep = 3}, {10, 9, 8}}}) {
    base::TemporaryFolder run;
    Tensors memory;
    std::vector<Contents> saves;
    for (int64_t step = 1; step <= 10; ++step) saves.push_back(contents_of(memory, step));
    const FaultyDisk disk;
    save_on(run.path(), {&disk, &disk}, saves, row.retention);
    std::vector<int64_t> left;
    for (const std::string& folder : list(run.path())) left.push_back(Opened(folder).manifest()->step);
    EXPECT_EQ(left, row.left);
  }
}

// The n-th call of one rank's disk fails, for every n: all ranks agree, the older checkpoint stands, and the
// same team saves the next step if the disk lets it.
class AFaultAtEveryCall : public testing::TestWithParam<Fault> {};

TEST_P(AFaultAtEveryCall, LeavesTheLastCheckpointAndTrainingGoesOn) {
  Tensors memory;
  const Contents first = contents_of(memory, 1), second = contents_of(memory, 2),
                 third = contents_of(memory, 3);
  constexpr size_t kRanks = 3;
  int failed = 0;
  for (size_t bad = 0; bad < 2; ++bad) {  // the one that leads, one that follows
    for (int64_t call = 0;; ++call) {
      base::TemporaryFolder run;
      const FaultyDisk good;
      save_on(run.path(), {&good}, {first});
      const FaultyDisk faulty(GetParam(), call);
      std::vector<const Disk*> disks(kRanks, &good);
      disks[bad] = &faulty;
      const Saves saved = save_on(run.path(), disks, {second, third});
      SCOPED_TRACE(fmt::format("call {} of rank {}", call, bad));
      for (const auto& outcomes : saved.outcomes) {
        ASSERT_EQ(outcomes.size(), 2u);
        for (size_t s = 0; s < 2; ++s) {
          ASSERT_EQ(outcomes[s].error, saved.outcomes[0][s].error);
          ASSERT_EQ(outcomes[s].why, saved.outcomes[0][s].why);
        }
      }
      const Outcome& now = saved.outcomes[0][0];
      if (now.error != 0) {
        ++failed;
        ASSERT_EQ(now.error, GetParam() == Fault::full ? 807 : 808) << now.why;
        ASSERT_NE(now.why.find(bad == 0 ? "cannot be written" : "rank 1 on "), std::string::npos) << now.why;
      }
      if (GetParam() == Fault::broken && now.error != 0) {
        ASSERT_EQ(saved.outcomes[0][1].error, 0) << saved.outcomes[0][1].why;
      }
      const std::vector<std::string> whole = list(run.path());
      ASSERT_FALSE(whole.empty());
      const Opened newest(whole[0]);
      const int64_t step = newest.manifest()->step;
      ASSERT_TRUE(holds(newest, step == 1 ? first : step == 2 ? second : third));
      ASSERT_NO_THROW(newest.check_all());
      const int64_t told = saved.outcomes[0][1].error == 0 ? 3 : now.error == 0 ? 2 : 1;
      // A disk that goes away behind the last byte of the manifest leaves a checkpoint that nobody could
      // vouch for.
      ASSERT_TRUE(step == told || (GetParam() == Fault::gone && step > told)) << step << " " << told;
      if (faulty.calls() <= call) break;  // there was no such call
    }
  }
  EXPECT_GT(failed, 10);
}

INSTANTIATE_TEST_SUITE_P(Faults, AFaultAtEveryCall, testing::Values(Fault::full, Fault::broken, Fault::gone),
                         [](const auto& fault) {
                           return std::string(fault.param == Fault::full     ? "full"
                                              : fault.param == Fault::broken ? "broken"
                                                                             : "gone");
                         });

TEST(SaveTeam, ShortWritesAreGoneOnWith) {
  base::TemporaryFolder run;
  Tensors memory;
  const FaultyDisk slips(Fault::slips, 0);
  const Contents contents = contents_of(memory, 1);
  EXPECT_EQ(save_on(run.path(), {&slips, &slips}, {contents}).outcomes[0][0].error, 0);
  EXPECT_TRUE(holds(Opened(list(run.path()).at(0)), contents));
}

// The power goes at every call of a save, and with it all bytes and names that were not synced: what list()
// names is whole.
TEST(SaveTeam, APowerCutAtEveryCallLeavesWholeCheckpoints) {
  Tensors memory;
  const Contents first = contents_of(memory, 1), second = contents_of(memory, 2);
  bool saw_first = false, saw_second = false;
  for (int64_t call = 0;; ++call) {
    base::TemporaryFolder run;
    const FaultyDisk good;
    save_on(run.path(), {&good}, {first});
    const FaultyDisk cut(Fault::power_cut, call);
    const Saves saved = save_on(run.path(), {&cut}, {second});
    cut.lose_unsynced();
    SCOPED_TRACE(call);
    const std::vector<std::string> whole = list(run.path());
    ASSERT_FALSE(whole.empty());
    bool loads = false;
    for (const std::string& folder : whole) {  // as --resume auto does: the first that loads
      try {
        const Opened opened(folder);
        const int64_t step = opened.manifest()->step;
        ASSERT_TRUE(holds(opened, step == 1 ? first : second));
        (step == 1 ? saw_first : saw_second) = loads = true;
        break;
      } catch (const base::DataError&) {
      }
    }
    ASSERT_TRUE(loads);
    if (!saved.power_cut) {
      EXPECT_EQ(Opened(whole[0]).manifest()->step, 2);
      break;
    }
  }
  EXPECT_TRUE(saw_first && saw_second);
}

// A checkpoint without a manifest is none, and one with a manifest has every file: names are on the disk
// before the manifest's is, whatever the disk kept of what was not synced.
TEST(SaveTeam, NoManifestBeforeTheNamesOfItsFiles) {
  class Watched : public FaultyDisk {
   public:
    int create(const std::string& path) const override {
      if (fs::path(path).filename() == "manifest.json") {
        lose_unsynced();
        for (const char* name : {"model.safetensors.index.json", "config.json"})
          EXPECT_TRUE(fs::exists(fs::path(path).parent_path() / name)) << name;
      }
      return FaultyDisk::create(path);
    }
  };
  base::TemporaryFolder run;
  Tensors memory;
  const Contents contents = contents_of(memory, 1);
  const Watched disk;
  ASSERT_EQ(save_on(run.path(), {&disk}, {contents}).outcomes[0][0].error, 0);
  const std::vector<std::string> whole = list(run.path());
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_TRUE(holds(Opened(whole[0]), contents));
  EXPECT_NO_THROW(Opened(whole[0]).check_all());
}

// The first save of a run makes the folders above it too; once it says that it has saved, they stay.
TEST(SaveTeam, WhatWasSavedIsThereAfterAPowerCut) {
  base::TemporaryFolder run;
  Tensors memory;
  for (const int64_t step : {1, 2}) {  // the second replaces the first
    const Contents contents = contents_of(memory, step);
    const FaultyDisk disk;
    ASSERT_EQ(save_on(run.path(), {&disk}, {contents}).outcomes[0][0].error, 0);
    disk.lose_unsynced();
    const std::vector<std::string> whole = list(run.path());
    ASSERT_FALSE(whole.empty());
    EXPECT_TRUE(holds(Opened(whole[0]), contents));
  }
}

TEST(SaveTeam, GivenUpSavesEnd) {
  base::TemporaryFolder run;
  Tensors memory;
  const Contents contents = contents_of(memory, 1);
  const std::unique_ptr<comm::Store> store = comm::make_local_store();
  std::vector<std::unique_ptr<SaveTeam>> teams(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r, own = std::shared_ptr<comm::Store>(store->clone())] {
      teams[static_cast<size_t>(r)] = std::make_unique<SaveTeam>(
          Member{own->clone(), r, 2}, pieces_of(contents, r, 2), SaveOptions{.run_folder = run.path()});
    });
  }
  for (std::thread& thread : threads) thread.join();
  Outcome outcome;  // the other rank never comes
  std::thread saving([&] {
    outcome = teams[0]->save(contents.facts, memory_of(contents, pieces_of(contents, 0, 2), *teams[0]));
  });
  teams[0]->give_up();
  saving.join();
  EXPECT_EQ(outcome.error, 814);
  EXPECT_TRUE(list(run.path()).empty());
}

}  // namespace
}  // namespace lockstep::checkpoint

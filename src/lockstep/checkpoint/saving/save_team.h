// Ranks that save together: each writes what it holds, the first makes the folder and, last, the manifest.
//
// Made once a run. A save is announced by the first rank through the store, which the training threads do not
// need: it goes on in the background. A failure anywhere is everyone's: the folder goes, the older
// checkpoints stay, and every rank learns why.
//
//     SaveTeam team({world.store().clone(), rank, ranks}, pieces, {.run_folder = "runs/first"});
//     const Outcome outcome = team.save(facts, memory);   // all ranks, each on one thread
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/home_folder.h"
#include "lockstep/checkpoint/saving/save_part.h"
#include "lockstep/comm/store/store.h"

namespace lockstep::checkpoint {

struct Member {
  std::unique_ptr<comm::Store> store;  // its own connection; none when alone
  int rank = 0, ranks = 1;
};

struct SaveOptions {
  std::string run_folder;
  Retention retention = {};
  const Disk* disk = nullptr;  // none: the system's
  int64_t most_file_bytes = kMostShardBytes;
  // Given: weights that are not among the pieces count in params_hash. From the hashes of those that are, in
  // the order of these tensors, it makes the whole. What is saved is then an adapter (plan_adapter_files).
  std::function<std::string(const HashSums&, const std::vector<Whole>&)> whole_hash = {};
};

// How a save went; the same on every rank but for `own_bytes`.
struct Outcome {
  int64_t step = 0;
  std::string folder;  // of the checkpoint
  int error = 0;       // 0: saved; else the error's number, and the sentence
  std::string why;
  int64_t bytes = 0;   // of all ranks
  double seconds = 0;  // from the first call to the commit
};

class SaveTeam {
 public:
  // Collective. `own` are the pieces that this rank writes, `held` are tensors that it has something of,
  // whoever writes them: together, the ranks' pieces must cover every tensor once, which is checked here (a
  // Bug otherwise).
  SaveTeam(Member member, std::vector<Piece> own, SaveOptions options, const std::vector<Whole>& held = {});
  ~SaveTeam();
  // Bytes of the memory that save() is given, and where each piece begins in it.
  int64_t memory_bytes() const { return memory_bytes_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }

  // Collective, one at a time; on any thread. The first rank's facts count. Does not throw for the world's
  // reasons.
  Outcome save(const Facts& facts, std::span<const std::byte> memory);
  void give_up() { stop_ = true; }  // from another thread: a save in progress fails soon

 private:
  enum class Order : uint8_t { compare, write, done };
  std::string key(const std::string& what) const;
  void tell(const std::string& what, const std::string& value);
  std::string hear(const std::string& what);
  void agree_on_tensors(const std::vector<Whole>& held);

  Outcome lead(const Facts& facts, std::span<const std::byte> memory);
  Outcome follow(std::span<const std::byte> memory);
  bool stands_already(const std::string& folder, const Facts& facts, std::span<const std::byte> memory);
  std::vector<FileSummary> prepare(const std::string& folder, const Facts& facts);
  Part own_part(Order order, const std::string& folder, std::span<const std::byte> memory);
  Part everyones(Order order, const std::string& folder, std::span<const std::byte> memory);
  void tidy(const std::string& folder, int64_t step);
  std::vector<FileSummary> summaries(const Part& all) const;
  bool saves_adapter() const { return static_cast<bool>(options_.whole_hash); }
  std::string params_hash(const Part& all) const;

  Member member_;
  std::vector<Piece> own_;
  SaveOptions options_;
  const Disk& disk_;
  const HomeFolder home_;
  std::string name_;  // of this team, in the store
  std::vector<Whole> tensors_;
  std::vector<PlannedFile> plan_;
  std::unique_ptr<PartWriter> writer_;
  std::vector<int64_t> offsets_;
  int64_t memory_bytes_ = 0, saves_ = 0;
  int turn_ = 0;  // of this save's orders
  std::atomic<bool> stop_{false};
};

}  // namespace lockstep::checkpoint

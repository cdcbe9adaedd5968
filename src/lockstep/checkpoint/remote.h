// A run's checkpoints in an object store: s3://bucket/runs/a/checkpoints/step-00000100/...
//
//     RemoteRun run("s3://bucket/runs/a");
//     run.upload("runs/a", 100);          // the manifest last: without one there is no checkpoint
//     run.remove_others(100, {.keep = 2});
//     run.restore("runs/a");              // on an empty disk: the newest complete one is there again
//
// Sizes and checksums of what comes back are verified when it is loaded, as those of any checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/remote_owner.h"
#include "lockstep/store/store.h"

namespace lockstep::checkpoint {

// A checkpoint that retention took from the local disk before all of it was uploaded.
struct RemovedError : base::IoError {
  using base::IoError::IoError;
};

class RemoteRun {
 public:
  explicit RemoteRun(const std::string& uri);
  RemoteRun(store::Uri uri, std::unique_ptr<store::Store> store);  // for tests: of any store

  std::vector<int64_t> steps();  // of complete checkpoints, newest first

  // Copies a complete checkpoint of the run folder, then the run's small files (kRunFiles). Returns the bytes
  // of the checkpoint. RemovedError 345: it was removed meanwhile.
  int64_t upload(const std::string& run_folder, int64_t step);
  void upload_run_files(const std::string& run_folder);

  // What need not stay once `step` is there: older ones as Retention says, those without a manifest, and
  // newer ones, which are of a past that the run has left.
  void remove_others(int64_t step, const Retention& retention);

  // Copies the newest complete checkpoint into the run folder, its manifest last, and the run's files where
  // there are none. Returns its step; nothing: the store has none, or none newer than `newer_than`.
  // `check` looks at the copy; if it throws a CheckpointError, `passing` hears why and the one before is
  // taken. When none can be used, throws what was wrong with the newest.
  struct Restoring {
    int64_t newer_than = -1;
    std::function<void(const std::string& folder)> check = {};
    std::function<void(const std::string& why)> passing = {};
  };
  std::optional<int64_t> restore(const std::string& run_folder, const Restoring& how);
  std::optional<int64_t> restore(const std::string& run_folder) { return restore(run_folder, {}); }

  // One run at a time writes to a folder of a store: checkpoint/remote_owner.h.
  std::optional<RemoteOwner> owner();
  void set_owner(const RemoteOwner& owner);

  const store::Uri& uri() const { return uri_; }

 private:
  std::string key_of(int64_t step) const;
  void copy_step(const std::string& run_folder, int64_t step, const std::vector<store::Object>& all);
  void copy_run_files(const std::string& run_folder, const std::vector<store::Object>& all);
  void remove(int64_t step, const std::vector<store::Object>& all);
  store::Uri uri_;
  std::unique_ptr<store::Store> store_;
};

// The folder of a model in a store, fetched into the cache: of a run its newest complete checkpoint, of any
// other folder what lies directly in it. CheckpointError 324: a run that has none.
std::string fetch_model(const std::string& uri);
std::string local_model(const std::string& path);  // the same of a URI; any other path as it is

}  // namespace lockstep::checkpoint

// Copies each checkpoint to the store of checkpoint.to, beside the training.
//
//     Uploader uploads({.to = "s3://bucket/runs/a", .run_folder = "runs/a", .retention = {.keep = 2}});
//     uploads.saved(100);                                 // step 100 is on the local disk
//     while (auto news = uploads.poll()) tell(*news);     // now and then
//     uploads.finish(600);                                // waits; what is left is told
//
// An upload that fails changes nothing: it is told and tried again after a while, or gives way to a newer
// checkpoint. When another process goes on with the run (owner.json says so), nothing is uploaded any more.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/checkpoint/remote.h"

namespace lockstep::training {

constexpr double kUploadSeconds = 600;  // that a finished run waits for its last upload

struct UploadNews {
  int64_t step = 0;
  std::string why;       // a sentence: that it is there, or why not
  bool failed = false;   // it will be tried again
  bool skipped = false;  // it was removed from the disk before; newer ones follow
  bool lost = false;     // another process goes on with the run: no other will be uploaded
};

struct UploadOptions {
  std::string to;  // a URI
  std::string run_folder;
  checkpoint::Retention retention = {};
  std::optional<checkpoint::RemoteOwner> owner = {};  // what restore_from_store() gave; nothing: not checked
  double pause = 20;                                  // seconds after a failure
  std::function<std::unique_ptr<checkpoint::RemoteRun>()> open = {};  // for tests; empty: the store of `to`
};

class Uploader {
 public:
  explicit Uploader(UploadOptions options);
  ~Uploader();  // waits for the request in progress, for no other
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  const std::string& to() const { return options_.to; }
  void saved(int64_t step);
  std::optional<UploadNews> poll();
  // Waits for all uploads, this long. Why not all are there; empty: they are.
  std::string finish(double seconds);

 private:
  void work();
  UploadNews upload(int64_t step);
  void check_owner();

  const UploadOptions options_;
  std::unique_ptr<checkpoint::RemoteRun> remote_;  // the thread's own
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<int64_t> wanted_;  // the newest that is not there yet
  std::deque<UploadNews> news_;
  std::string last_failure_;
  bool working_ = false, ending_ = false;
  bool claimed_ = false;  // the thread's own
  bool lost_ = false;     // another process goes on with this run
  std::thread thread_;
};

// Uploads the newest checkpoint of a run folder if the store lacks it: what an earlier process did not get
// to. Returns its step; nothing: it is there, or there is none.
std::optional<int64_t> newest_not_uploaded(const std::string& to, const std::string& run_folder);

// Copies the newest checkpoint of the store that is whole into the run folder if that has none as new, unless
// it shall start over. ConfigError 351: what is there belongs to another run.
struct FromStore {
  std::string from, run_folder, name;  // checkpoint.to, and run.name
  bool starts_over = false;
  std::function<void(const std::string&)> remark = {};
};
struct Restored {
  checkpoint::RemoteOwner owner;  // who writes there from now on
  std::optional<int64_t> step = {};
};
Restored restore_from_store(const FromStore& how);

}  // namespace lockstep::training

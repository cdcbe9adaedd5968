// Saves beside the training: all that training waits for is the copy out of device memory.
//
// Each rank copies the pieces that it writes into host memory, of which there is enough for two saves, and a
// thread of its own does the rest together with those of the other ranks (checkpoint/saving/save_team.h). A
// save that fails is told by poll() and changes nothing: the older checkpoints stand, and the next save tries
// again.
//
//     Saver saver(session, "runs/first");
//     saver.save(100);                                    // every rank, at the same step boundary
//     while (auto outcome = saver.poll()) tell(*outcome);  // now and then
//     saver.finish();                                     // the last one must have succeeded
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "lockstep/checkpoint/saving/save_team.h"
#include "lockstep/run/session/session.h"

namespace lockstep::run {

// How a save went, and how long training stood still for it.
struct Saved {
  checkpoint::Outcome outcome;
  double pause_ms = 0;
};

class Saver {
 public:
  // Collective. Retention, and whether saves go on in the background, are the recipe's.
  Saver(Session& session, const std::string& run_folder);
  // Waits a while for a save in progress, then gives it up: the others of the run may be gone.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Collective, at a step boundary with nothing in flight. Waits only while both copies are still being
  // written; with checkpoint.async = false, until the save has ended.
  void save(int64_t step);
  std::optional<Saved> poll();  // saves that have ended, oldest first
  // Waits for all of them. Throws what the newest failed with, on every rank alike.
  void finish();
  int64_t own_bytes() const { return team_.memory_bytes(); }  // that this rank writes

 private:
  struct Source {
    const char* from;                                      // device memory
    int64_t bytes;                                         // in the checkpoint
    kernels::Quantized format = kernels::Quantized::none;  // of what is kept in blocks and saved as fp32
  };
  // Host memory for one save, made when it is first needed and then kept.
  struct Buffer {
    std::byte* memory = nullptr;
    bool pinned = false;
    bool busy = false;
  };
  struct Job {
    checkpoint::Facts facts;
    Buffer* buffer;
    double pause_ms;
  };

  Saver(Session& session, const std::string& run_folder, const std::vector<Parameters::Saved>& held);
  static std::vector<checkpoint::Whole> tensors_of(const std::vector<Parameters::Saved>& held);
  static std::vector<checkpoint::Piece> pieces_of(const std::vector<Parameters::Saved>& held,
                                                  std::vector<Source>& sources);
  void allocate(Buffer& buffer);
  void release(Buffer& buffer);
  Buffer& free_buffer();
  void copy_into(const Buffer& buffer);
  static checkpoint::Facts about(const Session& session);
  checkpoint::Facts facts_of(int64_t step) const;
  void prepare();
  void work();
  void wait_until_idle(std::unique_lock<std::mutex>& lock);

  Session& session_;
  device::Device& device_;
  const bool async_;
  std::vector<Source> sources_;
  checkpoint::SaveTeam team_;
  device::Stream stream_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Buffer buffers_[2];
  std::deque<Job> jobs_;
  std::deque<Saved> ended_;
  std::optional<checkpoint::Outcome> newest_;
  std::exception_ptr bug_;
  bool working_ = false, ending_ = false;
  bool preparing_;  // until the first copy's memory is there
  const checkpoint::Facts about_;
  std::thread thread_;
};

// Writes a checkpoint of `step` steps and waits for it; returns its folder. Collective.
std::string save_checkpoint(Session& session, const std::string& run_folder, int64_t step);

}  // namespace lockstep::run

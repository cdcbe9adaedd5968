// How ranks of one machine that nobody of ours started (torchrun, srun, mpirun) find each other's store.
//
// Rank 0 opens the store on the loopback interface with a fresh secret and writes both into a 0600 file in a
// folder that only this user can enter; the others wait for the file. The name of the job, which all of them
// know, is the file's name.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/store/secret.h"
#include "lockstep/launch/options.h"

namespace lockstep::launch {

// The folder for rendezvous files is another user's, or open to others: LS0550.
struct FolderNotOursError : base::ConfigError {
  using ConfigError::ConfigError;
};

struct StoreAddress {
  std::string endpoint;
  comm::Secret secret;
};

// Of the rank that wrote it: takes the file away when it goes.
class RendezvousFile {
 public:
  RendezvousFile(const std::string& job, const StoreAddress& address);  // IoError 802, FolderNotOursError
  ~RendezvousFile();
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;

 private:
  std::string path_;
};

std::optional<StoreAddress> find_rendezvous_file(const std::string& job);

// Waits for the file. CommError 551: rank 0 did not write it in time.
StoreAddress await_rendezvous_file(const std::string& job, Duration timeout);

// $XDG_RUNTIME_DIR/lockstep, else lockstep-UID among the temporary files; made with mode 0700.
// FolderNotOursError when it is not ours.
std::string runtime_folder(const Variable& variable);

}  // namespace lockstep::launch

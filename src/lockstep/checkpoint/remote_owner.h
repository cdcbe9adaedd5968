// Which run a folder of a store belongs to, and which process of it writes there now: owner.json beside its
// checkpoints. Two runs with one `checkpoint.to` would remove each other's checkpoints.
//
//     const RemoteOwner mine = claim(remote.owner(), "runs/a", "a", "s3://bucket/runs/a");   // or refuses
//
// A run is told from others by a number that is drawn when it first meets the store, kept in its folder
// (store.json) and in owner.json. An empty folder with the name of the run in the store is that run on a new
// machine. `holder` changes with each process, so that one that was thought dead writes nothing any more.
#pragma once

#include <optional>
#include <string>

namespace lockstep::checkpoint {

struct RemoteOwner {
  std::string run;     // the run's number
  std::string name;    // its run.name
  std::string host;    // where it was last started,
  std::string since;   // when,
  std::string holder;  // and a number for this start
};

std::string owner_json(const RemoteOwner& owner);
// Nothing: not whole, or of a form that is not known. It is overwritten then.
std::optional<RemoteOwner> parse_owner(const std::string& text);

// Whether the run in this folder may write there: the new owner. Writes the run's number into the folder.
// ConfigError 351: the place belongs to another run.
RemoteOwner claim(const std::optional<RemoteOwner>& there, const std::string& run_folder,
                  const std::string& name, const std::string& to);

}  // namespace lockstep::checkpoint

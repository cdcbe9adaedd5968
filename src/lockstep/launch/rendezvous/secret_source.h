// Where the nodes of a run have their shared secret from, in this order:
//
//   --rdzv-secret-file FILE            must be ours alone (0600)
//   LOCKSTEP_SECRET                    64 hex digits or a passphrase
//   $XDG_CONFIG_HOME/lockstep/secret   or ~/.config/...; shared homes give it to every node. Node 0 makes it
//   when it
//                                      is not there
//   a fresh one                        where node 0 can write no such file: it prints what to type elsewhere
#pragma once

#include <string>

#include "lockstep/comm/store/secret.h"
#include "lockstep/comm/store/store.h"
#include "lockstep/launch/schedulers/environment.h"

namespace lockstep::launch {

struct SecretPlaces {
  std::string file;           // --rdzv-secret-file, or empty
  std::string text;           // LOCKSTEP_SECRET, or empty
  std::string config_folder;  // empty: there is none
  std::string config_file() const { return config_folder + "/lockstep/secret"; }
};
// From HOME, XDG_CONFIG_HOME and LOCKSTEP_SECRET.
SecretPlaces secret_places(const Environment& environment, const std::string& file);

struct FoundSecret {
  comm::Secret secret;
  std::string notice;  // what node 0 should tell the user; empty: nothing
};

// Node 0 always has one. Another node waits up to `patience` for the file that node 0 makes, then fails with
// ConfigError 543, which names the ways to hand a secret over; 511 and 512 as comm/store/secret.h says.
FoundSecret find_secret(const SecretPlaces& places, bool first_node, comm::Duration patience);

}  // namespace lockstep::launch

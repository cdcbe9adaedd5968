// The store through which the nodes of a run find each other, and whether it is held here.
//
// One node needs no network: its launchers' store is memory, and a server on the loopback interface is opened
// only for ranks that are Lockstep's own; so do tasks that are all on one machine, which follow a rendezvous
// file (launch/schedulers/rendezvous_file.h). Several nodes use --rdzv-endpoint, or ports that they
// derive from the job (rendezvous_point.h): node 0 (or, without numbers, the first on the machine of that
// name) binds one and holds the store, the others connect.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/store/secret.h"
#include "lockstep/comm/store/store.h"
#include "lockstep/comm/store/store_server.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/rendezvous/rendezvous_point.h"

namespace lockstep::launch {

struct RunStore {
  std::unique_ptr<comm::StoreServer> server;  // when it sits here
  std::unique_ptr<comm::Store> connection;    // the launchers'
  std::string endpoint;                       // for ranks; empty: none was opened
  comm::Secret secret;
  bool leads = true;
};

// `ranks_need_store`: they are Lockstep's own. ConfigError 513, 515 and CommError 514 as
// comm/store/store_server.h says; CommError 536: node 0 did not come in time.
RunStore open_run_store(const Options& options, bool ranks_need_store, Say say);

// All on one machine, and nobody has told where: the store that task 0 of `job` writes a rendezvous file for.
// CommError 551: it wrote none in time.
RunStore join_by_file(const Options& options, const std::string& job, const Say& say);

std::string run_prefix(const std::string& run_id);  // of the launchers' keys

// The secret that the nodes share, from where the user has put it; made and shown by the leader when there is
// none.
comm::Secret run_secret(const Options& options, bool leads, const Say& say);

}  // namespace lockstep::launch

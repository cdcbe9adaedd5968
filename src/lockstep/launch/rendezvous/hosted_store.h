// A store whose server lives in this very process: rank 0's, where no launcher of ours holds it.
#pragma once

#include <memory>

#include "lockstep/comm/store/store.h"
#include "lockstep/comm/store/store_server.h"
#include "lockstep/launch/schedulers/rendezvous_file.h"

namespace lockstep::launch {

// Forwards to a connection to `server` and keeps both alive. When it goes, it first waits a little for the
// other ranks to have left, so that the last of them do not find the door closed.
std::unique_ptr<comm::Store> host_store(std::unique_ptr<comm::StoreServer> server,
                                        std::unique_ptr<RendezvousFile> file,
                                        std::unique_ptr<comm::Store> connection);

}  // namespace lockstep::launch

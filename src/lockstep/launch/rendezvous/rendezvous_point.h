// Where the processes of a run look for its store: an endpoint that somebody has given, or, where nobody has,
// a few ports that all of them derive from the job's name.
//
//     const RendezvousPoint point = agreed_point("node0", "Slurm 4711.0");
//     hold_store(point, ...)    // node 0: takes the first port that is free
//     reach_store(point, ...)   // the others: knock at all of them until the store of this job answers
//
// Several jobs on one machine may derive the same port. So a store tells who knocks whose it is, and neither
// another run's store nor another program on one of the ports disturbs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/store/store_server.h"
#include "lockstep/launch/options.h"

namespace lockstep::launch {

using Say = std::function<void(const std::string& text)>;

struct RendezvousPoint {
  std::string run;  // what the store is asked for; empty: whoever knows the secret is right
  std::string host;
  std::vector<int> ports;                   // in the order in which they are tried
  std::string whom = "node 0";              // holds the store
  std::string numbered_by = "--node-rank";  // what gives each process its number
  Duration patience{
      3000};  // of who is to hold it, with a store of this job that may be ending, or with silence
  std::string text() const;                  // "node0:20441", "node0 (ports 20441, 21007)"
  std::string endpoint(size_t which) const;  // "node0:20441"
};
RendezvousPoint given_point(const std::string& host, int port);
// `job`: what every process of this start of the job knows, and no other job does.
RendezvousPoint agreed_point(const std::string& host, const std::string& job);
RendezvousPoint point_of(const Options& options);

std::string endpoint_text(const std::string& host, int port);  // "host:29400", "[::1]:29400"

// Binds the first port that is free. comm::AddressInUse: none is. ConfigError 528: another process holds the
// store of this run already, at whichever of the ports; 515: with another secret. An earlier start of the job
// may be about to end, so where the ports are derived either is said only if it lasts for `patience`.
// `options`: all but address, port and run.
std::unique_ptr<comm::StoreServer> hold_store(const RendezvousPoint& point, comm::StoreServerOptions options);

// Knocks until the timeout, in short attempts, so that Ctrl-C is heard and the user is told who is waited
// for. Nothing: nobody answered, and `problem` says what was found instead. `client.endpoint` becomes the
// one that answered. ConfigError 515: a store of this run refused us, or could not prove itself, and none at
// the other ports let us in.
std::unique_ptr<comm::Store> reach_store(const RendezvousPoint& point, comm::StoreClientOptions& client,
                                         Duration timeout, const Say& say, std::string& problem);

// Signals that are blocked and ask to end take their usual course.
void end_if_asked();

}  // namespace lockstep::launch

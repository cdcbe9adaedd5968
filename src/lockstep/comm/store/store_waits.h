// Requests that wait on the server: for a key to be set, for a queue to be filled, or for their deadline.
//
// Nobody polls: a change to a key takes out exactly those that wait for it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/comm/store/store_socket.h"
#include "lockstep/comm/store/store_wire.h"

namespace lockstep::comm {

struct ParkedRequest {
  uint64_t peer = 0;  // one request each
  Message request;
  TimePoint deadline;
};

class StoreWaits {
 public:
  void park(ParkedRequest parked, const std::string& until);
  // Those that wait for it, first come first; at most so many.
  std::vector<ParkedRequest> take(const std::string& until, size_t most = SIZE_MAX);
  std::vector<ParkedRequest> take_expired(TimePoint now);
  void drop(uint64_t peer);
  bool holds(uint64_t peer) const { return parked_.contains(peer); }
  std::optional<TimePoint> next_deadline() const;
  size_t size() const { return parked_.size(); }

 private:
  struct Entry {
    ParkedRequest parked;
    std::string until;
    uint64_t ticket;  // its place among all that came
  };
  ParkedRequest remove(uint64_t peer);

  uint64_t tickets_ = 0;
  std::unordered_map<uint64_t, Entry> parked_;                                      // by peer
  std::unordered_map<std::string, std::set<std::pair<uint64_t, uint64_t>>> until_;  // {ticket, peer}
  std::set<std::pair<TimePoint, uint64_t>> deadlines_;                              // {deadline, peer}
};

}  // namespace lockstep::comm

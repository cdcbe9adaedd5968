// The server's desk: requests in, replies out. It knows peers by number and nothing of sockets or threads.
//
// A request is answered at once, or parked until another one brings what it waits for; so one request may
// bring about several replies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/store/store_table.h"
#include "lockstep/comm/store/store_waits.h"
#include "lockstep/comm/store/store_wire.h"

namespace lockstep::comm {

struct Reply {
  uint64_t peer = 0;
  Message message;
};

class StoreDesk {
 public:
  StoreDesk(int64_t most_message_bytes, int64_t most_bytes);

  // Of the right number of words for its code, and a request at all. Only such are asked.
  static bool well_formed(const Message& request);
  // The asking peer's own reply, unless it has to wait, and those of peers that waited for what it did.
  std::vector<Reply> ask(uint64_t peer, Message request, TimePoint now);
  std::vector<Reply> expire(TimePoint now);  // those whose time is over
  void leave(uint64_t peer) { waits_.drop(peer); }

  bool waits(uint64_t peer) const { return waits_.holds(peer); }
  std::optional<TimePoint> next_deadline() const { return waits_.next_deadline(); }

 private:
  std::optional<Message> serve(Message& request);  // nothing: it has to wait
  std::optional<Message> serve_wait(Message& request);
  Message serve_at_once(const Message& request);
  Message timed_out(const Message& request) const;
  Message list_keys() const;
  std::vector<ParkedRequest> woken_by(const Message& done);

  int64_t most_message_bytes_;
  StoreTable table_;
  StoreWaits waits_;
};

}  // namespace lockstep::comm

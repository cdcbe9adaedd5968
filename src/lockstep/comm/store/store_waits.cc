#include "lockstep/comm/store/store_waits.h"

#include "lockstep/base/error.h"

namespace lockstep::comm {

void StoreWaits::park(ParkedRequest parked, const std::string& until) {
  const uint64_t peer = parked.peer, ticket = tickets_++;
  LS_ASSERT(!holds(peer));
  until_[until].insert({ticket, peer});
  deadlines_.insert({parked.deadline, peer});
  parked_.emplace(peer, Entry{std::move(parked), until, ticket});
}

ParkedRequest StoreWaits::remove(uint64_t peer) {
  const auto found = parked_.find(peer);
  Entry entry = std::move(found->second);
  parked_.erase(found);
  deadlines_.erase({entry.parked.deadline, peer});
  const auto line = until_.find(entry.until);
  line->second.erase({entry.ticket, peer});
  if (line->second.empty()) until_.erase(line);
  return std::move(entry.parked);
}

std::vector<ParkedRequest> StoreWaits::take(const std::string& until, size_t most) {
  const auto line = until_.find(until);
  if (line == until_.end()) return {};
  std::vector<uint64_t> peers;
  for (const auto& [ticket, peer] : line->second) {
    if (peers.size() == most) break;
    peers.push_back(peer);
  }
  std::vector<ParkedRequest> taken;
  for (const uint64_t peer : peers) taken.push_back(remove(peer));
  return taken;
}

std::vector<ParkedRequest> StoreWaits::take_expired(TimePoint now) {
  std::vector<ParkedRequest> taken;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now)
    taken.push_back(remove(deadlines_.begin()->second));
  return taken;
}

void StoreWaits::drop(uint64_t peer) {
  if (holds(peer)) remove(peer);
}

std::optional<TimePoint> StoreWaits::next_deadline() const {
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

}  // namespace lockstep::comm

#include "lockstep/launch/schedulers/neighbours.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>

namespace lockstep::launch {

std::string process_space() {
  std::error_code unreadable;
  return std::filesystem::read_symlink("/proc/self/ns/pid", unreadable).string();
}

Neighbours::~Neighbours() {
  for (const auto& [token, watch] : watched_) {
    if (watch >= 0) ::close(watch);
  }
}

void Neighbours::begin_round(const State& state) {
  const NodePlace* own = state.place_of(own_token_);
  if (own == nullptr) return;
  for (const NodePlace& place : state.nodes) {
    const NodeCard& card = place.card;
    const bool here = card.machine == own->card.machine && card.host == own->card.host &&
                      !card.process_space.empty() && card.process_space == own->card.process_space;
    if (!here || card.token == own_token_ || card.pid <= 0 || watched_.contains(card.token)) continue;
    const auto watch = static_cast<int>(::syscall(SYS_pidfd_open, card.pid, 0));
    if (watch >= 0) watched_[card.token] = watch;
  }
}

void Neighbours::add_sources(std::vector<pollfd>& sources) const {
  for (const auto& [token, watch] : watched_) {
    if (watch >= 0) sources.push_back({watch, POLLIN, 0});
  }
}

std::vector<std::string> Neighbours::take_gone() {
  std::vector<std::string> gone;
  for (auto& [token, watch] : watched_) {
    pollfd ended{watch, POLLIN, 0};
    if (watch < 0 || ::poll(&ended, 1, 0) != 1) continue;
    ::close(watch);
    watch = -1;
    gone.push_back(token);
  }
  return gone;
}

}  // namespace lockstep::launch

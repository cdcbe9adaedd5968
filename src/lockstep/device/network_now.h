// What this machine's network interfaces carry at this moment: bytes per second since the look before.
//
//     NetworkWatch network;
//     for (const LinkNow& link : network.look()) ...   // {"eth0", 1.2e9 out, 1.1e9 in, of 12.5e9}
//
// Ethernet and the like from the kernel's counters of interfaces, InfiniBand from those of its ports. The
// loopback interface is left out, and so is what carried nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::device {

struct LinkNow {
  std::string name;                // "eth0", "mlx5_0 port 1"
  double sent = 0, received = 0;   // bytes per second
  std::optional<double> capacity;  // of each direction, where the link says it
};

class NetworkWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit NetworkWatch(std::string root = "/sys/class");  // counting begins here
  // The busiest first.
  std::vector<LinkNow> look(Clock::time_point now = Clock::now());

 private:
  struct Count {
    uint64_t sent = 0, received = 0;  // bytes
    std::optional<double> capacity;
  };
  std::map<std::string, Count> count() const;

  const std::string root_;
  std::map<std::string, Count> before_;
  Clock::time_point when_;
};

}  // namespace lockstep::device

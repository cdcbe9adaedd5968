#include "lockstep/device/network_now.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"

namespace lockstep::device {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename());
  return names;
}

template <class Number>
std::optional<Number> number_in(const std::string& file) {
  constexpr int64_t kMost = 4096;
  const base::ReadResult read = base::try_read_file(file, kMost);
  return read.problem.empty() ? base::parse_number<Number>(base::trimmed(read.text)) : std::nullopt;
}

// "200 Gb/sec (4X HDR)"
std::optional<double> rate_in(const std::string& file) {
  constexpr int64_t kMost = 4096;
  const std::string text = base::try_read_file(file, kMost).text;
  const size_t unit = text.find(" Gb/sec");
  if (unit == std::string::npos) return std::nullopt;
  const auto gigabits = base::parse_number<double>(base::trimmed(text.substr(0, unit)));
  return gigabits ? std::optional(*gigabits * 1e9 / 8) : std::nullopt;
}

}  // namespace

NetworkWatch::NetworkWatch(std::string root)
    : root_(std::move(root)), before_(count()), when_(Clock::now()) {}

std::map<std::string, NetworkWatch::Count> NetworkWatch::count() const {
  std::map<std::string, Count> counts;
  for (const std::string& name : names_in(root_ + "/net")) {
    const std::string folder = root_ + "/net/" + name;
    const auto sent = number_in<uint64_t>(folder + "/statistics/tx_bytes");
    const auto received = number_in<uint64_t>(folder + "/statistics/rx_bytes");
    if (name == "lo" || !sent || !received) continue;
    const auto megabits = number_in<int64_t>(folder + "/speed");  // -1, or no answer, where there is none
    Count& one = counts[name] = {*sent, *received, std::nullopt};
    if (megabits.value_or(0) > 0) one.capacity = static_cast<double>(*megabits) * 1e6 / 8;
  }
  constexpr uint64_t kWord = 4;  // bytes: InfiniBand counts in words
  for (const std::string& device : names_in(root_ + "/infiniband")) {
    for (const std::string& port : names_in(root_ + "/infiniband/" + device + "/ports")) {
      const std::string folder = fmt::format("{}/infiniband/{}/ports/{}", root_, device, port);
      const auto sent = number_in<uint64_t>(folder + "/counters/port_xmit_data");
      const auto received = number_in<uint64_t>(folder + "/counters/port_rcv_data");
      if (!sent || !received) continue;
      counts[fmt::format("{} port {}", device, port)] = {kWord * *sent, kWord * *received,
                                                         rate_in(folder + "/rate")};
    }
  }
  return counts;
}

std::vector<LinkNow> NetworkWatch::look(Clock::time_point now) {
  std::map<std::string, Count> counts = count();
  const double seconds = std::chrono::duration<double>(now - when_).count();
  std::vector<LinkNow> links;
  for (const auto& [name, one] : counts) {
    const auto last = before_.find(name);
    // A counter that went back began again: the interface was taken away and made again.
    if (seconds <= 0 || last == before_.end() || one.sent < last->second.sent ||
        one.received < last->second.received)
      continue;
    const LinkNow link{.name = name,
                       .sent = static_cast<double>(one.sent - last->second.sent) / seconds,
                       .received = static_cast<double>(one.received - last->second.received) / seconds,
                       .capacity = one.capacity};
    if (link.sent + link.received > 0) links.push_back(link);
  }
  std::ranges::stable_sort(links, std::greater<>(),
                           [](const LinkNow& link) { return link.sent + link.received; });
  before_ = std::move(counts), when_ = now;
  return links;
}

}  // namespace lockstep::device

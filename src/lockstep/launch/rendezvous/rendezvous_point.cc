#include "lockstep/launch/rendezvous/rendezvous_point.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>
#include <set>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;

// Below those that the kernel hands out by itself.
constexpr int kFirstPort = 20000, kPorts = 12000;
constexpr int kCandidates = 4;

// Coprime with kPorts: no port comes twice.
constexpr uint64_t kStride = 4201;

comm::StoreClientOptions client_of(const RendezvousPoint& point, const comm::StoreServerOptions& server,
                                   const std::string& endpoint) {
  comm::StoreClientOptions client;
  client.endpoint = endpoint, client.secret = server.secret, client.tls = server.tls;
  client.run = point.run, client.who = point.whom;
  return client;
}

// Why no store of this run may begin here: another process has one at that port. Nothing: none was seen
// there.
std::exception_ptr ask_at(const RendezvousPoint& point, const comm::StoreServerOptions& server, size_t which,
                          comm::Door& door) {
  constexpr Duration kOneKnock{1000};
  const std::string there = point.endpoint(which);
  const comm::StoreClientOptions client = client_of(point, server, there);
  std::string problem;
  try {
    if (!comm::try_connect_store_once(client, std::min(point.patience, kOneKnock), problem, door))
      return nullptr;
  } catch (const base::ConfigError&) {
    door = comm::Door::ours;
    return std::make_exception_ptr(base::ConfigError(
        515,
        fmt::format("a run of that name with another secret is at {}; choose another --rdzv-id", there)));
  }
  return std::make_exception_ptr(base::ConfigError(
      528, fmt::format("another process is already {} of this job, at {}; give each process its own {}",
                       point.whom, there, point.numbered_by)));
}

// Returns when there is no store of this run at any of the ports `which`: nobody is there, or somebody has
// said that it is something else. A port whose program says nothing as long as the patience lasts is
// another's. The result: where nobody was.
std::set<size_t> expect_no_store(const RendezvousPoint& point, const comm::StoreServerOptions& server,
                                 std::vector<size_t> which) {
  constexpr Duration kPause{500};  // each knock may be a line in the log of the store there
  const Clock::time_point end = Clock::now() + point.patience;
  std::set<size_t> deserted;
  for (;;) {
    std::exception_ptr objection;
    std::erase_if(which, [&](size_t one) {
      comm::Door door{};
      if (const std::exception_ptr now = ask_at(point, server, one, door)) objection = now;
      if (door == comm::Door::nobody) deserted.insert(one);
      return door == comm::Door::nobody || door == comm::Door::foreign;
    });
    end_if_asked();
    if (which.empty()) return deserted;
    if (Clock::now() >= end) {
      if (objection) std::rethrow_exception(objection);
      return deserted;
    }
    std::this_thread::sleep_for(kPause);
  }
}

// What the ports have answered so far: the newest problem of each, and one that refused us or could not prove
// itself. That one may be an intruder, so the others are asked before it counts.
struct Answers {
  explicit Answers(size_t ports) : problems(ports) {}
  std::vector<std::string> problems;
  std::exception_ptr refusal;
  size_t asked_since = 0;
  bool hopeless() const { return refusal && asked_since >= problems.size(); }
};

// One knock at each door. One that opens and says nothing uses up the turn: the next begins behind it, at
// `first`.
std::unique_ptr<comm::Store> knock_at_all(const RendezvousPoint& point, comm::StoreClientOptions& client,
                                          size_t& first, Clock::time_point end, Answers& answers) {
  for (size_t k = 0; k < point.ports.size(); ++k) {
    const size_t which = first;
    const auto left = std::chrono::duration_cast<Duration>(end - Clock::now());
    if (k > 0 && left <= Duration(0)) break;
    first = (first + 1) % point.ports.size();
    client.endpoint = point.endpoint(which);
    try {
      std::string& problem = answers.problems[which];
      if (auto store = comm::try_connect_store_once(client, std::max(left, Duration(1)), problem))
        return store;
    } catch (const base::ConfigError& error) {
      if (!answers.refusal) answers.asked_since = 0;
      answers.refusal = std::current_exception();
      answers.problems[which] = error.what();
    }
    ++answers.asked_since;
  }
  return nullptr;
}

// Each once: that a name is not known is the same at every port.
std::string joined(const std::vector<std::string>& problems) {
  std::vector<std::string> once;
  for (const std::string& one : problems) {
    if (!one.empty() && std::find(once.begin(), once.end(), one) == once.end()) once.push_back(one);
  }
  return base::join(once, "; ");
}

}  // namespace

std::string endpoint_text(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string RendezvousPoint::endpoint(size_t which) const { return endpoint_text(host, ports[which]); }

std::string RendezvousPoint::text() const {
  return ports.size() == 1 ? endpoint(0) : fmt::format("{} (ports {})", host, fmt::join(ports, ", "));
}

RendezvousPoint given_point(const std::string& host, int port) { return {.host = host, .ports = {port}}; }

RendezvousPoint agreed_point(const std::string& host, const std::string& job) {
  const uint64_t hash = base::hash_text(job);
  RendezvousPoint point{.run = fmt::format("{:016x}", hash), .host = host, .ports = {}};
  for (uint64_t k = 0; k < kCandidates; ++k)
    point.ports.push_back(kFirstPort + static_cast<int>((hash + k * kStride) % kPorts));
  return point;
}

RendezvousPoint point_of(const Options& options) {
  return options.agreed_for.empty() ? given_point(options.endpoint_host, options.endpoint_port)
                                    : agreed_point(options.endpoint_host, options.agreed_for);
}

std::unique_ptr<comm::StoreServer> hold_store(const RendezvousPoint& point,
                                              comm::StoreServerOptions options) {
  options.address = point.host, options.run = point.run;
  // All of them, also those behind the first free one: what had that when the other process began is gone.
  std::vector<size_t> all(point.ports.size());
  std::iota(all.begin(), all.end(), 0);
  std::set<size_t> deserted;
  if (!point.run.empty()) deserted = expect_no_store(point, options, all);
  for (const size_t which : all) {
    options.port = point.ports[which];
    try {
      return std::make_unique<comm::StoreServer>(options);
    } catch (const comm::AddressInUse&) {
      if (point.run.empty()) throw;
      if (deserted.contains(which)) expect_no_store(point, options, {which});  // who has come since?
    }
  }
  throw comm::AddressInUse(513, fmt::format("the store cannot listen at {}: other programs have all of these "
                                            "ports; give --rdzv-endpoint HOST:PORT with a free one",
                                            point.text()));
}

std::unique_ptr<comm::Store> reach_store(const RendezvousPoint& point, comm::StoreClientOptions& client,
                                         Duration timeout, const Say& say, std::string& problem) {
  constexpr Duration kTurn{1500}, kFirstPause{20}, kLongestPause{1000};
  const Clock::time_point end = Clock::now() + timeout;
  client.run = point.run;
  Answers answers(point.ports.size());
  std::string told;
  Duration pause = kFirstPause;
  for (size_t first = 0;;) {
    const Clock::time_point turn_end = std::min(end, Clock::now() + kTurn);
    do {
      if (auto store = knock_at_all(point, client, first, turn_end, answers)) return store;
      problem = joined(answers.problems);
      if (point.ports.size() == 1 && answers.hopeless()) break;
      end_if_asked();
      const auto left = std::chrono::duration_cast<Duration>(turn_end - Clock::now());
      std::this_thread::sleep_for(std::clamp(left, Duration(1), pause));
      pause = std::min(2 * pause, kLongestPause);
    } while (Clock::now() < turn_end);
    if (answers.hopeless()) std::rethrow_exception(answers.refusal);
    if (Clock::now() >= end) return nullptr;
    // A name that nobody knows will hardly become known, but that is for the user to see.
    if (problem != told) say(fmt::format("waiting for {} at {} ({})", point.whom, point.text(), problem));
    told = problem;
  }
}

// Signals are blocked in a launcher by now; one that asks to end takes its usual course.
void end_if_asked() {
  sigset_t pending;
  sigpending(&pending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (!sigismember(&pending, number)) continue;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  }
}

}  // namespace lockstep::launch

#include "lockstep/launch/schedulers/foreign_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/rendezvous/hosted_store.h"
#include "lockstep/launch/rendezvous/network.h"
#include "lockstep/launch/rendezvous/run_store.h"
#include "lockstep/launch/schedulers/rendezvous_file.h"

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;

// What all ranks of this attempt know and no other job does. Where no port tells jobs of one machine apart,
// their ranks share a parent.
std::string job_name(bool one_machine) {
  std::string name;
  for (const char* variable :
       {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    name += process_variable(variable).value_or("") + "|";
  }
  const bool has_port = !process_variable("MASTER_PORT").value_or("").empty();
  return one_machine && !has_port ? name + std::to_string(::getppid()) : name;
}

comm::StoreClientOptions client_options(const std::string& endpoint, const comm::Secret& secret, int rank) {
  comm::StoreClientOptions options;
  options.endpoint = endpoint, options.secret = secret;
  options.who = fmt::format("rank {} on {}", rank, base::host_name());
  return options;
}

// Says once, when it takes long, what is waited for.
class Patience {
 public:
  Patience(Duration most, const Say& say) : end_(Clock::now() + most), say_(say) {}
  Duration left() const { return std::chrono::duration_cast<Duration>(end_ - Clock::now()); }
  bool over() const { return left() <= Duration::zero(); }
  void tell(const std::string& sentence) {
    if (told_ || Clock::now() < tell_at_) return;
    say_(sentence);
    told_ = true;
  }

 private:
  Clock::time_point end_, tell_at_ = Clock::now() + Duration(2000);
  const Say& say_;
  bool told_ = false;
};

[[noreturn]] void throw_second_first(const std::string& endpoint) {
  throw base::ConfigError(
      528, fmt::format("another process is already rank 0 of this job, at {}; give each process its own RANK",
                       endpoint));
}

bool answers(const std::string& endpoint, const comm::Secret& secret) {
  comm::StoreClientOptions options = client_options(endpoint, secret, 0);
  options.connect_timeout = Duration(300);
  try {
    return comm::connect_store(options) != nullptr;
  } catch (const base::Error&) {
    return false;
  }
}

// A rendezvous file may be left over from a job that was killed: until someone answers, it is read again.
std::unique_ptr<comm::Store> follow_rendezvous_file(const std::string& job, const comm::Seat& seat,
                                                    Duration timeout, const Say& say) {
  Patience patience(timeout, say);
  for (;;) {
    const Duration piece = std::clamp(patience.left(), Duration(1), Duration(1000));
    try {
      const StoreAddress address = await_rendezvous_file(job, piece);
      auto options = client_options(address.endpoint, address.secret, seat.rank);
      options.connect_timeout = piece;
      return comm::connect_store(options);
    } catch (const FolderNotOursError&) {
      throw;
    } catch (const base::Error&) {
      if (patience.over()) {
        throw base::CommError(551,
                              fmt::format("rank {}: rank 0 did not join within {}", seat.rank,
                                          base::human_duration(static_cast<double>(timeout.count()) / 1000)));
      }
    }
    patience.tell(fmt::format("rank {} is waiting for rank 0 on this machine", seat.rank));
  }
}

std::unique_ptr<comm::Store> meet_on_one_machine(const comm::Seat& seat, const Options& options,
                                                 const Say& say) {
  const std::string job = job_name(true);
  if (seat.rank != 0) return follow_rendezvous_file(job, seat, options.join_timeout, say);
  if (const std::optional<StoreAddress> other = find_rendezvous_file(job)) {
    if (answers(other->endpoint, other->secret)) throw_second_first(other->endpoint);
  }
  comm::StoreServerOptions server_options;
  server_options.secret = comm::Secret::random();
  auto server = std::make_unique<comm::StoreServer>(server_options);
  const StoreAddress address{server->endpoint(), server_options.secret};
  auto connection = comm::connect_store(client_options(address.endpoint, address.secret, 0));
  return host_store(std::move(server), std::make_unique<RendezvousFile>(job, address), std::move(connection));
}

std::unique_ptr<comm::Store> hold_at(const RendezvousPoint& point, const comm::Secret& secret,
                                     const Say& say) {
  comm::StoreServerOptions options;
  options.secret = secret, options.log = say;
  auto server = hold_store(point, options);
  comm::StoreClientOptions client = client_options(server->endpoint(), secret, 0);
  client.run = point.run;
  auto connection = comm::connect_store(client);
  return host_store(std::move(server), nullptr, std::move(connection));
}

std::unique_ptr<comm::Store> find_at(const RendezvousPoint& point, const comm::Secret& secret,
                                     const comm::Seat& seat, Duration timeout, const Say& say) {
  comm::StoreClientOptions client = client_options("", secret, seat.rank);
  std::string problem;
  const auto tell = [&](const std::string& what) { say(fmt::format("rank {} is {}", seat.rank, what)); };
  if (auto store = reach_store(point, client, timeout, tell, problem)) return store;
  throw base::CommError(552, fmt::format("rank {}: rank 0 did not respond within {} at {} ({})", seat.rank,
                                         base::human_duration(static_cast<double>(timeout.count()) / 1000),
                                         point.text(), problem));
}

}  // namespace

std::unique_ptr<comm::Store> join_foreign_ranks(const comm::Seat& seat, const Options& options,
                                                const Say& say_text) {
  const Say say = [say_text](const std::string& sentence) { say_text("lockstep: " + sentence + "\n"); };
  if (seat.local_world == seat.world) return meet_on_one_machine(seat, options, say);
  const std::optional<std::string> host = process_variable("MASTER_ADDR");
  if (!host || host->empty()) {
    throw base::ConfigError(538,
                            "incomplete environment: RANK and WORLD_SIZE are set but MASTER_ADDR is not; set "
                            "it to the address of rank 0's machine");
  }
  const comm::Secret secret = run_secret(options, seat.rank == 0, say);
  RendezvousPoint point = agreed_point(reachable(*host), "ranks " + job_name(false));
  point.whom = "rank 0", point.numbered_by = "RANK";
  return seat.rank == 0 ? hold_at(point, secret, say)
                        : find_at(point, secret, seat, options.join_timeout, say);
}

}  // namespace lockstep::launch

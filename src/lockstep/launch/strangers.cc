#include "lockstep/launch/strangers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/hosted_store.h"
#include "lockstep/launch/invitation.h"
#include "lockstep/launch/meeting.h"

namespace lockstep::launch {

namespace {

constexpr int kCandidates = 4;  // ports that are tried before giving up

// What all ranks of this attempt know and no other job does. Ranks of one machine share their parent.
std::string job_name(bool one_machine) {
  std::string name;
  for (const char* variable :
       {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    name += process_variable(variable).value_or("") + "|";
  }
  return one_machine ? name + std::to_string(::getppid()) : name;
}

comm::StoreClientOptions client_options(const std::string& endpoint, const comm::Secret& secret, int rank) {
  comm::StoreClientOptions options;
  options.endpoint = endpoint, options.secret = secret;
  options.who = fmt::format("rank {} on {}", rank, base::host_name());
  return options;
}

std::unique_ptr<comm::Store> meet_on_one_machine(const comm::Seat& seat, const Options& options) {
  const std::string job = job_name(true);
  if (seat.rank != 0) {
    const Invitation invitation = await_invitation(job, options.join_timeout);
    return comm::connect_store(client_options(invitation.endpoint, invitation.secret, seat.rank));
  }
  comm::StoreServerOptions server_options;
  server_options.secret = comm::Secret::random();
  auto server = std::make_unique<comm::StoreServer>(server_options);
  const Invitation invitation{server->endpoint(), server_options.secret};
  auto connection = comm::connect_store(client_options(invitation.endpoint, invitation.secret, 0));
  return host_store(std::move(server), std::make_unique<InvitationFile>(job, invitation),
                    std::move(connection));
}

std::unique_ptr<comm::Store> hold_at(const std::string& host, const std::string& job,
                                     const comm::Secret& secret, const Say& say) {
  for (int k = 0;; ++k) {
    comm::StoreServerOptions options;
    options.address = host, options.port = agreed_port(job, k), options.secret = secret, options.log = say;
    try {
      auto server = std::make_unique<comm::StoreServer>(options);
      auto connection = comm::connect_store(client_options(server->endpoint(), secret, 0));
      return host_store(std::move(server), nullptr, std::move(connection));
    } catch (const base::ConfigError&) {
      if (k + 1 == kCandidates) throw;  // all taken, or the address is not ours
    }
  }
}

std::unique_ptr<comm::Store> find_at(const std::string& host, const std::string& job,
                                     const comm::Secret& secret, const comm::Seat& seat, Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::string tried, why;
  for (int k = 0; std::chrono::steady_clock::now() < deadline; ++k) {
    comm::StoreClientOptions options =
        client_options(fmt::format("{}:{}", host, agreed_port(job, k % kCandidates)), secret, seat.rank);
    options.connect_timeout = Duration(500);
    if (k < kCandidates) tried += (k ? ", " : "") + options.endpoint;
    try {
      return comm::connect_store(options);
    } catch (const base::Error& error) {  // nobody yet, or another program on that port
      why = error.what();
    }
  }
  throw base::CommError(
      552, fmt::format("rank {}: rank 0 did not answer within {} at {} ({})", seat.rank,
                       base::human_duration(static_cast<double>(timeout.count()) / 1000), tried, why));
}

}  // namespace

std::unique_ptr<comm::Store> join_strangers(const comm::Seat& seat, const Options& options, const Say& say) {
  if (seat.local_world == seat.world) return meet_on_one_machine(seat, options);
  const std::optional<std::string> host = process_variable("MASTER_ADDR");
  if (!host || host->empty()) {
    throw base::ConfigError(
        538,
        "RANK and WORLD_SIZE are set but MASTER_ADDR is not: the environment is half set; set it to the "
        "address of rank 0's machine");
  }
  const std::string job = job_name(false);
  const comm::Secret secret = meeting_secret(options, seat.rank == 0, say);
  return seat.rank == 0 ? hold_at(*host, job, secret, say)
                        : find_at(*host, job, secret, seat, options.join_timeout);
}

}  // namespace lockstep::launch

#include "lockstep/launch/scheduled.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/interface.h"
#include "lockstep/comm/store_server.h"
#include "lockstep/device/affinity.h"
#include "lockstep/launch/agent.h"
#include "lockstep/launch/binding.h"
#include "lockstep/launch/invitation.h"
#include "lockstep/launch/leader.h"
#include "lockstep/launch/node_address.h"
#include "lockstep/launch/rank_logs.h"
#include "lockstep/launch/tasks.h"

namespace lockstep::launch {

namespace {

comm::Seat seat_of(const Scheduled& scheduled) {
  comm::Seat seat;
  seat.rank = scheduled.task, seat.world = scheduled.tasks;
  seat.local_rank = scheduled.local_task, seat.local_world = scheduled.node_tasks;
  seat.node = scheduled.nodes == 1 ? 0 : scheduled.node, seat.nodes = scheduled.nodes;
  return seat;
}

std::string node_name(const comm::Seat& seat) {
  return seat.node >= 0 ? std::to_string(seat.node) : base::host_name();
}

comm::StoreClientOptions client_of(const Scheduled& scheduled, const Options& options, const Say& say) {
  comm::StoreClientOptions client;
  client.who = fmt::format("rank {} on {}", scheduled.task, base::host_name());
  if (options.endpoint_host.empty()) {
    const Invitation invitation = await_invitation(scheduled.job, options.join_timeout);
    client.endpoint = invitation.endpoint, client.secret = invitation.secret;
  } else {
    client.endpoint = endpoint_text(options.endpoint_host, options.endpoint_port);
    client.secret = meeting_secret(options, false, say);
  }
  return client;
}

// The nodes' launchers hold a roll call of their own; ranks begin when it is complete.
State await_round(comm::Store& launchers, Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    if (const auto text = launchers.try_get(kState)) {
      State state = state_from_json(nlohmann::json::parse(*text));
      if (state.phase == Phase::running) return state;
      if (state.phase == Phase::over)
        throw base::CommError(554, "the run ended before this rank could join: " + state.why);
    }
    std::this_thread::sleep_for(Duration(50));
  }
  throw base::CommError(
      554, "the nodes' launchers did not come together in time; the first node says who is missing");
}

void write_into(const std::string& path) {
  base::make_folders(std::filesystem::path(path).parent_path().string());
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw base::IoError(802, path + " cannot be written");
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  ::close(file);
}

Start join_node(const Scheduled& scheduled, const Options& options, const std::string& log_folder,
                const Say& say) {
  comm::Seat seat = seat_of(scheduled);
  const comm::StoreClientOptions client = client_of(scheduled, options, say);
  std::unique_ptr<comm::Store> store = connect_patiently(client, options.join_timeout, say);
  const std::string prefix = run_prefix(options.run_id);
  const std::unique_ptr<comm::Store> launchers = comm::with_prefix(store->clone(), prefix);
  launchers->push(task_queue(node_name(seat)), write_json({{"rank", seat.rank},
                                                           {"local_rank", seat.local_rank},
                                                           {"pid", ::getpid()},
                                                           {"host", base::host_name()}}));
  const State state = await_round(*launchers, options.join_timeout);
  for (const NodePlace& place : state.nodes) {
    if (seat.node < 0 && place.card.host == base::host_name()) seat.node = place.node;
  }
  seat.node = std::max(0, seat.node);
  const int ended = split_task(options.grace, [&](int status) {
    comm::StoreClientOptions last = client;
    last.connect_timeout = Duration(2000);
    const std::unique_ptr<comm::Store> words = comm::with_prefix(comm::connect_store(last), prefix);
    words->set(ending_key(seat.rank), std::to_string(status));
    words->check({ending_key(seat.rank)});  // answered: it has arrived before this process ends
  });
  Start start;
  if (ended > 0) {
    start.exit_code = ended - 1;
    return start;
  }
  ::setenv("OMP_NUM_THREADS", std::to_string(processors_per_rank(seat.local_world, true)).c_str(), 0);
  device::bind_this_process(cpus_of_rank(options.numa_binding, seat.local_rank, seat.local_world));
  write_into(run_log(log_folder, state.first_attempt, seat.rank));
  start.options.seat = seat;
  start.options.interface = comm::address_towards(client.endpoint);
  start.store = comm::with_prefix(std::move(store), rank_prefix(0));
  return start;
}

}  // namespace

void take_scheduled(Words& words, const Scheduled& scheduled) {
  const auto fill = [](std::string& word, const std::string& value) {
    if (word.empty()) word = value;
  };
  if (scheduled.nodes > 1 && words.nnodes.empty()) {
    words.nnodes = scheduled.fewest_nodes < scheduled.nodes
                       ? fmt::format("{}:{}", scheduled.fewest_nodes, scheduled.nodes)
                       : std::to_string(scheduled.nodes);
    if (scheduled.node >= 0) fill(words.node_rank, std::to_string(scheduled.node));
    if (!scheduled.first_host.empty() && words.rdzv_endpoint.empty())
      words.rdzv_endpoint = endpoint_text(first_host(scheduled), scheduled.port);
  }
  fill(words.rdzv_id, scheduled.job);
  if (scheduled.kind == TaskKind::one_a_node) fill(words.nproc_per_node, scheduled.ranks_per_node);
}

Start start_task(const Scheduled& scheduled, const Words& given, const std::vector<std::string>& argv,
                 const std::string& log_folder, const Say& say) {
  Words words = given;
  if (!words.nproc_per_node.empty() && words.nproc_per_node != "1") {
    throw base::ConfigError(
        553, fmt::format("--nproc {}: {} starts one task for each of {} ranks already; leave --nproc out, or "
                         "start one task a node",
                         words.nproc_per_node, scheduled.scheduler, scheduled.tasks));
  }
  words.nproc_per_node = "1", words.max_restarts = "";  // other tasks cannot be started again from here
  const Options options = read_options(words);
  if (scheduled.local_task != 0) return join_node(scheduled, options, log_folder, say);
  AgentJob job;
  job.options = options;
  job.command = own_command(argv);
  job.own_program = job.scheduled = true, job.log_folder = log_folder, job.say = say;
  job.seat = seat_of(scheduled), job.node_name = node_name(*job.seat);
  if (options.endpoint_host.empty()) job.invitation = scheduled.job;
  Start start;
  start.exit_code = run_agent(job);
  return start;
}

}  // namespace lockstep::launch

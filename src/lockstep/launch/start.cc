#include "lockstep/launch/start.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/store/secret.h"
#include "lockstep/comm/store/store_server.h"
#include "lockstep/device/cuda_facts.h"
#include "lockstep/device/thread_pool.h"
#include "lockstep/launch/agent.h"
#include "lockstep/launch/process/binding.h"
#include "lockstep/launch/rendezvous/network.h"
#include "lockstep/launch/schedulers/foreign_ranks.h"
#include "lockstep/launch/schedulers/idle_allocation.h"
#include "lockstep/launch/schedulers/scheduled.h"

namespace lockstep::launch {

namespace {

int visible_gpu_count() {
  const device::CudaFacts facts = device::read_cuda_facts();
  return facts.has_libcuda ? static_cast<int>(device::visible_gpus(facts.gpus, facts.visible_devices).size())
                           : 0;
}

// Those that our own ranks can compute on.
int usable_gpu_count() { return device::cuda_availability().devices; }

std::optional<int> number_in(const Variable& variable, const std::string& name) {
  const std::optional<std::string> text = variable(name);
  if (!text) return std::nullopt;
  const std::optional<int> value = base::parse_number<int>(*text);
  if (!value || *value < 0) {
    throw base::ConfigError(
        538,
        fmt::format(
            "{} = {} in the environment is not a number; unset it, or start with `lockstep train --nproc N`",
            name, base::quoted(*text)));
  }
  return value;
}

// Of a process that no scheduler started as a task, but that runs in the script of a batch job.
void say_what_idles(const AgentJob& job, const Say& say) {
  if (!job.options.one_node()) return;
  if (const std::string idle = idle_allocation(this_environment(), job.ranks); !idle.empty()) say(idle);
}

// A rank of a launcher of ours: the store and its secret are in the environment.
Start join_launcher(const std::string& endpoint, const comm::Seat& seat) {
  const std::optional<int> descriptor = number_in(process_variable, "LOCKSTEP_SECRET_FD");
  if (!descriptor) {
    throw base::ConfigError(538,
                            "incomplete environment: LOCKSTEP_STORE is set but LOCKSTEP_SECRET_FD is not; "
                            "unset LOCKSTEP_STORE, or start with `lockstep train --nproc N`");
  }
  comm::StoreClientOptions client;
  client.endpoint = endpoint;
  client.secret = comm::Secret::from_descriptor(*descriptor);
  client.who = fmt::format("rank {} on {}", seat.rank, base::host_name());
  client.tls = process_variable("LOCKSTEP_STORE_TLS").has_value();
  const int round = number_in(process_variable, "LOCKSTEP_ROUND").value_or(0);
  Start start;
  start.options.seat = seat;
  start.store = comm::with_prefix(comm::connect_store(client), rank_prefix(round));
  return start;
}

// A rank of another launcher.
Start join_foreign(const comm::Seat& seat, const Words& words, const Say& say) {
  if (!words.nproc_per_node.empty() || !words.nnodes.empty()) {
    throw base::ConfigError(553, fmt::format("--nproc and --nnodes start ranks, but this process is already "
                                             "rank {} of {} of another launcher; omit them",
                                             seat.rank, seat.world));
  }
  Start start;
  if (seat.world == 1) return start;
  start.options.seat = seat;
  start.store = join_foreign_ranks(seat, read_options(words), say);
  // Several machines: Gloo and NCCL use the interface that leads to rank 0's.
  if (seat.local_world < seat.world)
    start.options.interface = address_towards(process_variable("MASTER_ADDR").value_or(""));
  return start;
}

}  // namespace

std::optional<comm::Seat> seat_from_environment(const Variable& variable) {
  const std::optional<int> rank = number_in(variable, "RANK"), world = number_in(variable, "WORLD_SIZE");
  if (!rank && !world) return std::nullopt;
  if (!rank || !world) {
    throw base::ConfigError(538, fmt::format("incomplete launcher environment: {} is set but {} is not; set "
                                             "both, or unset both and use --nproc",
                                             rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK"));
  }
  comm::Seat seat;
  seat.rank = *rank, seat.world = *world;
  seat.local_rank = number_in(variable, "LOCAL_RANK").value_or(0);
  seat.local_world = number_in(variable, "LOCAL_WORLD_SIZE").value_or(1);
  seat.node = number_in(variable, "GROUP_RANK").value_or(seat.rank / std::max(1, seat.local_world));
  seat.nodes = number_in(variable, "GROUP_WORLD_SIZE")
                   .value_or(std::max(1, seat.world / std::max(1, seat.local_world)));
  if (seat.rank >= seat.world || seat.local_rank >= seat.local_world || seat.local_world > seat.world ||
      seat.node >= seat.nodes) {
    throw base::ConfigError(538, fmt::format("contradictory environment: RANK = {} of WORLD_SIZE = {}, "
                                             "LOCAL_RANK = {} of LOCAL_WORLD_SIZE = {}",
                                             seat.rank, seat.world, seat.local_rank, seat.local_world));
  }
  return seat;
}

std::vector<std::string> own_command(const std::vector<std::string>& argv) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    throw base::ConfigError(557,
                            "/proc/self/exe cannot be read, so the program to start as a rank is unknown: "
                            "mount /proc, as container runtimes do");
  }
  std::vector<std::string> command = {self.string()};
  command.insert(command.end(), argv.begin(), argv.end());
  return command;
}

std::vector<std::string> this_command() {
  std::vector<std::string> command = own_command({});
  const std::string line = base::read_file("/proc/self/cmdline");  // each word ends with a zero byte
  bool name = true;
  for (size_t begin = 0; begin < line.size(); name = false) {
    const size_t end = std::min(line.find('\0', begin), line.size());
    if (!name) command.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return command;
}

std::string rank_prefix(int round) { return fmt::format("round-{}/", round); }

// The innermost launcher wins: ours, torchrun, the scheduler, and last what the flags say.
Start start(Words words, const std::string& log_folder, Say say, const RankNeeds& needs) {
  const auto endpoint = process_variable("LOCKSTEP_STORE");
  const bool torchrun = process_variable("TORCHELASTIC_RUN_ID") && process_variable("LOCAL_RANK");
  if (endpoint || torchrun) {
    const std::optional<comm::Seat> seat = seat_from_environment(process_variable);
    if (endpoint && !seat) {
      throw base::ConfigError(538,
                              "incomplete environment: LOCKSTEP_STORE is set but RANK and WORLD_SIZE are "
                              "not; unset LOCKSTEP_STORE, or start with `lockstep train --nproc N`");
    }
    if (endpoint) return join_launcher(*endpoint, *seat);
    if (seat) return join_foreign(*seat, words, say);
  }
  take_environment(words, process_variable);
  // Who gives a grace means it: within it the launcher has ended, and what the ranks did not save by then it
  // keeps itself. Else our ranks lose nothing when they are ended at once, and are waited for while they
  // save.
  const bool limited = !words.grace.empty();
  if (!limited) words.grace = std::string("5");
  const std::optional<Scheduled> scheduled = read_environment(this_environment());
  if (!scheduled) {
    const std::optional<comm::Seat> seat = seat_from_environment(process_variable);
    if (seat) return join_foreign(*seat, words, say);
  }
  // Who asks for one rank in words gets it with a launcher, which keeps snapshots and starts it again.
  const bool guarded =
      !needs.run_folder.empty() && (!words.nproc_per_node.empty() || !words.max_restarts.empty());
  if (needs.one_by_default && words.nproc_per_node.empty()) words.nproc_per_node = "1";
  if (scheduled) take_scheduled(words, *scheduled);
  // Ranks go on from memory or disk when they are started again, and progress refills the budget.
  if (words.max_restarts.empty()) words.max_restarts = "3";
  AgentJob job;
  if (scheduled && scheduled->kind == TaskKind::one_a_rank && scheduled->tasks > 1) {
    job = job_of_task(*scheduled, words);
    if (scheduled->local_task != 0) say = [](const std::string&) {};  // its machine's lowest speaks for it
  } else {
    job.options = read_options(words);
    job.ranks = words.nproc_per_node.empty()
                    ? std::max(1, usable_gpu_count())
                    : local_ranks(job.options, usable_gpu_count(), device::usable_processors());
  }
  if (!scheduled) say_what_idles(job, say);
  if (job.ranks == 1 && job.options.one_node() && !guarded && !needs.instead) return {};
  if (needs.fits && job.options.min_nodes == job.options.max_nodes) {
    needs.fits(job.ranks * job.options.max_nodes);
  }
  if (needs.instead) {
    const int nodes = job.options.max_nodes;
    Start rehearsed;
    rehearsed.exit_code =
        needs.instead({.world = job.ranks * nodes, .local_world = job.ranks, .nodes = nodes});
    return rehearsed;
  }
  job.command = this_command();
  job.own_program = true, job.scheduled = scheduled.has_value();
  job.log_folder = log_folder, job.say = std::move(say);
  job.run_folder = needs.run_folder;
  job.hang_seconds = needs.hang_seconds, job.notice_seconds = needs.notice_seconds;
  job.replicas = needs.replicas, job.from_scratch = needs.from_scratch;
  job.end_seconds = needs.notice_seconds;
  if (const double grace = static_cast<double>(job.options.grace.count()) / 1000;
      limited && (job.end_seconds <= 0 || grace < job.end_seconds))
    job.end_seconds = grace;
  Start start;
  start.exit_code = run_agent(job);
  return start;
}

std::unique_ptr<comm::World> join() {
  const std::optional<comm::Seat> seat = seat_from_environment(process_variable);
  if (!seat) return std::make_unique<comm::World>();
  const auto endpoint = process_variable("LOCKSTEP_STORE");
  Start start =
      endpoint ? join_launcher(*endpoint, *seat)
               : join_foreign(*seat, {}, [](const std::string& text) { std::fputs(text.c_str(), stderr); });
  if (!start.store) return std::make_unique<comm::World>();
  return std::make_unique<comm::World>(start.options, std::move(start.store));
}

namespace {

// Before anything is started; a rank that finds its port taken would only say so in the middle of a
// traceback.
void check_master_port(const Options& options) {
  const bool first_node = options.one_node() || options.node_rank == 0;
  if (!first_node || options.master_port == 0 || port_is_free(options.master_port)) return;
  throw base::ConfigError(539, fmt::format("--master-port {}: another program is listening on it; omit it to "
                                           "get a free port, or choose another",
                                           options.master_port));
}

}  // namespace

int launch_program(Words words, const std::vector<std::string>& program, Say say) {
  take_environment(words, process_variable);
  const std::optional<Scheduled> scheduled = read_environment(this_environment());
  if (scheduled) {
    if (scheduled->kind == TaskKind::one_a_rank && scheduled->tasks > scheduled->nodes) {
      throw base::ConfigError(553, fmt::format("lockstep launch starts the ranks itself, but {} has started "
                                               "{} tasks on {} nodes; start one task per node",
                                               scheduled->scheduler, scheduled->tasks, scheduled->nodes));
    }
    take_scheduled(words, *scheduled);
  }
  AgentJob job;
  job.options = read_options(words);
  check_master_port(job.options);
  job.command = rank_command(job.options, program, process_variable);
  const bool asks_gpus = job.options.nproc_kind == Nproc::gpu || job.options.nproc_kind == Nproc::automatic;
  job.ranks = local_ranks(job.options, asks_gpus ? visible_gpu_count() : 0, device::usable_processors());
  if (!scheduled) say_what_idles(job, say);
  job.say = std::move(say);
  return run_agent(job);
}

}  // namespace lockstep::launch

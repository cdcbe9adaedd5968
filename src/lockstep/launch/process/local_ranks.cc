#include "lockstep/launch/process/local_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/device/memory_group.h"
#include "lockstep/launch/process/binding.h"
#include "lockstep/launch/process/rank_environment.h"

namespace lockstep::launch {

namespace {

int64_t unix_micros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// A kill is the kernel's where it has counted one since the ranks were started.
void name_memory_kill(int64_t kills_before, Failure& failure) {
  const device::MemoryGroup group = device::read_memory_group();
  if (group.kills <= kills_before) return;
  failure.out_of_memory = true;
  failure.ending += group.limit_bytes
                        ? fmt::format(" by the kernel, out of memory: the limit of its cgroup is {}",
                                      base::human_bytes(static_cast<double>(*group.limit_bytes)))
                        : " by the kernel: this machine is out of memory";
}

}  // namespace

LocalRanks::LocalRanks(const AgentJob& job, const RunStore& run_store, const RankLogs& logs, Guard& guard,
                       DiskWriter& disk)
    : job_(job),
      run_store_(run_store),
      logs_(logs),
      guard_(guard),
      disk_(disk),
      environment_(current_environment()),
      launched_millis_(unix_micros() / 1000) {}

void LocalRanks::start(const State& state, const NodePlace& place) {
  ranks_.clear();
  kills_before_ = device::read_memory_group().kills;
  node_ = seat_of(state, place, 0).node, host_ = place.card.host;
  for (int local_rank = 0; local_rank < job_.ranks; ++local_rank) start_one(state, place, local_rank);
}

comm::Seat LocalRanks::seat_of(const State& state, const NodePlace& place, int local_rank) const {
  if (job_.task) return seat_of_task(state, place);
  comm::Seat seat;
  seat.rank = place.first_rank + local_rank, seat.world = state.world;
  seat.local_rank = local_rank, seat.local_world = place.card.ranks;
  seat.node = place.node, seat.nodes = static_cast<int>(state.nodes.size());
  return seat;
}

void LocalRanks::start_one(const State& state, const NodePlace& place, int local_rank) {
  Rank& rank = ranks_.emplace_back();
  const comm::Seat seat = seat_of(state, place, local_rank);
  rank.rank = seat.rank, rank.local_rank = seat.local_rank;
  const LogSeat log_seat{state.round, seat.rank, seat.local_rank, seat.world};
  const StreamPlans plans = logs_.plans(log_seat);
  rank.error_file = logs_.error_file(log_seat);
  rank.out = std::make_unique<RankStream>(plans.out, out_, &disk_);
  rank.err = std::make_unique<RankStream>(plans.err, err_, &disk_);
  RankFacts facts;
  facts.options = &job_.options, facts.state = &state, facts.place = &place, facts.seat = seat;
  facts.flight_folder = logs_.root();
  facts.error_file = rank.error_file, facts.own_program = job_.own_program,
  facts.store_endpoint = run_store_.endpoint;
  facts.has_memory = memories_ != nullptr, facts.launched_millis = launched_millis_;
  facts.processors = processors_per_rank(seat.local_world, job_.task.has_value());
  Process process;
  process.words = job_.command;
  process.environment = rank_environment(environment_, facts);
  process.cpus = cpus_of_rank(job_.options.numa_binding, seat.local_rank, seat.local_world);
  // One rank may read what is typed; for several, it is the first.
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  process.in = local_rank == 0 ? STDIN_FILENO : nothing;
  process.out = rank.out->child_end(), process.err = rank.err->child_end();
  if (job_.own_program) process.keep = comm::secret_descriptor(run_store_.secret);
  if (memories_ != nullptr) process.memory = memories_->descriptor(local_rank);
  rank.started_micros = unix_micros();
  try {
    rank.pid = guard_.start(process);
  } catch (...) {
    ::close(nothing);
    if (process.keep >= 0) ::close(process.keep);
    throw;
  }
  ::close(nothing);
  if (process.keep >= 0) ::close(process.keep);
  rank.out->close_child_end();
  rank.err->close_child_end();
}

void LocalRanks::note(const Ended& ended) {
  for (Rank& rank : ranks_) {
    if (rank.pid == ended.pid && !rank.ended) rank.ended = ended;
  }
}

void LocalRanks::signal(int number) {
  for (const Rank& rank : ranks_) {
    if (!rank.ended) guard_.signal(rank.pid, number);
  }
}

bool LocalRanks::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended.has_value(); });
}

std::vector<RunningRank> LocalRanks::all() const {
  std::vector<RunningRank> found;
  for (const Rank& rank : ranks_) found.push_back({rank.rank, rank.pid, rank.started_micros});
  return found;
}

std::vector<RunningRank> LocalRanks::running() const {
  std::vector<RunningRank> found;
  for (const Rank& rank : ranks_) {
    if (!rank.ended) found.push_back({rank.rank, rank.pid, rank.started_micros});
  }
  return found;
}

void LocalRanks::add_sources(std::vector<pollfd>& sources) const {
  for (const Rank& rank : ranks_) {
    for (const RankStream* stream : {rank.out.get(), rank.err.get()}) {
      if (stream->descriptor() >= 0) sources.push_back({stream->descriptor(), POLLIN, 0});
    }
  }
  for (const Console* console : {&out_, &err_}) {
    if (console->waits()) sources.push_back({console->descriptor(), POLLOUT, 0});
  }
}

void LocalRanks::pump() {
  out_.flush(), err_.flush();
  for (Rank& rank : ranks_) rank.out->pump(), rank.err->pump();
}

void LocalRanks::finish_output() {
  for (Rank& rank : ranks_) rank.out->finish(), rank.err->finish();
}

void LocalRanks::tell(watch::LaunchStatus& status) const {
  for (const Rank& rank : ranks_) {
    watch::LaunchStatus::Rank one{.rank = rank.rank, .pid = rank.pid};
    if (rank.ended)
      one.exit_code = exit_code_of(rank.ended->status), one.ending = describe_ending(rank.ended->status);
    // Programs print results to the one and progress to the other.
    std::vector<std::string> lines = rank.out->last_lines(1);
    if (lines.empty()) lines = rank.err->last_lines(1);
    if (!lines.empty()) one.last_line = lines.back();
    if (status.started_micros == 0) status.started_micros = rank.started_micros;
    status.ranks.push_back(std::move(one));
  }
}

Failure LocalRanks::failure_of(const Rank& rank) const {
  Failure failure;
  failure.rank = rank.rank, failure.local_rank = rank.local_rank, failure.node = node_, failure.host = host_;
  failure.pid = rank.pid, failure.code = exit_code_of(rank.ended->status),
  failure.ending = describe_ending(rank.ended->status);
  failure.unix_micros = rank.ended->unix_micros;
  failure.seconds = static_cast<double>(rank.ended->unix_micros - rank.started_micros) / 1e6;
  const RankStream* said = rank.err.get();
  if (said->last_lines(1).empty() && !rank.out->last_lines(1).empty()) said = rank.out.get();
  failure.log = said->file(), failure.last_lines = said->last_lines(5);
  // A lone rank's words stand right above the report.
  failure.shown = job_.own_program ? rank.rank == 0 && node_ == 0 : false;
  take_error_file(rank.error_file, failure);
  if (failure.code == 128 + SIGKILL) name_memory_kill(kills_before_, failure);
  return failure;
}

std::vector<Failure> LocalRanks::new_failures() {
  std::vector<Failure> failures;
  for (Rank& rank : ranks_) {
    if (!rank.ended || rank.told || rank.ended->status == 0) continue;
    rank.told = true;
    rank.out->drain(), rank.err->drain();
    failures.push_back(failure_of(rank));
  }
  return failures;
}

int LocalRanks::worst_code() const {
  int worst = 0;
  for (const Rank& rank : ranks_) {
    worst = worse_code(worst, rank.ended ? exit_code_of(rank.ended->status) : 0);
  }
  return worst;
}

}  // namespace lockstep::launch

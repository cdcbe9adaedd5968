#include "lockstep/launch/agent_loop.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>

#include "lockstep/base/descriptor_limit.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/launch/rendezvous/network.h"
#include "lockstep/launch/run_events.h"

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;

std::string random_token() {
  uint64_t value = 0;
  while (::getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return fmt::format("{:016x}", value);
}

// Our own ranks save on SIGUSR1 too: Slurm's --signal warns with it. A dropped terminal that
// --signals-to-handle leaves out is no reason to end: the run goes on without one.
std::vector<int> signals_for(const AgentJob& job) {
  std::vector<int> numbers = job.options.signals;
  if (!job.own_program) return numbers;
  const auto handles = [&](int number) {
    return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
  };
  for (const int number : {SIGHUP, SIGQUIT}) {
    if (!handles(number)) ::signal(number, SIG_IGN);
  }
  if (!handles(SIGUSR1)) numbers.push_back(SIGUSR1);
  return numbers;
}

Meeting meet(const AgentJob& job, const Say& say) {
  const bool invited = job.task && !job.task->invitation.empty() && job.task->task != 0;
  return invited ? accept_invitation(job.options, job.task->invitation, say)
                 : open_meeting(job.options, job.own_program, say);
}

// With fewer the store would take connections and never answer them.
void require_descriptors(int ranks) {
  const int64_t needed = 24 + 4 * int64_t{ranks};
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= static_cast<rlim_t>(needed)) return;
  throw base::IoError(532,
                      fmt::format("Too many open files: `ulimit -n` allows {}, and a launcher of {} rank{} "
                                  "needs some {}; raise the limit",
                                  limit.rlim_max, ranks, ranks == 1 ? "" : "s", needed));
}

// No node starts a rank, and so a log, before the leader lets it: one lock serves them all.
std::unique_ptr<run::RunLock> lock_folder(const AgentJob& job, const Meeting& meeting) {
  if (!job.own_program || job.run_folder.empty() || !meeting.leads) return nullptr;
  return std::make_unique<run::RunLock>(job.run_folder, run::Holder::launcher);
}

}  // namespace

Agent::Agent(const AgentJob& job)
    : job_(job),
      guard_(job.own_program ? Duration(0)
                             : job.options.grace),  // ours would take SIGTERM for a wish to save
      signals_(signals_for(job)),
      meeting_(meet(job, [this](const std::string& text) { say(text); })),
      lock_(lock_folder(job, meeting_)),
      logs_(job.options, job.own_program ? job.log_folder : ""),
      ranks_(job, meeting_, logs_, guard_, disk_),
      rendezvous_(job.options, LeaderRules{.own_program = job.own_program, .sees_all = on_one_machine()},
                  meeting_, card(), [this](const std::string& text) { say(text); }),
      beat_(on_one_machine() ? 20 : 200) {
  end_watch_ = std::make_unique<EndWatch>(std::vector<int>(std::begin(kStopSignals), std::end(kStopSignals)),
                                          kDeaf + (job.own_program ? Duration(0) : job.options.grace),
                                          [this](int number) { end_now(number); });
  if (!logs_.kept()) guard_.remove_at_end(logs_.root());
  base::raise_descriptor_limit(4 * job.ranks);  // the guard was there before, so the ranks have the user's
  if (job.task && !job.task->invitation.empty() && meeting_.leads) {
    invitation_ = std::make_unique<InvitationFile>(job.task->invitation,
                                                   Invitation{meeting_.endpoint, meeting_.secret});
  }
  if (job.task && job.task->local_task == 0) neighbours_ = std::make_unique<Neighbours>(rendezvous_.token());
  if (!job.own_program || job.run_folder.empty()) return;
  memories_ = std::make_unique<RankMemories>(job.ranks);
  kept_ = std::make_unique<KeptMemory>(*memories_, job.run_folder);
  ranks_.use(memories_.get());
  watch::Budgets budgets;
  budgets.hang = job.hang_seconds;
  watcher_ = std::make_unique<Watcher>(
      Watcher::Options{job.run_folder, budgets, rendezvous_.token(), meeting_.leads, !job.options.one_node()},
      comm::with_prefix(meeting_.store->clone(), run_prefix(job.options.run_id)));
  if (job.replicas > 0 && !job.options.one_node()) {
    replicas_ = std::make_unique<Replicas>(
        Replicas::Options{card().address, rendezvous_.token(), meeting_.secret, job.options.tls,
                          [this](const std::string& text) { say(text); }},
        comm::with_prefix(meeting_.store->clone(), run_prefix(job.options.run_id)), *memories_);
  }
  metadata_ = MetadataWatch::here([this](const std::string& text) { say(text); });
}

NodeCard Agent::card() const {
  const Options& options = job_.options;
  NodeCard card;
  card.token = random_token(), card.host = base::host_name(), card.role = options.role, card.pid = ::getpid();
  card.wanted = options.node_rank, card.ranks = job_.ranks, card.trains = job_.own_program;
  if (job_.task) {
    card.one_task_a_rank = true, card.wanted = job_.task->task;
    card.machine = job_.task->machine, card.process_space = process_space();
  }
  card.min_nodes = options.min_nodes, card.max_nodes = options.max_nodes;
  card.address = !options.local_addr.empty()     ? options.local_addr
                 : options.endpoint_host.empty() ? "127.0.0.1"
                                                 : address_towards(options.endpoint_host);
  if (job_.own_program) card.first_attempt = RankLogs::next_attempt(job_.log_folder);
  return card;
}

int Agent::master_port() const { return job_.options.master_port ? job_.options.master_port : free_port(); }

// Whatever ends the launcher, what its ranks left in memory is not lost with it.
int Agent::run() {
  try {
    return follow_rounds();
  } catch (const base::Error&) {
    keep_memory();
    throw;
  }
}

int Agent::follow_rounds() {
  for (int round = 0;; ++round) {
    rendezvous_.join(master_port());
    if (!wait_for_round(round)) break;
    round = state_.round;
    logs_.set_first_attempt(state_.first_attempt);
    first_rank_ = rendezvous_.place()->first_rank;
    done_said_ = failed_said_ = false;
    if (watcher_) watcher_->forget();
    if (neighbours_) neighbours_->begin_round(state_);
    if (replicas_) replicas_->begin_round(state_, *rendezvous_.place());
    check_folder();
    bring_back_memory();
    if (state_.save_only) say_rescue();
    ranks_.start(state_, *rendezvous_.place());
    watch(round);
    drain_console(kShortDrain);  // what a rank said stands before what is said of it
    report(state_);
    end_ranks();
    if (state_.phase == Phase::over) break;
    rendezvous_.say_stopped(forced_);
    while (look().phase == Phase::stopping) tick(beat_), handle_signals();
    if (state_.phase == Phase::over) break;
  }
  return finish(state_);
}

bool Agent::folder_stands() const {
  return !job_.run_folder.empty() && ::access((job_.run_folder + "/config.toml").c_str(), F_OK) == 0;
}

// Fresh ranks would make it anew, on the disk below a mount that has gone.
void Agent::check_folder() const {
  if (!had_folder_ || folder_stands()) return;
  throw base::IoError(
      816, fmt::format("{} has gone: its mount, or the folder itself; bring it back and run the same "
                       "command again, which goes on from its newest checkpoint",
                       job_.run_folder));
}

const State& Agent::look() {
  looked_at_ = Clock::now();
  if (memories_) rendezvous_.set_memory(memories_->steps());
  state_ = rendezvous_.look();
  return state_;
}

// One wait: passes output on, notes endings and signals.
void Agent::tick(Duration most) {
  std::vector<pollfd> sources = {{guard_.descriptor(), POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}};
  ranks_.add_sources(sources);
  if (neighbours_) neighbours_->add_sources(sources);
  ::poll(sources.data(), sources.size(), static_cast<int>(most.count()));
  ranks_.pump();
  const GuardNews news = guard_.take();
  if (news.lost) {
    throw base::CommError(
        533, "the launcher's guard process was killed; the ranks on this node were ended with it");
  }
  for (const Ended& ended : news.ended) ranks_.note(ended);
  all_gone_ |= news.all_gone;
  while (const int number = signals_.take()) caught_.push_back(number);
}

bool Agent::wait_for_round(int round) {
  const Clock::time_point begin = Clock::now();
  std::string said;
  Clock::time_point said_at = begin;
  for (;;) {
    look();
    if (state_.phase == Phase::over) return false;
    if (state_.phase == Phase::running && state_.round >= round && rendezvous_.place()) return true;
    handle_signals();
    const bool due = state_.waiting != said || Clock::now() - said_at > std::chrono::seconds(30);
    if (!state_.waiting.empty() && due && Clock::now() - begin > std::chrono::seconds(1)) {
      said = state_.waiting, said_at = Clock::now();
      say(said);
    }
    tick(beat_);
  }
}

void Agent::watch(int round) {
  for (;;) {
    tick(beat_);
    had_folder_ = had_folder_ || folder_stands();
    tell_endings();
    watch_for_hangs();
    if (Clock::now() - looked_at_ >= beat_ || done_said_ || failed_said_ || !caught_.empty()) look();
    if (state_.phase != Phase::running || state_.round != round) return;
    handle_signals();
    if (insist_at_ && Clock::now() >= *insist_at_) {
      insist_at_.reset();
      guard_.end_all(Duration(0));
    }
    watch_the_end();
  }
}

// Our own ranks lose nothing by ending at once, once one of them has failed: they go on from memory.
void Agent::end_ranks() {
  all_gone_ = false;
  const bool at_once = job_.own_program && (!state_.failures.empty() || state_.save_only);
  guard_.end_all(at_once                                    ? Duration(0)
                 : state_.failures.empty() && state_.signal ? Duration(1000)
                                                            : job_.options.grace);
  const Clock::time_point began = Clock::now();
  const auto waited = [&] { return std::chrono::duration_cast<Duration>(Clock::now() - began); };
  bool said = false;
  while (!all_gone_) {
    tick(Duration(50));
    handle_signals();
    if (Clock::now() - looked_at_ >= Duration(200)) look();  // if we lead, the others wait for us
    const Duration too_long = job_.options.grace + kDeaf;
    if (!said && waited() > too_long) said = true, say_who_cannot_end();
    // Told to end, the launcher does; the guard stays until they are gone.
    if (asked_ && waited() > too_long && Clock::now() - signalled_at_ > too_long) {
      guard_.leave_behind();
      forced_ = true;
      break;
    }
  }
  ranks_.finish_output();
}

// Until the console's reader has taken all, or somebody wants the launcher to end.
void Agent::drain_console(Duration most) {
  const Clock::time_point begin = Clock::now();
  const auto waited = [&] { return std::chrono::duration_cast<Duration>(Clock::now() - begin); };
  while (ranks_.console_waits() && caught_.empty() && waited() < most) tick(Duration(50));
}

int run_agent(const AgentJob& job) {
  require_descriptors(job.ranks);
  return Agent(job).run();
}

}  // namespace lockstep::launch

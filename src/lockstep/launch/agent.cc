#include "lockstep/launch/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

#include "lockstep/base/descriptor_limit.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/launch/invitation.h"
#include "lockstep/launch/local_ranks.h"
#include "lockstep/launch/metadata_watch.h"
#include "lockstep/launch/neighbours.h"
#include "lockstep/launch/network.h"
#include "lockstep/launch/rendezvous.h"
#include "lockstep/launch/replicas.h"
#include "lockstep/launch/run_events.h"
#include "lockstep/launch/signal_watch.h"
#include "lockstep/run/preemption.h"

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;
constexpr Duration kShortDrain{1000};

std::string random_token() {
  uint64_t value = 0;
  while (::getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return fmt::format("{:016x}", value);
}

// Our own ranks save on SIGUSR1 too: Slurm's --signal warns with it.
std::vector<int> signals_for(const AgentJob& job) {
  std::vector<int> numbers = job.options.signals;
  if (job.own_program && std::find(numbers.begin(), numbers.end(), SIGUSR1) == numbers.end())
    numbers.push_back(SIGUSR1);
  return numbers;
}

Meeting meet(const AgentJob& job, const Say& say) {
  const bool invited = job.task && !job.task->invitation.empty() && job.task->task != 0;
  return invited ? accept_invitation(job.options, job.task->invitation, say)
                 : open_meeting(job.options, job.own_program, say);
}

class Agent {
 public:
  explicit Agent(const AgentJob& job);
  int run();

 private:
  bool on_one_machine() const {
    return job_.options.one_node() || (job_.task && !job_.task->invitation.empty());
  }
  NodeCard card() const;
  int master_port() const;
  void tick(Duration most);
  void handle_signals();
  void again(int number);
  bool step_does_not_fit();
  void watch_for_hangs();
  void record_failures(const State& state) const;
  bool folder_stands() const;
  void check_folder() const;
  bool wait_for_round(int round);
  void watch(int round);
  void tell_endings();
  void tell_bad_endings();
  void end_ranks();
  void drain_console(Duration most);
  void report(const State& state) const;
  int finish(const State& state);
  void say(const std::string& sentence) const { job_.say("lockstep: " + sentence + "\n"); }
  const State& look();

  // In this order: the guard is forked before there are threads, signals are held back before threads inherit
  // them.
  const AgentJob& job_;
  Guard guard_;
  SignalWatch signals_;
  Meeting meeting_;
  RankLogs logs_;
  LocalRanks ranks_;
  Rendezvous rendezvous_;
  std::unique_ptr<InvitationFile> invitation_;
  std::unique_ptr<Neighbours> neighbours_;  // a machine's lowest of one task a rank
  // Our own ranks only.
  std::unique_ptr<RankMemories> memories_;
  std::unique_ptr<Watcher> watcher_;
  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<MetadataWatch> metadata_;
  const Duration beat_;  // between looks at the store

  Clock::time_point looked_at_{};
  State state_;
  std::deque<int> caught_;
  bool asked_ = false;  // to end: what ranks do from now on is no failure
  bool heard_ = false;  // a signal to stop came to this launcher itself
  int signalled_ = 0;   // passed on to the ranks
  int insisted_ = 0;    // Ctrl-C after it
  bool all_gone_ = false, done_said_ = false, failed_said_ = false;
  std::optional<Clock::time_point> insist_at_;
  bool had_folder_ = false;  // the run's, seen while its ranks worked
};

Agent::Agent(const AgentJob& job)
    : job_(job),
      guard_(job.own_program ? Duration(0)
                             : job.options.grace),  // ours would take SIGTERM for a wish to save
      signals_(signals_for(job)),
      meeting_(meet(job, [this](const std::string& text) { say(text); })),
      logs_(job.options, job.own_program ? job.log_folder : ""),
      ranks_(job, meeting_, logs_, guard_),
      rendezvous_(job.options, LeaderRules{.own_program = job.own_program, .sees_all = on_one_machine()},
                  meeting_, card(), [this](const std::string& text) { say(text); }),
      beat_(on_one_machine() ? 20 : 200) {
  if (!logs_.kept()) guard_.remove_at_end(logs_.root());
  base::raise_descriptor_limit(4 * job.ranks);  // the guard was there before, so the ranks have the user's
  if (job.task && !job.task->invitation.empty() && meeting_.leads) {
    invitation_ = std::make_unique<InvitationFile>(job.task->invitation,
                                                   Invitation{meeting_.endpoint, meeting_.secret});
  }
  if (job.task && job.task->local_task == 0) neighbours_ = std::make_unique<Neighbours>(rendezvous_.token());
  if (!job.own_program || job.run_folder.empty()) return;
  memories_ = std::make_unique<RankMemories>(job.ranks);
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
  card.wanted = options.node_rank, card.ranks = job_.ranks;
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

int Agent::run() {
  for (int round = 0;; ++round) {
    rendezvous_.join(master_port());
    if (!wait_for_round(round)) break;
    round = state_.round;
    logs_.set_first_attempt(state_.first_attempt);
    done_said_ = failed_said_ = false;
    if (watcher_) watcher_->forget();
    if (neighbours_) neighbours_->begin_round(state_);
    if (replicas_) replicas_->begin_round(state_, *rendezvous_.place());
    check_folder();
    ranks_.start(state_, *rendezvous_.place());
    watch(round);
    drain_console(kShortDrain);  // what a rank said stands before what is said of it
    report(state_);
    end_ranks();
    if (state_.phase == Phase::over) break;
    rendezvous_.say_stopped();
    while (look().phase == Phase::stopping) tick(beat_);
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

// The first is passed on, here and through the leader on every node; a second Ctrl-C does not wait any
// longer.
void Agent::handle_signals() {
  while (!caught_.empty()) {
    int number = caught_.front();
    caught_.pop_front();
    if (job_.own_program && number == SIGUSR1) number = SIGTERM;
    // A scheduler signals every node, each a moment later than the last: its first word here may come after
    // the leader's, and is no second one.
    const bool repeats = !job_.scheduled || heard_;
    if (number == SIGINT || number == SIGTERM) heard_ = true;
    if (signalled_ != 0 && (number == SIGINT || number == SIGTERM)) {
      if (repeats) again(number);
    } else if (signalled_ == 0 &&
               (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT)) {
      rendezvous_.say_signal(number, number == SIGTERM && step_does_not_fit());
      asked_ = true;
    } else {
      ranks_.signal(number);  // a word between the user and the program
    }
  }
  if (state_.signal == 0 || signalled_ != 0) return;
  signalled_ = state_.signal, asked_ = true;
  if (state_.save_only) return;  // these ranks end by themselves
  // A scheduler may have signalled the rank itself, and a second SIGINT would end it without saving.
  ranks_.signal(job_.scheduled && signalled_ == SIGINT ? SIGTERM : signalled_);
  // Our own ranks finish their step and save, however long that takes.
  if (!job_.own_program) insist_at_ = Clock::now() + job_.options.grace;
}

// Our own ranks are saving by now, and a second word must not break that; who insists with Ctrl-C is heard by
// the ranks first, which know whether they save, and then ends them.
void Agent::again(int number) {
  const bool ends = !job_.own_program || (number == SIGINT && ++insisted_ >= 2);
  if (ends) {
    say(fmt::format("{} again: ending the ranks now", signal_name(number)));
    guard_.end_all(Duration(0));
  } else if (number == SIGINT) {
    ranks_.signal(SIGINT);
  }
}

// Whether stopping and a save, as measured in this run, take longer than this machine still lives; and
// whether there is memory to save from instead.
bool Agent::step_does_not_fit() {
  if (!watcher_ || job_.notice_seconds <= 0 || state_.phase != Phase::running) return false;
  watcher_->read(ranks_.running());
  for (const RunningRank& one : ranks_.running()) {
    const watch::RankFacts* facts = watcher_->facts_of(one.rank);
    if (facts == nullptr || facts->phase != run::Phase::train || !memories_->used()) return false;
    if (run::kStepsToStop * facts->usual_step + facts->usual_save <= job_.notice_seconds) return false;
  }
  return true;
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
  }
}

void Agent::tell_endings() {
  // A scheduler may signal the ranks beside us, so that they end before the leader has spread the word.
  if (!asked_ && caught_.empty()) {
    if (neighbours_) {
      for (const std::string& token : neighbours_->take_gone()) rendezvous_.say_lost(token);
    }
    std::vector<Failure> failures = ranks_.new_failures();
    if (!failures.empty()) {
      if (watcher_) watcher_->read(ranks_.all());
      for (Failure& failure : failures) {
        const watch::RankFacts* facts = watcher_ ? watcher_->facts_of(failure.rank) : nullptr;
        if (facts == nullptr || facts->last.empty()) continue;
        failure.ending += fmt::format(", in step {} at {}", facts->step + 1, facts->last);
      }
      rendezvous_.say_failed(failures, watcher_ ? watcher_->step() : -1);
      failed_said_ = true;
    }
  }
  if (ranks_.all_ended() && !done_said_ && !failed_said_) {
    if (asked_ && job_.own_program) tell_bad_endings();
    rendezvous_.say_done(ranks_.worst_code());
    done_said_ = true;
  }
}

// Ranks of ours that were told to stop have saved and end with 75, or were ended by a signal: anything else
// is worth a word.
void Agent::tell_bad_endings() {
  std::vector<Failure> failures = ranks_.new_failures();
  std::erase_if(failures, [](const Failure& one) {
    const auto ended_by = [&](int number) { return one.code == 128 + number; };
    return one.code == kPreempted || ended_by(SIGINT) || ended_by(SIGTERM) || ended_by(SIGKILL);
  });
  sort_by_time(failures);
  if (!failures.empty()) job_.say(failure_report(failures, -1));
}

void Agent::watch_for_hangs() {
  if (!watcher_ || failed_said_ || done_said_) return;
  const std::optional<watch::Verdict> verdict = watcher_->look(state_, ranks_.running());
  if (!verdict) return;
  if (!verdict->hangs()) {
    say(verdict->sentence);
    return add_event(job_.run_folder, "slow", verdict->sentence, watcher_->step());
  }
  Failure failure;
  failure.hang = true, failure.ending = verdict->sentence, failure.host = base::host_name();
  failure.rank = verdict->culprits.empty() ? -1 : verdict->culprits[0];
  failure.unix_micros = std::chrono::duration_cast<std::chrono::microseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count() -
                        static_cast<int64_t>(verdict->waited * 1e6);
  for (const NodePlace& place : state_.nodes) {
    if (place.first_rank > failure.rank) continue;
    failure.node = place.card.one_task_a_rank ? seat_of_task(state_, place).node : place.node;
    failure.host = place.card.host;
  }
  rendezvous_.say_failed({failure}, watcher_->step());
  failed_said_ = true;
}

// Our own ranks lose nothing by ending at once, once one of them has failed: they go on from memory.
void Agent::end_ranks() {
  all_gone_ = false;
  const bool at_once = job_.own_program && (!state_.failures.empty() || state_.save_only);
  guard_.end_all(at_once                                    ? Duration(0)
                 : state_.failures.empty() && state_.signal ? Duration(1000)
                                                            : job_.options.grace);
  while (!all_gone_) {
    tick(Duration(50));
    if (std::find(caught_.begin(), caught_.end(), SIGINT) != caught_.end()) guard_.end_all(Duration(0));
    if (Clock::now() - looked_at_ >= Duration(200)) rendezvous_.look();  // if we lead, the others wait for us
  }
  ranks_.finish_output();
}

// In events.jsonl, by the launcher of the node that the run's folder is written on.
void Agent::record_failures(const State& state) const {
  const std::string& folder = job_.run_folder;
  const int64_t step = watcher_ ? watcher_->step() + 1 : -1;
  if (!state.failures.empty()) {
    const Failure& first = state.failures.front();
    const std::string who =
        first.rank >= 0 ? fmt::format("rank {}", first.rank) : fmt::format("node {}", first.node);
    add_event(folder, first.hang ? "hang" : "rank_failed",
              first.hang ? first.ending : fmt::format("{} on {}: {}", who, first.host, first.ending), step);
  }
  if (!state.again) return;
  const int left = job_.options.max_restarts - state.restarts;
  add_event(folder, "restart",
            state.failures.empty()
                ? state.why
                : fmt::format("all ranks start again; {} restart{} left", left, left == 1 ? "" : "s"),
            step);
}

void Agent::report(const State& state) const {
  std::vector<Failure> failures = state.failures;
  const bool first_node = rendezvous_.place() && rendezvous_.place()->node == 0;
  if (first_node && state.phase == Phase::stopping) record_failures(state);
  bool refused_aloud = false;
  for (Failure& failure : failures) {
    failure.shown = failure.shown && first_node;  // rank 0's words are on one console only
    refused_aloud |= failure.shown && (failure.code == 2 || failure.code == 3);
  }
  if (refused_aloud) return;  // its sentence has said all there is to say
  if (!failures.empty()) {
    job_.say(failure_report(failures, state.again ? job_.options.max_restarts - state.restarts : -1));
  } else if (state.phase == Phase::stopping && !state.why.empty()) {
    say(state.why);
  }
}

// Until the console's reader has taken all, or somebody wants the launcher to end.
void Agent::drain_console(Duration most) {
  const Clock::time_point begin = Clock::now();
  const auto waited = [&] { return std::chrono::duration_cast<Duration>(Clock::now() - begin); };
  while (ranks_.console_waits() && caught_.empty() && waited() < most) tick(Duration(50));
}

int Agent::finish(const State& state) {
  rendezvous_.say_goodbye();
  drain_console(signalled_ ? kShortDrain : Duration::max());
  if (state.code != 0 && state.nodes.empty() && state.signal == 0) throw base::CommError(536, state.why);
  return state.code;
}

}  // namespace

int run_agent(const AgentJob& job) { return Agent(job).run(); }

}  // namespace lockstep::launch

#include "lockstep/launch/agent_loop.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "lockstep/base/descriptor_limit.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/working_directory.h"
#include "lockstep/launch/process/frameworks.h"
#include "lockstep/launch/rendezvous/network.h"
#include "lockstep/run/shared/preemption.h"

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
  if (!handles(SIGTSTP)) numbers.push_back(SIGTSTP);  // Ctrl-Z
  return numbers;
}

RunStore find_run_store(const AgentJob& job, const Say& say) {
  const bool invited = job.task && !job.task->rendezvous_file.empty() && job.task->task != 0;
  return invited ? join_by_file(job.options, job.task->rendezvous_file, say)
                 : open_run_store(job.options, job.own_program, say);
}

// Without a folder of our own, nobody can look: no reason not to launch.
std::unique_ptr<watch::LaunchStatusFile> status_file() {
  try {
    return std::make_unique<watch::LaunchStatusFile>(runtime_folder(process_variable));
  } catch (const base::Error&) {
    return nullptr;
  }
}

// With fewer the store would take connections and never answer them.
void require_descriptors(int ranks) {
  const int64_t needed = 24 + 4 * int64_t{ranks};
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= static_cast<rlim_t>(needed)) return;
  throw base::IoError(532, fmt::format("too many open files: `ulimit -n` allows {}, but a launcher of {} "
                                       "rank{} needs about {}; raise the limit",
                                       limit.rlim_max, ranks, ranks == 1 ? "" : "s", needed));
}

// No node starts a rank, and so a log, before the leader lets it: one lock serves them all.
std::unique_ptr<run::RunLock> lock_folder(const AgentJob& job, const RunStore& run_store) {
  if (!job.own_program || job.run_folder.empty() || !run_store.leads) return nullptr;
  return std::make_unique<run::RunLock>(job.run_folder, run::Holder::launcher);
}

}  // namespace

Agent::Agent(const AgentJob& job)
    : job_(job),
      rules_{.own_program = job.own_program,
             .scheduled = job.scheduled,
             .grace = job.options.grace,
             .end_within = Duration(static_cast<int64_t>(job.end_seconds * 1000))},
      disk_process_(std::make_shared<DiskProcess>()),
      guard_(job.own_program ? Duration(0)
                             : job.options.grace),  // ours would take SIGTERM for a request to save
      signals_(signals_for(job)),
      run_store_(find_run_store(job, [this](const std::string& text) { say(text); })),
      lock_(lock_folder(job, run_store_)),
      logs_(job.options, job.own_program ? job.log_folder : ""),
      disk_(disk_process_),
      ranks_(job, run_store_, logs_, guard_, disk_),
      rendezvous_(job.options, LeaderRules{.own_program = job.own_program, .sees_all = on_one_machine()},
                  run_store_, card(), [this](const std::string& text) { say(text); }),
      beat_(on_one_machine() ? 20 : 200) {
  end_watch_ = std::make_unique<EndWatch>(std::vector<int>(std::begin(kStopSignals), std::end(kStopSignals)),
                                          kDeaf + (job.own_program ? Duration(0) : job.options.grace),
                                          [this](int number) { end_now(number); });
  if (!logs_.kept()) guard_.remove_at_end(logs_.root());
  base::raise_descriptor_limit(4 * job.ranks);  // the guard was there before, so the ranks have the user's
  if (job.task && !job.task->rendezvous_file.empty() && run_store_.leads) {
    rendezvous_file_ = std::make_unique<RendezvousFile>(job.task->rendezvous_file,
                                                        StoreAddress{run_store_.endpoint, run_store_.secret});
  }
  if (job.task && job.task->local_task == 0) neighbours_ = std::make_unique<Neighbours>(rendezvous_.token());
  if (!job.own_program) status_ = status_file();
  if (!job.own_program && job.options.hang_timeout > Duration(0))
    foreign_ = std::make_unique<ForeignWatch>(std::chrono::duration<double>(job.options.hang_timeout).count(),
                                              logs_.root());
  if (!job.own_program || job.run_folder.empty()) return;
  memories_ = std::make_unique<RankMemories>(job.ranks);
  kept_ = std::make_unique<KeptMemory>(*memories_, job.run_folder, disk_process_);
  ranks_.use(memories_.get());
  watch::Budgets budgets;
  budgets.hang = job.hang_seconds;
  watcher_ = std::make_unique<Watcher>(
      Watcher::Options{.run_folder = job.run_folder,
                       .budgets = budgets,
                       .token = rendezvous_.token(),
                       .leads = run_store_.leads,
                       .several = !job.options.one_node(),
                       .publish = [this](auto facts) { this->publish(std::move(facts)); }},
      comm::with_prefix(run_store_.connection->clone(), run_prefix(job.options.run_id)));
  if (job.replicas > 0 && !job.options.one_node()) {
    replicas_ = std::make_unique<Replicas>(
        Replicas::Options{card().address, rendezvous_.token(), run_store_.secret, job.options.tls,
                          [this](const std::string& text) { say(text); }},
        comm::with_prefix(run_store_.connection->clone(), run_prefix(job.options.run_id)), *memories_);
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

int Agent::master_port() const {
  if (job_.options.master_port) return job_.options.master_port;
  const Framework* framework = find_framework(job_.options.framework);
  return framework && framework->port_per_rank ? free_ports(job_.ranks) : free_port();
}

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
  apply(begin(Clock::now()));
  while (!is<Over>(state_)) {
    const bool at_once = std::exchange(stage_changed_, false) && needs().look_every == Duration(0);
    tick(at_once ? Duration(0) : needs().wait);
    gather();
  }
  return finish(state_.leader);
}

void Agent::apply(Transition made) {
  state_ = std::move(made.state);
  stage_changed_ |= made.stage_changed;
  signal_ = state_.signal, saved_ = state_.leader.saved;
  for (const AgentAction& action : made.actions) std::visit([&](const auto& one) { carry_out(one); }, action);
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
        533, "the launcher's guard process was killed; the ranks on this node were stopped with it");
  }
  for (const Ended& ended : news.ended) ranks_.note(ended);
  nothing_runs_ |= news.all_gone;
  while (const int number = signals_.take()) number == SIGTSTP ? pause() : caught_.push_back(number);
}

// Ctrl-Z: the ranks, which have sessions of their own, stop with their launcher, and go on with it.
void Agent::pause() {
  ranks_.signal(SIGSTOP);
  signals_.stop_here();
  ranks_.signal(SIGCONT);
}

// For `lockstep top`, which runs elsewhere.
void Agent::tell_status() {
  if (!status_ || !status_->due()) return;
  std::error_code ignored;
  watch::LaunchStatus status{.pid = ::getpid(),
                             .birth = base::birth_of(::getpid()),
                             .command = base::join(job_.command, " "),
                             .folder = std::filesystem::current_path(ignored).string(),
                             .host = base::host_name(),
                             .nodes = std::max(1, static_cast<int>(state_.leader.nodes.size())),
                             .restarts = state_.leader.round};
  if (const NodePlace* place = rendezvous_.place()) status.node = place->node;
  ranks_.tell(status);
  if (!status.ranks.empty()) status_->write(status);
}

// In this order: each event may change what the next one finds. Of a stage that has just begun, nothing is
// known yet.
void Agent::gather() {
  if (needs().ranks) {
    had_folder_ = had_folder_ || folder_stands();
    take(endings());
    tell_status();
  }
  if (needs().verdicts) {
    if (std::optional<VerdictReached> reached = verdict()) take(std::move(*reached));
  }
  if (Clock::now() - looked_at_ >= needs().look_every || !caught_.empty()) take(look());
  if (stage_changed_) return;
  while (!caught_.empty()) take(next_signal());
  take(TimePassed{progress()});
  if (std::exchange(nothing_runs_, false)) take(NothingRuns{});
}

RanksEnded Agent::endings() {
  RanksEnded ended;
  ended.signal_pending = !caught_.empty();
  if (neighbours_) ended.lost = neighbours_->take_gone();
  std::vector<Failure> failures = ranks_.new_failures();
  if (watcher_ && !failures.empty()) watcher_->read(ranks_.all());
  for (Failure& failure : failures) {
    const watch::RankFacts* facts = watcher_ ? watcher_->facts_of(failure.rank) : nullptr;
    const bool starting = facts != nullptr && facts->phase == watch::Phase::start;
    ended.failures.push_back({std::move(failure), starting});
  }
  ended.all_ended = ranks_.all_ended();
  if (ended.all_ended) ended.worst_code = ranks_.worst_code();
  if (watcher_) ended.step = watcher_->step();
  return ended;
}

// Of another program: where each rank is. Where nobody could read the stacks, the ranks print them themselves
// (PYTHONFAULTHANDLER); they end either way.
void Agent::show_stacks() {
  job_.say("lockstep: where each rank is:\n" + foreign_->stacks());
  if (foreign_->has_stacks()) return;
  ranks_.signal(SIGABRT);
  const Clock::time_point until = Clock::now() + kShortDrain;
  while (!ranks_.all_ended() && Clock::now() < until) tick(Duration(50));
}

std::optional<VerdictReached> Agent::verdict() {
  if (!watcher_ && !foreign_) return std::nullopt;
  const std::optional<watch::Verdict> found =
      foreign_ ? foreign_->look(ranks_.running()) : watcher_->look(state_.leader, ranks_.running());
  if (!found) return std::nullopt;
  if (foreign_) show_stacks();
  return VerdictReached{.sentence = found->sentence,
                        .hangs = found->hangs(),
                        .culprit = found->culprits.empty() ? -1 : found->culprits[0],
                        .waited = found->waited};
}

StatePublished Agent::look() {
  looked_at_ = Clock::now();
  if (memories_) rendezvous_.set_memory(memories_->steps());
  const State& state = rendezvous_.look();
  return {.state = state, .placed = rendezvous_.place() != nullptr};
}

SignalCaught Agent::next_signal() {
  const int number = caught_.front();
  caught_.pop_front();
  return {.number = number, .step_fits = step_fits()};
}

// Whether stopping and a save, as measured in this run, take no longer than this machine still lives; where
// there is no memory to save from instead, they have to.
bool Agent::step_fits() {
  if (!watcher_ || job_.notice_seconds <= 0 || state_.leader.phase != Phase::running) return true;
  watcher_->read(ranks_.running());
  for (const RunningRank& one : ranks_.running()) {
    const watch::RankFacts* facts = watcher_->facts_of(one.rank);
    if (facts == nullptr || facts->phase != watch::Phase::train || !memories_->used()) return true;
    if (run::kStepsToStop * facts->usual_step + facts->usual_save <= job_.notice_seconds) return true;
  }
  return false;
}

std::optional<Progress> Agent::progress() const {
  if (!watcher_ || !needs().progress) return std::nullopt;
  const std::vector<RunningRank> running = ranks_.running();
  if (running.empty()) return std::nullopt;
  Progress progress{.first_running = running[0].rank, .since_mark = watcher_->since_any_mark()};
  for (const RunningRank& one : running) {
    const watch::RankFacts* facts = watcher_->facts_of(one.rank);
    if (facts == nullptr) continue;
    progress.all_start &= facts->phase == watch::Phase::start;
    progress.busy |= facts->phase == watch::Phase::save || facts->phase == watch::Phase::evaluate;
  }
  return progress;
}

int run_agent(const AgentJob& job) {
  require_descriptors(job.ranks);
  if (job.own_program) base::require_working_directory();  // every rank would end there
  return Agent(job).run();
}

}  // namespace lockstep::launch

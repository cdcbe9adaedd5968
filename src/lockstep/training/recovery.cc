#include "lockstep/training/recovery.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/launch/process/rank_memory.h"
#include "lockstep/launch/rendezvous/kept_memory.h"

namespace lockstep::training {

namespace {

// "checkpoints/step-00000100": 100; 0 for a folder of another name, such as Hugging Face's.
int64_t checkpoint_step(const std::string& folder) {
  const std::string name = std::filesystem::path(folder).filename();
  return name.starts_with("step-") ? std::atoll(name.c_str() + 5) : 0;
}

run::NoticeCheck notice_check(const run::Session& session, const std::string& folder) {
  run::Notice notice = run::find_notice(session.plan.recipe().checkpoint.notice, run::this_place());
  int64_t bytes = 0;  // masters and moments
  for (const run::Parameters::Named& one : session.parameters->named()) {
    bytes += one.shape.numel() * device::size_of(one.dtype);
    for (const run::Parameters::State& state : one.state)
      bytes += state.shape.numel() * device::size_of(state.held.values.dtype);
  }
  const double estimate = notice.seconds > 0 ? run::estimate_save(folder, bytes) : 0;
  return {std::move(notice), estimate, session.ranks->alone() ? run::kStepsToStopAlone : run::kStepsToStop};
}

void say_of_other_layout(const run::Session& session, const run::MemorySnapshots& snapshots,
                         TrainObserver& observer) {
  if (!session.ranks->first() || snapshots.of_other_layout() == 0) return;
  observer.warn(
      fmt::format("step {} is in the run folder's snapshots/, but for a different number of ranks or layout; "
                  "start the run as before to resume from it",
                  snapshots.of_other_layout()));
}

}  // namespace

std::vector<std::string> saved_since_launch(const std::string& folder) {
  if (!launch::started_again()) return {};
  std::vector<std::string> all = checkpoint::list(folder);
  std::erase_if(all, [&](const std::string& one) {
    std::error_code error;
    const auto written = std::filesystem::last_write_time(one + "/manifest.json", error);
    return error || written < launch::launched_at();
  });
  return all;
}

std::unique_ptr<run::MemorySnapshots> open_snapshots(run::Session& session, TrainObserver& observer) {
  const recipe::AutoInt& every = session.plan.recipe().checkpoint.snapshot_every;
  const int descriptor = launch::rank_memory();
  if (!every.is_auto && every.value == 0) return nullptr;
  std::unique_ptr<run::MemorySnapshots> snapshots;
  try {
    if (descriptor >= 0) snapshots = std::make_unique<run::MemorySnapshots>(session, descriptor);
  } catch (const base::IoError& error) {
    observer.warn(error.what());
  }
  const double without = session.ranks->sum(std::vector<double>{snapshots ? 0.0 : 1.0})[0];
  if (without > 0) snapshots.reset();
  if (snapshots) say_of_other_layout(session, *snapshots, observer);
  return snapshots;
}

std::optional<int64_t> restore_newer(run::MemorySnapshots* snapshots, const run::Decision& decision) {
  if (snapshots == nullptr) return std::nullopt;
  return snapshots->restore(decision.checkpoints.empty() ? 0 : checkpoint_step(decision.checkpoints[0]));
}

std::optional<int64_t> restore_kept(run::Session& session, const std::string& folder,
                                    const run::Decision& decision, TrainObserver& observer) {
  if (!session.ranks->alone() || launch::rank_memory() >= 0) return std::nullopt;
  const int memory = ::memfd_create("lockstep-kept", MFD_CLOEXEC);
  if (memory < 0 || !launch::bring_back_memory(memory, folder, 0)) {
    if (memory >= 0) ::close(memory);
    return std::nullopt;
  }
  run::MemorySnapshots snapshots(session, memory);
  say_of_other_layout(session, snapshots, observer);
  return restore_newer(&snapshots, decision);
}

NoticeWatch::NoticeWatch(const run::Session& session, const std::string& folder, run::Observer& tell)
    : check_(notice_check(session, folder)), tell_(tell) {}

}  // namespace lockstep::training

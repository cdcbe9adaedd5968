#include "lockstep/training/uploader.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/signals_blocked.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/audit.h"
#include "lockstep/checkpoint/step_folders.h"

namespace lockstep::training {
namespace {

using Clock = std::chrono::steady_clock;

struct TakenOver : base::IoError {
  using IoError::IoError;
};

int64_t newest_step(const std::string& run_folder) {
  const std::vector<std::string> all = checkpoint::list(run_folder);
  if (all.empty()) return -1;
  return checkpoint::step_of(std::filesystem::path(all.front()).filename().string()).value_or(-1);
}

}  // namespace

Uploader::Uploader(UploadOptions options) : options_(std::move(options)) {
  const base::SignalsBlocked ours_alone;
  thread_ = std::thread([this] { work(); });
}

Uploader::~Uploader() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Uploader::saved(int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_) return;
    wanted_ = step;
  }
  changed_.notify_all();
}

std::optional<UploadNews> Uploader::poll() {
  const std::lock_guard lock(mutex_);
  if (news_.empty()) return std::nullopt;
  UploadNews news = std::move(news_.front());
  news_.pop_front();
  return news;
}

std::string Uploader::finish(double seconds) {
  std::unique_lock lock(mutex_);
  const bool done =
      changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !wanted_ && !working_; });
  if (done) return lost_ ? last_failure_ : "";
  return last_failure_.empty() ? fmt::format("its upload to {} did not end within {}", options_.to,
                                             base::human_duration(seconds))
                               : last_failure_;
}

// Before every upload: a look costs little beside a checkpoint.
void Uploader::check_owner() {
  if (!options_.owner) return;
  const checkpoint::RemoteOwner& mine = *options_.owner;
  const std::optional<checkpoint::RemoteOwner> there = remote_->owner();
  const bool taken = there && (claimed_ ? there->holder != mine.holder : there->run != mine.run);
  if (taken) {
    throw TakenOver(352, fmt::format("\"{}\" on {} writes to {} since {}; this process uploads nothing more",
                                     there->name, there->host, options_.to, there->since));
  }
  if (!claimed_) remote_->set_owner(mine);
  claimed_ = true;
}

UploadNews Uploader::upload(int64_t step) {
  const auto begun = Clock::now();
  try {
    if (!remote_) {
      remote_ = options_.open ? options_.open() : std::make_unique<checkpoint::RemoteRun>(options_.to);
    }
    check_owner();
    const int64_t bytes = remote_->upload(options_.run_folder, step);
    remote_->remove_others(step, options_.retention);
    remote_->upload_run_files(options_.run_folder);
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    return {.step = step,
            .why = fmt::format("uploaded to {} ({} in {})", options_.to,
                               base::human_bytes(static_cast<double>(bytes)), base::human_duration(seconds))};
  } catch (const checkpoint::RemovedError& error) {
    return {.step = step, .why = fmt::format("not uploaded: {}", error.what()), .skipped = true};
  } catch (const TakenOver& error) {
    return {.step = step, .why = fmt::format("not uploaded: {}", error.what()), .failed = true, .lost = true};
  } catch (const base::Error& error) {
    return {.step = step, .why = fmt::format("not uploaded: {}", error.what()), .failed = true};
  }
}

void Uploader::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return wanted_ || ending_; });
    if (ending_) return;
    const int64_t step = *wanted_;
    wanted_.reset();
    working_ = true;
    lock.unlock();
    UploadNews news = upload(step);
    lock.lock();
    working_ = false;
    last_failure_ = news.failed ? news.why : "";
    if (news.lost) lost_ = true, wanted_.reset();
    const bool again = news.failed && !lost_ && !wanted_;
    news_.push_back(std::move(news));
    if (again) wanted_ = step;
    changed_.notify_all();
    if (again)
      changed_.wait_for(lock, std::chrono::duration<double>(options_.pause),
                        [&] { return ending_ || wanted_ != step; });
  }
}

std::optional<int64_t> newest_not_uploaded(const std::string& to, const std::string& run_folder) {
  const int64_t own = newest_step(run_folder);
  if (own < 0) return std::nullopt;
  const std::vector<int64_t> there = checkpoint::RemoteRun(to).steps();
  return there.empty() || there.front() < own ? std::optional(own) : std::nullopt;
}

Restored restore_from_store(const FromStore& how) {
  checkpoint::RemoteRun remote(how.from);
  Restored restored{.owner = checkpoint::claim(remote.owner(), how.run_folder, how.name, how.from)};
  if (how.starts_over) return restored;
  restored.step = remote.restore(
      how.run_folder,
      {.newer_than = newest_step(how.run_folder),
       .check = [](const std::string& folder) { checkpoint::audit(checkpoint::Opened(folder)); },
       .passing =
           [&](const std::string& why) {
             how.remark(
                 fmt::format("fetched from {}, but not usable; trying the one before: {}", how.from, why));
           }});
  return restored;
}

}  // namespace lockstep::training

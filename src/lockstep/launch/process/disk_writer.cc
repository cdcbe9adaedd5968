#include "lockstep/launch/process/disk_writer.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/signals_blocked.h"

namespace lockstep::launch {

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostWaiting = size_t{64} << 20;
constexpr Duration kLastWait{2000};

}  // namespace

struct DiskWriter::State {
  struct Job {
    size_t bytes;
    std::function<void()> work;
  };
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  size_t waiting = 0;
  std::optional<Clock::time_point> began;  // of the job at hand
  bool ending = false;

  bool idle() const { return jobs.empty() && !began; }
  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return ending || !jobs.empty(); });
      if (jobs.empty()) return;
      const Job job = std::move(jobs.front());
      jobs.pop_front();
      began = Clock::now();
      lock.unlock();
      job.work();
      lock.lock();
      began.reset(), waiting -= job.bytes;
      changed.notify_all();
    }
  }
};

DiskWriter::DiskWriter(std::shared_ptr<DiskProcess> process)
    : process_(std::move(process)), state_(std::make_shared<State>()) {
  const base::SignalsBlocked blocked;
  std::thread([state = state_] { state->run(); }).detach();
}

DiskWriter::~DiskWriter() {
  drain(kLastWait);
  const std::lock_guard lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
}

void DiskWriter::post(size_t bytes, std::function<void()> work) {
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting + bytes > kMostWaiting) return;
  state_->waiting += bytes;
  state_->jobs.push_back({bytes, std::move(work)});
  state_->changed.notify_all();
}

void DiskWriter::post(DiskWork work, std::vector<std::string> words,
                      std::shared_ptr<const base::Descriptor> file) {
  size_t bytes = 0;
  for (const std::string& word : words) bytes += word.size();
  post(bytes, [process = process_, work, words = std::move(words), file = std::move(file)] {
    const DiskCall call{.words = words, .descriptor = file ? file->number : -1};
    process ? static_cast<void>(process->call(work, call)) : static_cast<void>(work(call));
  });
}

bool DiskWriter::full() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting > kMostWaiting / 2;
}

bool DiskWriter::drain(Duration most) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, most, [&] { return state_->idle(); });
}

Duration DiskWriter::standing_still() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->began) return Duration(0);
  return std::chrono::duration_cast<Duration>(Clock::now() - *state_->began);
}

}  // namespace lockstep::launch

#include "lockstep/comm/device_marks.h"

#include <chrono>

#include "lockstep/base/error.h"

namespace lockstep::comm {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{2};
constexpr size_t kMostPending = 8192;  // a step has hundreds

void stamp(const DeviceMarks::Mark& mark) {
  if (mark.ring != nullptr && mark.stamp == DeviceMarks::Stamp::start) mark.ring->start(mark.ticket);
  if (mark.ring != nullptr && mark.stamp == DeviceMarks::Stamp::finish) mark.ring->finish(mark.ticket);
  if (mark.reached) mark.reached->store(mark.value);
}

}  // namespace

DeviceMarks::DeviceMarks(device::Device& device)
    : device_(device), thread_([this](const std::stop_token& stop) { serve(stop); }) {}

DeviceMarks::~DeviceMarks() {
  thread_.request_stop();
  thread_.join();
  for (auto& [stream, queue] : pending_) {
    for (const Pending& one : queue) free_.push_back(one.event);
  }
  for (const device::Event event : free_) device_.destroy_event(event);
}

// Calls of the device are made without the lock: they may take as long as the device does, and the thread
// that looks must see meanwhile what was there before.
void DeviceMarks::expect(Mark mark, device::Stream stream) {
  if (off_) return;
  device::Event event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    // What has begun must be seen to end.
    if (count_ >= kMostPending && mark.stamp == Stamp::start) return;
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  try {
    if (event == nullptr) event = device_.create_event();
    device_.record(event, stream);
  } catch (const base::Error&) {
    off_ = true;  // the device has failed: whoever needs it says so
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    pending_[stream].push_back({event, std::move(mark)});
    ++count_;
  }
  changed_.notify_one();
}

bool DeviceMarks::look() {
  std::vector<device::Stream> streams;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, queue] : pending_) streams.push_back(stream);
  }
  for (const device::Stream stream : streams) {
    for (;;) {
      Pending first{};
      {
        const std::lock_guard lock(mutex_);
        if (pending_[stream].empty()) break;
        first = pending_[stream].front();
      }
      if (!device_.done(first.event)) break;  // streams are in order: so are those behind it
      stamp(first.mark);
      const std::lock_guard lock(mutex_);
      pending_[stream].pop_front();
      free_.push_back(first.event);
      --count_;
    }
  }
  const std::lock_guard lock(mutex_);
  return count_ > 0;
}

void DeviceMarks::serve(const std::stop_token& stop) {
  try {
    while (!stop.stop_requested()) {
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return count_ > 0; })) return;
      }
      looking_ = true;
      while (look() && !stop.stop_requested()) {
        ++looks_;
        std::this_thread::sleep_for(kBetweenLooks);
      }
      ++looks_;
      looking_ = false;
    }
  } catch (const base::Error&) {
    off_ = true;
  }
}

}  // namespace lockstep::comm

#include "lockstep/comm/device_marks.h"

#include <chrono>

#include "lockstep/base/error.h"

namespace lockstep::comm {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{2};
constexpr size_t kMostPending = 8192;  // a step has hundreds

void stamp(const DeviceMarks::Mark& mark) {
  if (mark.stamp == DeviceMarks::Stamp::start) {
    mark.ring->start(mark.ticket);
  } else {
    mark.ring->finish(mark.ticket);
  }
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

void DeviceMarks::expect(Mark mark, device::Stream stream) {
  if (off_) return;
  {
    const std::lock_guard lock(mutex_);
    if (count_ >= kMostPending) return;
    try {
      device::Event event = nullptr;
      if (free_.empty()) {
        event = device_.create_event();
      } else {
        event = free_.back();
        free_.pop_back();
      }
      device_.record(event, stream);
      pending_[stream].push_back({event, std::move(mark)});
      ++count_;
    } catch (const base::Error&) {
      off_ = true;  // the device has failed: whoever needs it says so
    }
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
      while (look() && !stop.stop_requested()) std::this_thread::sleep_for(kBetweenLooks);
    }
  } catch (const base::Error&) {
    off_ = true;
  }
}

}  // namespace lockstep::comm

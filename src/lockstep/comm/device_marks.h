// Marks of what runs on a device: an entry of the recorder's ring becomes "started" or "finished" when the
// stream passes the place where that was asked for, not when the host enqueued it.
//
//     marks.expect({&ring, ticket, Stamp::start}, stream);
//     ... enqueue the call ...
//     marks.expect({&ring, ticket, Stamp::finish}, stream);
//
// Each is an event on the stream, and a thread of its own looks every few milliseconds which have been
// passed: nothing on the device waits for a host. Not for a stream that is being captured into a graph:
// turn_off() before that. Training does not depend on it: what cannot be marked is left out. CallWatch reads
// from it whether calls end in time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/ring.h"
#include "lockstep/device/device.h"

namespace lockstep::comm {

class DeviceMarks {
 public:
  enum class Stamp : uint8_t { start, finish };
  struct Mark {
    base::RingWriter* ring = nullptr;  // must outlive this object; may be null
    uint64_t ticket = 0;
    Stamp stamp = Stamp::start;
    std::shared_ptr<std::atomic<int64_t>> reached = {};  // set to `value` too; may be null
    int64_t value = 0;
  };

  explicit DeviceMarks(device::Device& device);  // borrowed
  ~DeviceMarks();                                // what has not been passed stays as it is
  DeviceMarks(const DeviceMarks&) = delete;
  DeviceMarks& operator=(const DeviceMarks&) = delete;

  void expect(Mark mark, device::Stream stream);  // of one stream, by one thread at a time
  void turn_off() { off_ = true; }
  bool off() const { return off_; }
  // How often it has looked, and whether it waits for something: a number that stays the same meanwhile says
  // that the device's driver does not answer.
  int64_t looks() const { return looks_; }
  bool looking() const { return looking_; }

 private:
  struct Pending {
    device::Event event;
    Mark mark;
  };
  void serve(const std::stop_token& stop);
  bool look();  // false: nothing is pending

  device::Device& device_;
  std::atomic<bool> off_{false}, looking_{false};
  std::atomic<int64_t> looks_{0};
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<device::Stream, std::deque<Pending>> pending_;
  size_t count_ = 0;
  std::vector<device::Event> free_;
  std::jthread thread_;
};

}  // namespace lockstep::comm

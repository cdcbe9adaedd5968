#include "lockstep/comm/group.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/round.h"
#include "lockstep/comm/device_marks.h"
#include "lockstep/comm/engine.h"
#include "lockstep/device/alignment.h"

namespace lockstep::comm {
namespace {

constexpr size_t kRememberedCalls = 4096;  // far more than two steps enqueue

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

bool can_sum(device::DType type) { return type != device::DType::u8; }

int64_t aligned(int64_t bytes) { return base::round_up(bytes, device::kAlignment); }

}  // namespace

const char* name_of(Collective kind) {
  static constexpr const char* kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                           "borrow",     "broadcast",      "send",       "recv",
                                           "barrier",    "give_back"};
  return kNames[static_cast<size_t>(kind)];
}

const char* Group::engine() const { return engine_.name.c_str(); }
bool Group::shares_memory() const { return engine_.shares_memory; }
bool Group::enqueues() const { return engine_.enqueues; }

void Group::record_in(base::RingWriter* ring, int32_t group_number, DeviceMarks* marks) {
  ring_ = ring;
  number_ = group_number;
  marks_ = enqueues() ? marks : nullptr;
  if (marks_ == nullptr) return;
  begun_ = std::make_shared<std::atomic<int64_t>>(-1), ended_ = std::make_shared<std::atomic<int64_t>>(-1);
  calls_.resize(kRememberedCalls);
}

void Group::mark_on_device(uint64_t ticket, bool end, int64_t sequence, Stream stream) {
  if (marks_ == nullptr) return;
  using Stamp = DeviceMarks::Stamp;
  marks_->expect({ring_, ticket, end ? Stamp::finish : Stamp::start, end ? ended_ : begun_, sequence},
                 stream);
}

std::optional<OpenCall> Group::open_call() const {
  if (!begun_ || begun_->load() <= ended_->load()) return std::nullopt;
  return calls_[static_cast<size_t>(begun_->load()) % kRememberedCalls];
}

std::optional<OpenCall> Group::next_call() const {
  if (!ended_) return std::nullopt;
  for (int64_t sequence = ended_->load() + 1; sequence <= enqueued_.load(); ++sequence) {
    const OpenCall& call = calls_[static_cast<size_t>(sequence) % kRememberedCalls];
    if (call.sequence == sequence) return call;  // else it was a barrier, which is the hosts'
  }
  return std::nullopt;
}

void Group::count(int to, int64_t bytes) {
  if (to != rank_) sent_[static_cast<size_t>(to)] += bytes;
}

template <class Call>
auto Group::marked(Collective kind, int64_t bytes, Stream stream, Call call) {
  const int64_t sequence = sequence_++;
  const bool on_device = enqueues() && kind != Collective::barrier;
  if (on_device && !calls_.empty()) {
    calls_[static_cast<size_t>(sequence) % kRememberedCalls] = {kind, sequence, step_, instruction_};
    enqueued_ = sequence;
  }
  uint64_t ticket = 0;
  if (ring_ != nullptr) {
    ticket = ring_->enqueue({.step = step_,
                             .instruction = instruction_,
                             .op = static_cast<uint16_t>(kFirstCollectiveOp + static_cast<int>(kind)),
                             .group = number_,
                             .sequence = sequence,
                             .bytes = bytes});
    if (!on_device) ring_->start(ticket);
  }
  const auto fail = [&](const std::string& why) {
    broken_ = true;
    throw base::CommError(520, fmt::format("{} (call {} of group {}, step {}) failed: {}", name_of(kind),
                                           sequence, name_, step_, why));
  };
  if (broken_)
    fail("an earlier call of this group failed, so its members are out of sync; start the run again");
  struct Finish {  // also behind a call that returns something
    base::RingWriter* ring;
    uint64_t ticket;
    double wait;  // seconds
    int thrown = std::uncaught_exceptions();
    ~Finish() {
      if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
      if (ring != nullptr && std::uncaught_exceptions() == thrown) ring->finish(ticket);
    }
  };
  struct FinishOnDevice {
    Group& group;
    uint64_t ticket;
    int64_t sequence;
    Stream stream;
    bool on_device;
    int thrown = std::uncaught_exceptions();
    ~FinishOnDevice() {
      if (on_device && std::uncaught_exceptions() == thrown)
        group.mark_on_device(ticket, true, sequence, stream);
    }
  };
  try {
    const Finish finish{on_device ? nullptr : ring_, ticket,
                        link_ > 0 ? static_cast<double>(bytes) / link_ : 0};
    if (on_device) mark_on_device(ticket, false, sequence, stream);
    const FinishOnDevice behind{*this, ticket, sequence, stream, on_device};
    return call();
  } catch (const CallFailed& failure) {
    fail(failure.why);
    throw;  // not reached
  }
}

void Group::all_reduce(const Tensor& values, Stream stream) {
  LS_ASSERT(can_sum(values.dtype), name_of(values.dtype));
  for (int q = 0; q < size_; ++q) count(q, 2 * values.bytes() / size_);
  marked(Collective::all_reduce, values.bytes(), stream, [&] { do_all_reduce(values, stream); });
}

void Group::reduce_scatter(const std::vector<Tensor>& parts, const Tensor& mine, Stream stream) {
  LS_ASSERT(static_cast<int>(parts.size()) == size_);
  const Tensor& own = parts[static_cast<size_t>(rank_)];
  LS_ASSERT(own.dtype == mine.dtype && own.numel() == mine.numel() && can_sum(mine.dtype));
  for (int q = 0; q < size_; ++q) count(q, parts[static_cast<size_t>(q)].bytes());
  marked(Collective::reduce_scatter, bytes_of(parts), stream,
         [&] { do_reduce_scatter(parts, mine, stream); });
}

void Group::all_gather(const std::vector<Tensor>& parts, Stream stream) {
  LS_ASSERT(static_cast<int>(parts.size()) == size_);
  for (int q = 0; q < size_; ++q) count(q, parts[static_cast<size_t>(rank_)].bytes());
  marked(Collective::all_gather, bytes_of(parts), stream, [&] { do_all_gather(parts, stream); });
}

void Group::all_to_all(const std::vector<Tensor>& send, const std::vector<Tensor>& recv, Stream stream) {
  LS_ASSERT(static_cast<int>(send.size()) == size_ && static_cast<int>(recv.size()) == size_);
  const auto self = static_cast<size_t>(rank_);
  LS_ASSERT(send[self].bytes() == recv[self].bytes());
  for (int q = 0; q < size_; ++q) count(q, send[static_cast<size_t>(q)].bytes());
  marked(Collective::all_to_all, bytes_of(send), stream, [&] { do_all_to_all(send, recv, stream); });
}

void Group::broadcast(const Tensor& values, int root, Stream stream) {
  LS_ASSERT(root >= 0 && root < size_);
  for (int q = 0; q < size_ && rank_ == root; ++q) count(q, values.bytes());
  marked(Collective::broadcast, values.bytes(), stream, [&] { do_broadcast(values, root, stream); });
}

void Group::send(const Tensor& values, int to, Stream stream) {
  LS_ASSERT(to >= 0 && to < size_ && to != rank_);
  count(to, values.bytes());
  marked(Collective::send, values.bytes(), stream, [&] { do_send(values, to, stream); });
}

void Group::recv(const Tensor& values, int from, Stream stream) {
  LS_ASSERT(from >= 0 && from < size_ && from != rank_);
  marked(Collective::recv, values.bytes(), stream, [&] { do_recv(values, from, stream); });
}

void Group::barrier() {
  marked(Collective::barrier, 0, nullptr, [&] { do_barrier(); });
}

std::vector<std::vector<Tensor>> Group::borrow(const std::vector<std::vector<Tensor>>& offers,
                                               const std::vector<std::vector<Tensor>>& expected,
                                               const Tensor& staging, Stream stream) {
  LS_ASSERT(static_cast<int>(offers.size()) == size_ && static_cast<int>(expected.size()) == size_);
  int64_t bytes = 0;
  for (const std::vector<Tensor>& offer : offers) {
    LS_ASSERT(offer.size() == offers[0].size());
    bytes += bytes_of(offer);
  }
  for (int q = 0; q < size_; ++q) count(q, bytes_of(offers[static_cast<size_t>(q)]));
  LS_ASSERT(expected[static_cast<size_t>(rank_)].size() == offers[0].size());
  LS_ASSERT((staging ? staging.bytes() : 0) >= staging_bytes(expected));
  return marked(Collective::borrow, bytes, stream,
                [&] { return do_borrow(offers, expected, staging, stream); });
}

void Group::give_back(Stream stream) {
  marked(Collective::give_back, 0, stream, [&] { do_give_back(stream); });
}

int64_t Group::staging_bytes(const std::vector<std::vector<Tensor>>& expected) const {
  int64_t bytes = 0;
  for (size_t q = 0; q < expected.size(); ++q) {
    if (static_cast<int>(q) == rank_) continue;  // one's own stays where it is
    for (const Tensor& tensor : expected[q]) bytes += aligned(tensor.bytes());
  }
  return bytes;
}

std::vector<std::vector<Tensor>> Group::do_borrow(const std::vector<std::vector<Tensor>>& offers,
                                                  const std::vector<std::vector<Tensor>>& expected,
                                                  const Tensor& staging, Stream stream) {
  std::vector<std::vector<Tensor>> views = expected;
  auto* next = static_cast<std::byte*>(staging.data);
  for (size_t q = 0; q < views.size(); ++q) {
    if (static_cast<int>(q) == rank_) {
      views[q] = offers[q];
      continue;
    }
    for (Tensor& view : views[q]) {
      view.data = next;
      next += aligned(view.bytes());
    }
  }
  std::vector<Tensor> send(views.size()), recv(views.size());
  size_t most = 0;
  for (const std::vector<Tensor>& view : views) most = std::max(most, view.size());
  const Tensor nothing{nullptr, device::DType::u8, {0}};
  for (size_t i = 0; i < most; ++i) {
    for (size_t q = 0; q < views.size(); ++q) {
      send[q] = i < offers[q].size() ? offers[q][i] : nothing;
      recv[q] = i < views[q].size() ? views[q][i] : nothing;
    }
    do_all_to_all(send, recv, stream);
  }
  return views;
}

}  // namespace lockstep::comm

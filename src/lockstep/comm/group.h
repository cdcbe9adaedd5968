// A group of ranks and what they do together. One interface, carried by engines (comm/engine.h).
//
// Every member calls the same operations in the same order. On the CPU a call has finished when it returns;
// with NCCL it is enqueued on `stream`, and what was handed to it may be touched again only behind it on that
// stream. Each call carries the group's timeout: CommError 520 names group, operation, sequence number and
// the ranks that are missing, where the engine knows them. Each call leaves its mark in the recorder's ring.
// A group is used by one thread at a time; two lanes that run beside each other have a group each.
//
// Parts are given by rank: parts[q] belongs to rank q; sizes may differ, and be zero.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/ring.h"
#include "lockstep/comm/store/store.h"
#include "lockstep/device/device.h"
#include "lockstep/device/tensor.h"

namespace lockstep::comm {

using device::Stream;
using device::Tensor;

enum class Collective : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  borrow,
  broadcast,
  send,
  recv,
  barrier,
  give_back,
};
const char* name_of(Collective kind);
constexpr uint16_t kFirstCollectiveOp = 100;  // in the ring, `op` is this plus Collective: beside program::Op

// What an engine throws when a call cannot be carried out; Group turns it into CommError 520 with the call's
// name.
struct CallFailed {
  std::string why;  // "rank 3 (process 4711) has died"
};

class DeviceMarks;
struct Engine;

// A call that was handed to a device and has not ended there.
struct OpenCall {
  Collective kind = Collective::barrier;
  int64_t sequence = 0, step = 0;
  int32_t instruction = -1;
};

class Group {
 public:
  virtual ~Group() = default;
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // in the group
  int size() const { return size_; }
  // What carries it (comm/engine.h): its name, "alone" for a group of one; whether members read each other's
  // memory, so that what others offer is theirs and not a copy; whether calls return before they are done.
  const char* engine() const;
  bool shares_memory() const;
  bool enqueues() const;

  // Sum over all ranks, in place and in the engine's own order: f32, f64, bf16, f16, i32, i64.
  void all_reduce(const Tensor& values, Stream stream = nullptr);
  // mine = sum over ranks q of q's parts[rank()], in the engine's own order. `mine` may be parts[rank()].
  void reduce_scatter(const std::vector<Tensor>& parts, const Tensor& mine, Stream stream = nullptr);
  // Sends parts[rank()] to everyone and fills the other parts.
  void all_gather(const std::vector<Tensor>& parts, Stream stream = nullptr);
  // send[q] goes to rank q; recv[q] is filled with what q sent here.
  void all_to_all(const std::vector<Tensor>& send, const std::vector<Tensor>& recv, Stream stream = nullptr);
  void broadcast(const Tensor& values, int root, Stream stream = nullptr);
  void send(const Tensor& values, int to, Stream stream = nullptr);
  void recv(const Tensor& values, int from, Stream stream = nullptr);
  void barrier();

  // An all-to-all whose results may stay where they are. `offers[q]` are tensors that rank q may read (any
  // number, the same to all; other ranks may offer more or fewer). Returns views[q]: what rank q offers to
  // this rank, as peers' own memory where that is shared and as copies in `staging` where it is not. The
  // views hold, and the offered memory must not change, until every member has called give_back().
  //
  // Which tensors rank q will offer must be known here: `expected[q]` has their types and shapes (data is
  // ignored).
  std::vector<std::vector<Tensor>> borrow(const std::vector<std::vector<Tensor>>& offers,
                                          const std::vector<std::vector<Tensor>>& expected,
                                          const Tensor& staging, Stream stream = nullptr);
  void give_back(Stream stream = nullptr);
  // Bytes of staging that borrow() needs for `expected`: 0 where memory is shared.
  virtual int64_t staging_bytes(const std::vector<std::vector<Tensor>>& expected) const;

  // Of calls that run on a device and are marked there; any thread may ask. The newest that it has begun and
  // not ended, and the oldest that it has not ended, begun or not.
  std::optional<OpenCall> open_call() const;
  std::optional<OpenCall> next_call() const;
  // Tells the other members how far this rank's device has come, and asks which of them (world ranks) have
  // not come to a call, as far as they tell; waits some seconds for their word. By one thread at a time,
  // which need not be the one that uses the group.
  virtual void say_where() {}
  virtual std::vector<int> missing(int64_t sequence) { return (void)sequence, std::vector<int>(); }

  // Where marks go, and which instruction the next call belongs to. Of calls that run on a device, `marks`
  // says when they begin and end there; without it they stay "enqueued".
  void record_in(base::RingWriter* ring, int32_t group_number, DeviceMarks* marks = nullptr);
  void at(int64_t step, int32_t instruction) { step_ = step, instruction_ = instruction; }
  int64_t sequence() const { return sequence_; }  // calls so far
  // Bytes that this rank has handed to each member so far. An all-reduce counts as an even part to each for
  // the sum and again for its result, whatever way the engine goes.
  const std::vector<int64_t>& sent() const { return sent_; }

  // Pretends that the link carries only so many bytes a second: each call takes that long at least. For
  // trying how a layout behaves on a slower network, and for tests of overlap. 0: as fast as it is.
  void pretend_link(double bytes_per_second) { link_ = bytes_per_second; }

 protected:
  // `engine`: its row, which outlives the group.
  Group(std::string name, int rank, int size, const Engine& engine)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        engine_(engine),
        sent_(static_cast<size_t>(size), 0) {}
  // What an engine implements. `bytes` of a call are those that this rank moves.
  virtual void do_all_reduce(const Tensor& values, Stream stream) = 0;
  virtual void do_reduce_scatter(const std::vector<Tensor>& parts, const Tensor& mine, Stream stream) = 0;
  virtual void do_all_gather(const std::vector<Tensor>& parts, Stream stream) = 0;
  virtual void do_all_to_all(const std::vector<Tensor>& send, const std::vector<Tensor>& recv,
                             Stream stream) = 0;
  virtual void do_broadcast(const Tensor& values, int root, Stream stream) = 0;
  virtual void do_send(const Tensor& values, int to, Stream stream) = 0;
  virtual void do_recv(const Tensor& values, int from, Stream stream) = 0;
  virtual void do_barrier() = 0;
  virtual std::vector<std::vector<Tensor>> do_borrow(const std::vector<std::vector<Tensor>>& offers,
                                                     const std::vector<std::vector<Tensor>>& expected,
                                                     const Tensor& staging,
                                                     Stream stream);  // all_to_all into staging
  virtual void do_give_back(Stream) {}
  int64_t begun() const { return begun_ ? begun_->load() : -1; }  // the newest that the device has begun

 private:
  template <class Call>
  auto marked(Collective kind, int64_t bytes, Stream stream, Call call);
  void mark_on_device(uint64_t ticket, bool end, int64_t sequence, Stream stream);

  void count(int to, int64_t bytes);  // to oneself: nothing

  std::string name_;
  int rank_, size_;
  const Engine& engine_;
  std::vector<int64_t> sent_;
  base::RingWriter* ring_ = nullptr;
  int32_t number_ = -1, instruction_ = -1;
  int64_t step_ = 0, sequence_ = 0;
  double link_ = 0;
  // Calls on a device.
  DeviceMarks* marks_ = nullptr;
  std::shared_ptr<std::atomic<int64_t>> begun_, ended_;
  std::atomic<int64_t> enqueued_{-1};
  std::vector<OpenCall> calls_;  // the newest, by sequence
  bool broken_ = false;          // a call failed: members no longer agree on what comes next
};

}  // namespace lockstep::comm

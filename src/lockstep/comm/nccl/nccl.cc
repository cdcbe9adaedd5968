// The NCCL engine: CUDA ranks. Calls are enqueued on the given stream and return at once.
//
// Parts of equal size that lie one after the other use NCCL's own collectives; others are grouped reduces,
// broadcasts, or sends and receives. A barrier is the hosts': it goes through the store, so it can name who
// is missing.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/number.h"
#include "lockstep/comm/consistency_check.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/interface.h"
#include "lockstep/comm/nccl/nccl_api.h"

namespace lockstep::comm {
namespace {

NcclType type_of(device::DType type) {
  switch (type) {
    case device::DType::f32:
      return kNcclFloat32;
    case device::DType::bf16:
      return kNcclBfloat16;
    case device::DType::f16:
      return kNcclFloat16;
    case device::DType::f64:
      return kNcclFloat64;
    case device::DType::i32:
      return kNcclInt32;
    case device::DType::i64:
      return kNcclInt64;
    case device::DType::u8:
      return kNcclUint8;
  }
  return kNcclUint8;
}

size_t count_of(const Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }
size_t bytes_of(const Tensor& tensor) { return static_cast<size_t>(tensor.bytes()); }

// Equal parts, one behind the other: one tensor for NCCL.
bool is_one_tensor(const std::vector<Tensor>& parts) {
  for (size_t q = 1; q < parts.size(); ++q) {
    if (parts[q].numel() != parts[0].numel() || parts[q].dtype != parts[0].dtype) return false;
    if (parts[q].data != parts[0].as<std::byte>() + q * bytes_of(parts[0])) return false;
  }
  return true;
}

constexpr std::chrono::seconds kTimeToSay{3};  // a rank that waits says so after one

class NcclGroup final : public Group {
 public:
  NcclGroup(const GroupOptions& options, int rank, NcclComm comm, std::unique_ptr<Store> store)
      : Group(options.name, rank, static_cast<int>(options.ranks.size()), nccl_engine()),
        nccl_(nccl_api()),
        comm_(comm),
        device_(*options.device),
        store_(std::move(store)),
        members_check_{rank, size(), 0, options.timeout, options.ranks} {}
  ~NcclGroup() override {
    // After a failure the others may never come to the orderly end.
    if (failed_) {
      nccl_.CommAbort(comm_);
    } else {
      nccl_.CommDestroy(comm_);
    }
  }
  void say_where() override { desk().set(fmt::format("at/{}", rank()), std::to_string(begun())); }
  std::vector<int> missing(int64_t sequence) override {
    std::vector<int> found;
    const auto deadline = std::chrono::steady_clock::now() + kTimeToSay;
    for (int q = 0; q < size(); ++q) {
      while (q != rank() && come_to(q) < sequence) {
        if (std::chrono::steady_clock::now() < deadline) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          continue;
        }
        found.push_back(members_check_.names[static_cast<size_t>(q)]);
        break;
      }
    }
    return found;
  }

 protected:
  void do_all_reduce(const Tensor& values, Stream stream) override {
    enqueue([&] {
      if (values.numel() == 0) return;
      check(nccl_.AllReduce(values.data, values.data, count_of(values), type_of(values.dtype), kNcclSum,
                            comm_, stream));
    });
  }

  void do_reduce_scatter(const std::vector<Tensor>& parts, const Tensor& mine, Stream stream) override {
    enqueue([&] {
      const NcclType type = type_of(mine.dtype);
      if (is_one_tensor(parts)) {
        if (mine.numel() == 0) return;
        check(nccl_.ReduceScatter(parts[0].data, mine.data, count_of(mine), type, kNcclSum, comm_, stream));
        return;
      }
      for (int q = 0; q < size(); ++q) {
        const Tensor& part = parts[static_cast<size_t>(q)];
        if (part.numel() == 0) continue;
        void* to = q == rank() ? mine.data : part.data;  // only looked at on rank q
        check(nccl_.Reduce(part.data, to, count_of(part), type, kNcclSum, q, comm_, stream));
      }
    });
  }

  void do_all_gather(const std::vector<Tensor>& parts, Stream stream) override {
    enqueue([&] {
      const Tensor& mine = parts[static_cast<size_t>(rank())];
      if (is_one_tensor(parts)) {
        if (mine.numel() == 0) return;
        check(nccl_.AllGather(mine.data, parts[0].data, bytes_of(mine), kNcclUint8, comm_, stream));
        return;
      }
      for (int q = 0; q < size(); ++q) {
        const Tensor& part = parts[static_cast<size_t>(q)];
        if (part.numel() > 0)
          check(nccl_.Broadcast(part.data, part.data, bytes_of(part), kNcclUint8, q, comm_, stream));
      }
    });
  }

  void do_all_to_all(const std::vector<Tensor>& send, const std::vector<Tensor>& recv,
                     Stream stream) override {
    enqueue([&] {
      for (int step = 1; step < size(); ++step) {
        const int to = (rank() + step) % size(), from = (rank() + size() - step) % size();
        const Tensor &out = send[static_cast<size_t>(to)], &in = recv[static_cast<size_t>(from)];
        if (out.bytes() > 0) check(nccl_.Send(out.data, bytes_of(out), kNcclUint8, to, comm_, stream));
        if (in.bytes() > 0) check(nccl_.Recv(in.data, bytes_of(in), kNcclUint8, from, comm_, stream));
      }
    });
    const auto self = static_cast<size_t>(rank());
    if (send[self].bytes() > 0 && recv[self].data != send[self].data) {
      device_.copy(recv[self].data, send[self].data, send[self].bytes(), device::CopyKind::device_to_device,
                   stream);
    }
  }

  // One launch for everything that is lent.
  std::vector<std::vector<Tensor>> do_borrow(const std::vector<std::vector<Tensor>>& offers,
                                             const std::vector<std::vector<Tensor>>& expected,
                                             const Tensor& staging, Stream stream) override {
    std::vector<std::vector<Tensor>> views;
    enqueue([&] { views = Group::do_borrow(offers, expected, staging, stream); });
    return views;
  }

  void do_broadcast(const Tensor& values, int root, Stream stream) override {
    enqueue([&] {
      if (values.numel() == 0) return;
      check(nccl_.Broadcast(values.data, values.data, bytes_of(values), kNcclUint8, root, comm_, stream));
    });
  }

  void do_send(const Tensor& values, int to, Stream stream) override {
    enqueue([&] {
      if (values.numel() > 0) check(nccl_.Send(values.data, bytes_of(values), kNcclUint8, to, comm_, stream));
    });
  }

  void do_recv(const Tensor& values, int from, Stream stream) override {
    enqueue([&] {
      if (values.numel() > 0)
        check(nccl_.Recv(values.data, bytes_of(values), kNcclUint8, from, comm_, stream));
    });
  }

  void do_barrier() override {
    check_earlier();
    try {
      ++members_check_.number;
      check_consistency(members_check_, {}, *store_);
    } catch (const base::CommError& error) {
      failed_ = true;
      throw CallFailed{error.what()};
    }
  }

 private:
  // One launch for all of `calls`, after a look at what became of earlier ones.
  template <class Calls>
  void enqueue(Calls calls) {
    check_earlier();
    check(nccl_.GroupStart());
    calls();
    check(nccl_.GroupEnd());
  }
  // Who asks need not be who uses the group, and a connection is one thread's.
  Store& desk() {
    if (!desk_) desk_ = store_->clone();
    return *desk_;
  }
  int64_t come_to(int member) {
    const std::optional<std::string> text = desk().try_get(fmt::format("at/{}", member));
    return text ? base::parse_number(*text).value_or(-1) : -1;
  }
  void check_earlier() {
    NcclResult error = kNcclSuccess;
    check(nccl_.CommGetAsyncError(comm_, &error));
    check(error);
  }
  void check(NcclResult result) {
    if (result == kNcclSuccess || result == kNcclInProgress) return;
    failed_ = true;
    throw CallFailed{fmt::format("NCCL error: {} ({}); set NCCL_DEBUG=WARN for details",
                                 nccl_.GetErrorString(result), nccl_.GetLastError(comm_))};
  }

  const NcclApi& nccl_;
  NcclComm comm_;
  device::Device& device_;
  std::unique_ptr<Store> store_, desk_;
  ConsistencyCheck members_check_;
  bool failed_ = false;
};

// Blocks until every member has called it, which NCCL gives no time limit; so a thread calls it, which is
// left behind with the process when the time is up.
NcclComm connect(const GroupOptions& options, int rank, const NcclUniqueId& id) {
  const NcclApi& nccl = nccl_api();
  auto* device = options.device;
  const int size = static_cast<int>(options.ranks.size());
  std::promise<std::pair<NcclResult, NcclComm>> promise;
  auto future = promise.get_future();
  std::thread([promise = std::move(promise), &nccl, device, size, rank, id]() mutable {
    NcclComm comm = nullptr;
    NcclConfig config;
    device->synchronize(nullptr);  // makes it this thread's device
    const NcclResult result = nccl.CommInitRankConfig(&comm, size, id, rank, &config);
    promise.set_value({result, comm});
  }).detach();
  if (future.wait_for(options.timeout) != std::future_status::ready) {
    throw base::CommError(521,
                          fmt::format("cannot create group {}: NCCL ranks did not connect within {:g} s; "
                                      "check NCCL_SOCKET_IFNAME, and set NCCL_DEBUG=INFO for details",
                                      options.name, static_cast<double>(options.timeout.count()) / 1000));
  }
  const auto [result, comm] = future.get();
  if (result == kNcclSuccess) return comm;
  throw base::CommError(
      520, fmt::format("cannot create group {} with NCCL: {} ({}); set NCCL_DEBUG=WARN for details",
                       options.name, nccl.GetErrorString(result), nccl.GetLastError(nullptr)));
}

}  // namespace

// NCCL refuses two ranks on one GPU of one host. Where that is wanted (one GPU, several ranks: good for
// trying a layout, not for speed), each rank gets a host name of its own, and the ways that reach only inside
// a host are closed. Must come before anything else is asked of NCCL, which reads its environment once.
void let_ranks_share_gpus(const GroupOptions& options, int rank, Store& store) {
  const std::string mine = base::host_name() + " " + options.device->properties().address;
  store.set(fmt::format("gpu/{}", rank), mine);
  bool shared = false;
  for (size_t q = 0; q < options.ranks.size(); ++q) {
    shared = shared ||
             (static_cast<int>(q) != rank && store.get(fmt::format("gpu/{}", q), options.timeout) == mine);
  }
  // Every member closes them, or none: NCCL wants the same ways at both ends.
  if (shared) store.set("gpu/shared", "yes");
  store.add("gpu/said", 1);
  while (store.add("gpu/said", 0) < static_cast<int64_t>(options.ranks.size())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (!store.try_get("gpu/shared")) return;
  ::setenv("NCCL_HOSTID", fmt::format("{}-{}", base::host_name(), options.self).c_str(), 0);
  for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"}) ::setenv(name, "1", 0);
  const bool one_host = std::all_of(options.ranks.begin(), options.ranks.end(), [&](int q) {
    const auto at = std::find(options.ranks.begin(), options.ranks.end(), q) - options.ranks.begin();
    return store.get(fmt::format("gpu/{}", at), options.timeout).starts_with(base::host_name() + " ");
  });
  if (one_host) ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
}

namespace {

std::unique_ptr<Group> make_nccl_group(const GroupOptions& options, Store& store, SharedArena*) {
  LS_ASSERT(options.device != nullptr);
  // NCCL takes interfaces by name alone.
  if (const std::string name = interface_name(options.interface); !name.empty()) {
    ::setenv("NCCL_SOCKET_IFNAME", name.c_str(), 0);  // what the user set counts more
  }
  const NcclApi& nccl = nccl_api();
  check_members(options, store);
  auto own = with_prefix(store.clone(), "nccl/" + options.name + "/");
  const int rank = static_cast<int>(std::find(options.ranks.begin(), options.ranks.end(), options.self) -
                                    options.ranks.begin());
  let_ranks_share_gpus(options, rank, *own);
  NcclUniqueId id{};
  if (rank == 0) {
    if (nccl.GetUniqueId(&id) != kNcclSuccess) {
      throw base::CommError(
          520, fmt::format("cannot create group {} with NCCL: {}", options.name, nccl.GetLastError(nullptr)));
    }
    own->set("id", std::string(id.bytes, sizeof(id.bytes)));
  } else {
    const std::string bytes = own->get("id", options.timeout);
    if (bytes.size() != sizeof(id.bytes))
      throw base::CommError(520, "the NCCL id in the store is incomplete");
    std::memcpy(id.bytes, bytes.data(), sizeof(id.bytes));
  }
  const NcclComm comm = connect(options, rank, id);
  return std::make_unique<NcclGroup>(options, rank, comm, std::move(own));
}

}  // namespace

const Engine& nccl_engine() {
  static const Engine row{.name = "nccl",
                          .describe = "CUDA ranks anywhere",
                          .carries = {device::Kind::cuda},
                          .enqueues = true,
                          .automatic = true,
                          .make = make_nccl_group};
  return row;
}

}  // namespace lockstep::comm

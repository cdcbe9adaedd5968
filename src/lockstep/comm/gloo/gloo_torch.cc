// The Gloo engine: CPU ranks anywhere, through c10d's ProcessGroupGloo and the run's own store.
//
// Sums in place and broadcasts are Gloo's. Everything with parts that may differ in size is an exchange of
// messages between all pairs, which moves no more bytes than a ring would; a reduce-scatter sums what came in
// rank order.
#define USE_C10D_GLOO
#include <ATen/ATen.h>
#include <net/if.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/consistency_check.h"
#include "lockstep/comm/engines.h"
#include "lockstep/comm/gloo/gloo.h"
#include "lockstep/comm/rank_sum.h"
#include "lockstep/comm/store/store_torch.h"

namespace lockstep::comm {
namespace {

constexpr int kPairTag = 0, kExchangeTag = 1;
constexpr Duration kRollGrace{2000};        // for the others to report the same failure
constexpr Duration kOwnTimeoutFirst{1000};  // Gloo's own timeout says more than that of a wait for it

at::ScalarType scalar_type(device::DType type) {
  switch (type) {
    case device::DType::f32:
      return at::kFloat;
    case device::DType::bf16:
      return at::kBFloat16;
    case device::DType::f16:
      return at::kHalf;
    case device::DType::f64:
      return at::kDouble;
    case device::DType::i32:
      return at::kInt;
    case device::DType::i64:
      return at::kLong;
    case device::DType::u8:
      return at::kByte;
  }
  return at::kByte;
}

std::vector<at::Tensor> as_aten(const Tensor& tensor) {
  return {at::from_blob(tensor.data, {tensor.numel()}, scalar_type(tensor.dtype))};
}
std::vector<at::Tensor> as_bytes(const Tensor& tensor) {
  return {at::from_blob(tensor.data, {tensor.bytes()}, at::kByte)};
}

// What Gloo says, without the place in its source that it says first: "[/path/pair.cc:538] Read error ...".
std::string first_line(const char* what) {
  const std::string all = what, text = all.substr(0, all.find('\n'));
  const size_t place = text.starts_with("[") ? text.find("] ") : std::string::npos;
  return place == std::string::npos ? text : text.substr(place + 2);
}

using Work = c10::intrusive_ptr<c10d::Work>;
struct Pending {
  Work work;
  int peer;
};

class GlooGroup final : public Group {
 public:
  GlooGroup(const GroupOptions& options, int rank, std::unique_ptr<Store> store,
            c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo)
      : Group(options.name, rank, static_cast<int>(options.ranks.size()), gloo_engine()),
        ranks_(options.ranks),
        timeout_(options.timeout),
        store_(std::move(store)),
        gloo_(std::move(gloo)) {}

 protected:
  void do_all_reduce(const Tensor& values, Stream) override {
    if (values.bytes() == 0) return do_barrier();
    auto tensors = as_aten(values);
    finish([&] { return gloo_->allreduce(tensors); });
  }

  void do_broadcast(const Tensor& values, int root, Stream) override {
    if (values.bytes() == 0) return do_barrier();
    auto tensors = as_bytes(values);
    c10d::BroadcastOptions options;
    options.rootRank = root;
    finish([&] { return gloo_->broadcast(tensors, options); });
  }

  void do_barrier() override {
    finish([&] { return gloo_->barrier(); });
  }

  void do_reduce_scatter(const std::vector<Tensor>& parts, const Tensor& mine, Stream) override {
    const auto self = static_cast<size_t>(rank());
    const auto bytes = static_cast<size_t>(mine.bytes());
    std::vector<std::byte> inbox(bytes * parts.size());
    std::vector<Tensor> recv(parts.size(), mine);
    std::vector<const void*> from(parts.size());
    for (size_t q = 0; q < parts.size(); ++q) {
      recv[q].data = inbox.data() + q * bytes;
      from[q] = q == self ? parts[q].data : recv[q].data;
    }
    exchange(parts, recv);
    void* to = mine.data;
    sum_ranks(mine.dtype, from.data(), size(), &to, 1, mine.numel());
  }

  void do_all_gather(const std::vector<Tensor>& parts, Stream) override {
    exchange(std::vector<Tensor>(parts.size(), parts[static_cast<size_t>(rank())]), parts);
  }

  void do_all_to_all(const std::vector<Tensor>& send, const std::vector<Tensor>& recv, Stream) override {
    exchange(send, recv);
    const auto self = static_cast<size_t>(rank());
    if (recv[self].bytes() > 0)
      std::memmove(recv[self].data, send[self].data, static_cast<size_t>(recv[self].bytes()));
  }

  void do_send(const Tensor& values, int to, Stream) override { wait_all({post_send(values, to, kPairTag)}); }
  void do_recv(const Tensor& values, int from, Stream) override {
    wait_all({post_recv(values, from, kPairTag)});
  }

 private:
  // send[q] to q and recv[q] from q for all others; what is empty is not sent.
  void exchange(const std::vector<Tensor>& send, const std::vector<Tensor>& recv) {
    std::vector<Pending> pending;
    for (int step = 1; step < size(); ++step) {
      const int from = (rank() + size() - step) % size();
      const Tensor& in = recv[static_cast<size_t>(from)];
      if (in.bytes() > 0) pending.push_back(post_recv(in, from, kExchangeTag));
    }
    for (int step = 1; step < size(); ++step) {
      const int to = (rank() + step) % size();
      const Tensor& out = send[static_cast<size_t>(to)];
      if (out.bytes() > 0) pending.push_back(post_send(out, to, kExchangeTag));
    }
    wait_all(pending);
  }

  Pending post_send(const Tensor& values, int to, int tag) {
    auto tensors = as_bytes(values);
    return guarded(to, [&] { return Pending{gloo_->send(tensors, to, tag), to}; });
  }
  Pending post_recv(const Tensor& values, int from, int tag) {
    auto tensors = as_bytes(values);
    return guarded(from, [&] { return Pending{gloo_->recv(tensors, from, tag), from}; });
  }
  void wait_all(const std::vector<Pending>& pending) {
    for (const Pending& one : pending)
      guarded(one.peer, [&] { return one.work->wait(timeout_ + kOwnTimeoutFirst); });
  }
  template <class Start>
  void finish(Start start) {
    guarded(-1, [&] { return start()->wait(timeout_ + kOwnTimeoutFirst); });
  }

  // LibTorch's exceptions become ours, with the peer's name when the message was for one.
  template <class Call>
  auto guarded(int peer, Call call) -> decltype(call()) {
    try {
      return call();
    } catch (const std::exception& error) {
      const std::string silent = who_is_silent();
      const std::string with =
          peer < 0 ? "" : "with rank " + std::to_string(ranks_[static_cast<size_t>(peer)]) + ": ";
      throw CallFailed{silent + with + first_line(error.what())};
    }
  }

  // A failure reaches every rank that takes part, sooner or later: who does not report it is where to look.
  std::string who_is_silent() {
    const std::string prefix = "failed/";
    std::vector<std::string> silent;
    try {
      store_->set(prefix + std::to_string(rank()), "1");
      const auto end = std::chrono::steady_clock::now() + kRollGrace;
      for (int q = 0; q < size(); ++q) {
        const std::string key = prefix + std::to_string(q);
        while (!store_->check({key}) && std::chrono::steady_clock::now() < end) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        if (!store_->check({key})) silent.push_back(std::to_string(ranks_[static_cast<size_t>(q)]));
      }
    } catch (const base::Error&) {
      return "";  // the store is gone as well
    }
    std::string text;
    for (const std::string& one : silent) text += (text.empty() ? "" : ", ") + one;
    if (text.empty()) return text;
    return std::string("no message from rank") + (silent.size() == 1 ? " " : "s ") + text + "; ";
  }

  std::vector<int> ranks_;
  Duration timeout_;
  std::unique_ptr<Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

std::shared_ptr<gloo::transport::Device> open_device(const std::string& interface) {
  const std::string where = interface.empty() ? "127.0.0.1" : interface;
  try {
    return ::if_nametoindex(where.c_str()) != 0 ? c10d::ProcessGroupGloo::createDeviceForInterface(where)
                                                : c10d::ProcessGroupGloo::createDeviceForHostname(where);
  } catch (const std::exception& error) {
    throw base::ConfigError(526, "Gloo cannot use " + where + " (" + first_line(error.what()) +
                                     "): use an interface or address of this machine");
  }
}

// PyTorch's flight recorder is one for the process, and two groups that enqueue at the same time break it
// (2.11: a map without a lock; a crash or an endless loop). We have a recorder of our own.
void leave_out_flight_recorder() {
  static std::once_flag once;
  std::call_once(once, [] { ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1); });
}

}  // namespace

extern "C" Group* lockstep_gloo_group(const GroupOptions& options, Store& store) {
  leave_out_flight_recorder();
  const auto device = open_device(options.interface);
  check_members(options, store);
  const int size = static_cast<int>(options.ranks.size());
  const int rank = static_cast<int>(std::find(options.ranks.begin(), options.ranks.end(), options.self) -
                                    options.ranks.begin());
  const std::string prefix = "gloo/" + options.name + "/";
  auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
  settings->devices = {device};
  settings->threads = 1;  // calls of a group come one after the other
  try {
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(as_c10d(with_prefix(store.clone(), prefix)), rank,
                                                            size, settings);
    return new GlooGroup(options, rank, with_prefix(store.clone(), prefix), std::move(gloo));
  } catch (const c10::Error& error) {
    throw base::CommError(
        526, "group " + options.name + " cannot be created with Gloo: " + first_line(error.what()));
  } catch (const std::runtime_error& error) {
    throw base::CommError(
        526, "group " + options.name + " cannot be created with Gloo: " + first_line(error.what()));
  }
}

}  // namespace lockstep::comm

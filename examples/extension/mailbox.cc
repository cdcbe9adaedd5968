// An engine: every message goes through the run's store. Slow, and works wherever the store is reached.
#include <algorithm>
#include <cstring>

#include "extension.h"
#include "lockstep/comm/engine.h"
#include "lockstep/comm/rank_sum.h"

namespace {

using namespace lockstep;
using comm::Stream;
using comm::Tensor;
using Tensors = std::vector<Tensor>;

const comm::Engine& row();

class Mailbox final : public comm::Group {
 public:
  Mailbox(const comm::GroupOptions& options, comm::Store& store)
      : Group(options.name, place(options), static_cast<int>(options.ranks.size()), row()),
        store_(comm::with_prefix(store.clone(), "mailbox/" + options.name)),
        timeout_(options.timeout) {}

 protected:
  void do_all_to_all(const Tensors& send, const Tensors& recv, Stream) override {
    for (int q = 0; q < size(); ++q) {
      if (q != rank()) post(q, send[at(q)]);
    }
    copy(recv[at(rank())], send[at(rank())]);
    for (int q = 0; q < size(); ++q) {
      if (q != rank()) take(q, recv[at(q)]);
    }
  }
  void do_all_gather(const Tensors& parts, Stream stream) override {
    do_all_to_all(Tensors(at(size()), parts[at(rank())]), parts, stream);
  }
  void do_reduce_scatter(const Tensors& parts, const Tensor& mine, Stream stream) override {
    std::vector<std::vector<std::byte>> memory(at(size()), std::vector<std::byte>(at(mine.bytes())));
    Tensors incoming(at(size()), mine);
    std::vector<const void*> from;
    for (int q = 0; q < size(); ++q) from.push_back(incoming[at(q)].data = memory[at(q)].data());
    do_all_to_all(parts, incoming, stream);
    void* to = mine.data;
    comm::sum_ranks(mine.dtype, from.data(), size(), &to, 1, mine.numel());
  }
  void do_all_reduce(const Tensor& values, Stream stream) override {
    do_reduce_scatter(Tensors(at(size()), values), values, stream);
  }
  void do_broadcast(const Tensor& values, int root, Stream) override {
    if (rank() != root) return take(root, values);
    for (int q = 0; q < size(); ++q) {
      if (q != root) post(q, values);
    }
  }
  void do_send(const Tensor& values, int to, Stream) override { post(to, values); }
  void do_recv(const Tensor& values, int from, Stream) override { take(from, values); }
  void do_barrier() override {
    int32_t word = 0;
    do_all_reduce({&word, device::DType::i32, {1}}, nullptr);
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  static int place(const comm::GroupOptions& options) {
    return static_cast<int>(std::find(options.ranks.begin(), options.ranks.end(), options.self) -
                            options.ranks.begin());
  }
  static std::string way(int from, int to) { return std::to_string(from) + ">" + std::to_string(to); }
  static void copy(const Tensor& to, const Tensor& from) {
    if (to.bytes() > 0) std::memmove(to.data, from.data, at(to.bytes()));
  }
  void post(int to, const Tensor& values) {
    store_->push(way(rank(), to), std::string(static_cast<const char*>(values.data), at(values.bytes())));
  }
  void take(int from, const Tensor& values) {
    const std::optional<std::string> bytes = store_->pop(way(from, rank()), timeout_);
    if (!bytes) throw comm::CallFailed{"rank " + std::to_string(from) + " of the group sent nothing in time"};
    if (bytes->size() != at(values.bytes())) throw comm::CallFailed{"a message of another size came"};
    std::memcpy(values.data, bytes->data(), bytes->size());
  }

  std::unique_ptr<comm::Store> store_;
  comm::Duration timeout_;
};

const comm::Engine& row() {
  static const comm::Engine engine{
      .name = "mailbox",
      .describe = "messages through the store",
      .why_not = [](const comm::GroupOptions& options, comm::Store&) -> std::string {
        return options.ranks.size() > 2 ? "a mailbox is for two" : "";
      },
      .make = [](const comm::GroupOptions& options, comm::Store& store, comm::SharedArena*)
          -> std::unique_ptr<comm::Group> { return std::make_unique<Mailbox>(options, store); }};
  return engine;
}

}  // namespace

lockstep::comm::Engine mailbox_engine() { return row(); }

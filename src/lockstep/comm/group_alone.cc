#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/engine.h"

namespace lockstep::comm {
namespace {

// Not in the table: nobody asks for it.
const Engine& alone_engine() {
  static const Engine row{.name = "alone",
                          .describe = "one rank",
                          .carries = {device::Kind::cpu, device::Kind::cuda},
                          .make = {}};
  return row;
}

class GroupAlone final : public Group {
 public:
  GroupAlone(std::string name, device::Device* device)
      : Group(std::move(name), 0, 1, alone_engine()), device_(device) {}

 protected:
  void do_all_reduce(const Tensor&, Stream) override {}
  void do_reduce_scatter(const std::vector<Tensor>& parts, const Tensor& mine, Stream stream) override {
    copy(mine, parts[0], stream);
  }
  void do_all_gather(const std::vector<Tensor>&, Stream) override {}
  void do_all_to_all(const std::vector<Tensor>& send, const std::vector<Tensor>& recv,
                     Stream stream) override {
    copy(recv[0], send[0], stream);
  }
  void do_broadcast(const Tensor&, int, Stream) override {}
  void do_send(const Tensor&, int, Stream) override {
    LS_ASSERT(false, "a group of one has no rank to send to");
  }
  void do_recv(const Tensor&, int, Stream) override {
    LS_ASSERT(false, "a group of one has no rank to receive from");
  }
  void do_barrier() override {}

 private:
  void copy(const Tensor& to, const Tensor& from, Stream stream) {
    if (to.data == from.data || to.bytes() == 0) return;
    if (device_ != nullptr) {
      device_->copy(to.data, from.data, to.bytes(), device::CopyKind::device_to_device, stream);
    } else {
      std::memmove(to.data, from.data, static_cast<size_t>(to.bytes()));
    }
  }

  device::Device* device_;
};

}  // namespace

std::unique_ptr<Group> make_group_alone(std::string name, device::Device* device) {
  return std::make_unique<GroupAlone>(std::move(name), device);
}

}  // namespace lockstep::comm

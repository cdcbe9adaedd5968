// Binds what passes between tensor and context ranks inside a slice, and between pipeline stages.
#pragma once

#include "lockstep/run/executor/bind.h"

namespace lockstep::run {

// Collectives between the segments of a slice.
class SeamBinder {
 public:
  SeamBinder(const BindContext& context, const program::Instruction& i);
  std::function<void()> bind(const program::SumValues& sum) const;
  std::function<void()> bind(const program::GatherTokens& gather) const;
  std::function<void()> bind(const program::ScatterTokens& scatter) const;
  std::function<void()> bind(const program::ExchangeHeads& exchange) const;
  std::function<void()> bind(const program::ShiftRing& ring) const;

 private:
  // Equal runs of rows, each for itself.
  std::function<void()> each_piece(
      int pieces,
      const std::function<std::function<void()>(const device::Tensor&, const device::Tensor&)>& bind) const;

  const BindContext& c_;
  const program::Instruction& i_;
  device::Stream stream_;
  comm::Group& group_;
  device::Tensor from_, to_;
};

// Sums over the tree of batch.product_strands: places for every rank's addend of a share, this rank's own
// left out, and the sum of them all.
std::vector<device::Tensor> staged_addends(const device::Tensor& staging, const device::Tensor& like,
                                           int ranks);
kernels::SumAddends sum_of_addends(const std::vector<device::Tensor>& arrived, const device::Tensor& own,
                                   int self, const device::Tensor& to);

// All that it reads goes to the stage it names, or all that it writes comes from there.
std::function<void()> bind_send(const BindContext& context, const program::Instruction& i);
std::function<void()> bind_recv(const BindContext& context, const program::Instruction& i);
std::function<void()> bind_send_tied(const BindContext& context,
                                     const std::vector<model::BlockLayout>& layouts,
                                     const program::Instruction& i, const program::SendTied& tied);

}  // namespace lockstep::run

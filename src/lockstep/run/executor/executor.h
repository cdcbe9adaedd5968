// The executor: runs a step program on a device.
//
// Everything is bound once, in the constructor: each instruction becomes one prepared call whose tensors are
// fixed, so a step is a walk over the list. Lanes run beside each other: on CUDA each is a stream, on the CPU
// each but the compute lane is a thread; what an instruction waits for on other lanes stands in the list
// (program::order).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/kernels/table.h"
#include "lockstep/model/block.h"
#include "lockstep/model/layout.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/program/program.h"
#include "lockstep/run/executor/memory.h"
#include "lockstep/run/executor/profile.h"
#include "lockstep/run/executor/ranks.h"

namespace lockstep::run {

// One step's batch in host memory, slice after slice: 32-bit words (tokens, or floats as bits).
struct HostBatch {
  std::span<const int32_t> inputs, labels;
  std::span<const int32_t> documents =
      {};  // where each input's document begins in its sample; empty: not asked for
  std::span<const double> references = {};  // of each sample (model::Model::pairs); empty: not asked for
};

class Executor {
 public:
  struct Options {
    optim::Optimizer optimizer;
    bool tf32 = false;                 // precision.tf32
    const Ranks* ranks = nullptr;      // the groups of collective instructions; null when there are none
    base::RingWriter* ring = nullptr;  // the recorder's; null: nothing is recorded
    comm::CallWatch* watch = nullptr;  // several ranks on GPUs: of what must end in time
    bool graph = true;                 // CUDA: a step becomes one graph where it can
    bool graph_of_lanes = false;       // also one of several lanes, the collectives in it
  };
  // `program` was placed by `memory`. The model, memory and device must outlive the executor.
  Executor(const model::Model& model, const program::Program& program, const Memory& memory,
           device::Device& device, Options options);
  ~Executor();

  // Computes this rank's first slices once, on zeros and whatever lies in memory, without a word to other
  // ranks. So a GPU has loaded every kernel before ranks wait for each other: to load one it waits for all
  // that runs, also for a message that another rank can only send when it has loaded its own. Leaves nothing
  // behind that a step does not write before it reads it.
  void rehearse();
  // Enqueues one step. `batch` may be reused when the call returns. At most two steps may be unread.
  // `gradients`, where it is given, is called once inside the step, when every block's gradients are sums
  // over all slices and ranks, in memory, and nothing has used them: the device has done all that comes
  // before. Such a step runs call by call, with the same bits.
  void step(const kernels::StepInputs& inputs, const HostBatch& batch,
            const std::function<void()>& gradients = nullptr);
  // The state after the oldest step whose state was not read yet. Waits for that step only, so that the
  // device works on the next one meanwhile.
  kernels::StepState read_oldest();
  int unread() const;
  // How long the step took that was read last, from the end of the one before it, by the device's own clock:
  // a host that is late to look, or that waits while a long step is enqueued, does not change it.
  double last_step_ms() const;
  // The next step's time begins now. Call it when no step is unread and other work was done since.
  void restart_clock();
  // Runs those instructions for which `before` says so, one by one, and calls `after` behind each, when it is
  // done.
  void step_slowly(const kernels::StepInputs& inputs, const HostBatch& batch,
                   const std::function<bool(int instruction)>& before,
                   const std::function<void(int instruction)>& after);
  // Between the two, what runs is noted; call both when no step is unread. The first step runs call by call,
  // which tells whose a kernel is; later ones as always. Empty, or why it cannot be.
  std::string start_profile();
  Profile stop_profile();
  // Waits for the step. Slice after slice, of each its pieces (program::Program::losses): of those that other
  // ranks computed zero, except behind a training step.
  std::vector<double> read_losses();
  // Of pairs (model::Model::pairs): log-probabilities of the batch's samples, in its order. Behind a training
  // step those of all ranks; else those of the slices of this rank's last stage, and zero elsewhere.
  std::vector<double> read_sequences();
  device::Stream stream() const;
  // Whether a step was launched as one graph yet; and why none will be, though it was to be tried.
  bool runs_as_graph() const;
  std::string graph_refusal() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::run

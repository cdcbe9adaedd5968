#include "lockstep/run/executor/executor.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/run/executor/bind.h"
#include "lockstep/run/executor/graph.h"
#include "lockstep/run/executor/lanes.h"
#include "lockstep/run/executor/step_marks.h"

namespace lockstep::run {

using device::CopyKind;
using device::Tensor;
using kernels::StepInputs;
using kernels::StepState;
using program::Instruction;
using program::Lane;

struct Executor::State {
  const model::Model& model;
  const program::Program& program;
  const Memory& memory;
  device::Device& device;
  std::map<Lane, device::Stream> streams;
  std::vector<std::function<void()>> calls;  // one for each instruction
  std::unique_ptr<Binder> binder;
  std::unique_ptr<Lanes> lanes;      // CPU with more than one lane
  std::unique_ptr<StepGraph> graph;  // CUDA
  std::unique_ptr<StepMarks> marks;  // CUDA, where something is recorded
  std::vector<device::Event>
      events;  // CUDA: of instructions that another lane waits for; null for the others
  std::map<Lane, device::Event> ends;  // CUDA: where a lane's step ends
  Staging staging;
  base::RingWriter* ring = nullptr;
  const Ranks* ranks = nullptr;
  comm::CallWatch* watch = nullptr;
  bool graph_wanted = true, graph_of_lanes = false;
  std::unique_ptr<Profile> profile;                  // while one is being made
  const std::function<void()>* gradients = nullptr;  // of this step, if somebody wants to look at them
  size_t gradients_at = 0;                           // before which instruction
  Tensor state, losses;
  StepState* readbacks[2] = {};     // pinned
  device::Event step_ends[4] = {};  // before step n, and behind it: n % 4, (n + 1) % 4
  int64_t started = 0, read = 0;    // steps
  double last_ms = 0;               // of the step read last

  device::Stream stream() const { return streams.at(Lane::compute); }
  device::Stream stream_of(const Instruction& i) const { return streams.at(i.lane); }

  std::vector<double> read_losses(int64_t first, int64_t count) {  // waits for the step
    std::vector<double> result(static_cast<size_t>(count));
    device.copy(result.data(), losses.as<double>() + first, count * static_cast<int64_t>(sizeof(double)),
                CopyKind::device_to_host, stream());
    device.synchronize(stream());
    return result;
  }

  bool on_cpu() const { return device.id().kind == device::Kind::cpu; }

  void begin(const StepInputs& from, const HostBatch& batch) {
    staging.fill(device, batch, from);
    if (marks) marks->begin(staging.slot(), static_cast<int64_t>(from.step));
  }

  // The first norm reads what all blocks' gradients have become.
  size_t first_norm() const {
    const auto first = std::find_if(program.instructions.begin(), program.instructions.end(),
                                    [](const Instruction& i) { return i.is<program::Norm>(); });
    return static_cast<size_t>(first - program.instructions.begin());
  }

  void call(size_t n) {
    if (gradients != nullptr && n == gradients_at) {
      device.synchronize(stream());
      (*gradients)();
    }
    if (!profile) return calls[n]();
    const int64_t tag = profile->steps * static_cast<int64_t>(calls.size()) + static_cast<int64_t>(n);
    device.tag(tag);
    const int64_t began = base::monotonic_ns();
    calls[n]();
    if (on_cpu()) profile->ran[static_cast<size_t>(tag)] = {"", began, base::monotonic_ns(), tag};
  }

  // Lanes as streams: one host thread enqueues the list in its order, which is the same on every rank.
  void enqueue() {
    for (const auto& [lane, end] : ends) {
      if (lane == Lane::compute) device.record(end, stream());
    }
    for (const auto& [lane, end] : ends) {
      if (lane != Lane::compute) device.wait(streams.at(lane), ends.at(Lane::compute));
    }
    for (size_t n = 0; n < calls.size(); ++n) {
      const Instruction& i = program.instructions[n];
      for (const int other : i.waits) device.wait(stream_of(i), events[static_cast<size_t>(other)]);
      call(n);
      if (marks) marks->mark(n, stream_of(i));
      if (events[n] != nullptr) device.record(events[n], stream_of(i));
    }
    if (profile) device.tag(-1);
    for (const auto& [lane, end] : ends) {
      if (lane == Lane::compute) continue;
      device.record(end, streams.at(lane));
      device.wait(stream(), end);
    }
  }

  // The marks that the device leaves come into the ring here.
  void wait(device::Event event) {
    if (!marks) {
      device.wait_for(event);
      return;
    }
    const comm::CallWatch::Step watched(graph ? watch : nullptr);  // a graph's calls are not marked
    const bool alone = ranks == nullptr || ranks->alone();
    for (int looks = 0; !device.done(event); ++looks) {
      if (looks % 16 == 0) marks->look();
      if (alone || looks > 1000)
        std::this_thread::sleep_for(std::chrono::microseconds(looks > 20000 ? 1000 : alone ? 100 : 20));
    }
    marks->look();
  }

  void run() {
    // A place for every call, so that lanes note theirs beside each other.
    if (profile && on_cpu()) profile->ran.resize(profile->ran.size() + calls.size());
    if (lanes) {
      lanes->run();
    } else if (graph && gradients == nullptr && !(profile && profile->steps == 0)) {
      const size_t slot = staging.slot();
      if (marks && graph->captured(slot)) marks->all_enqueued();
      graph->run(slot, [this] { enqueue(); });
    } else {
      enqueue();
    }
    if (profile) ++profile->steps;
  }

  // Marks around a call. On CUDA only the enqueueing is the host's to see; the rest is the device's to say.
  std::function<void()> recorded(std::function<void()> call, size_t n) {
    const Instruction& i = program.instructions[n];
    if (i.among != program::Among::none) {  // groups leave their own marks
      comm::Group* group = &ranks->group(i.among, i.lane);
      const int32_t number = program.training ? static_cast<int32_t>(n) : -1;
      return [this, call = std::move(call), group, number] {
        group->at(static_cast<int64_t>(staging.inputs()->step), number);
        call();
      };
    }
    if (ring == nullptr) return call;
    const base::RingStamp stamp{.step = 0,
                                .instruction = static_cast<int32_t>(n),
                                .op = static_cast<uint16_t>(program::verb_of(i.what)),
                                .block = i.block,
                                .slice = i.slice,
                                .bytes = i.moved_bytes};
    if (marks) {
      marks->add(n, i.lane, stamp);
      return [this, call = std::move(call), n] {
        marks->enqueued(n);
        call();
      };
    }
    return [this, call = std::move(call), stamp] {
      base::RingStamp mine = stamp;
      mine.step = static_cast<int64_t>(staging.inputs()->step);
      const uint64_t ticket = ring->enqueue(mine);
      ring->start(ticket);
      call();
      ring->finish(ticket);
    };
  }
};

Executor::Executor(const model::Model& model, const program::Program& program, const Memory& memory,
                   device::Device& device, Options options)
    : state_(new State{model, program, memory, device}) {
  State& s = *state_;
  s.ring = options.ring;
  s.ranks = options.ranks;
  s.watch = options.watch;
  s.graph_wanted = options.graph;
  s.graph_of_lanes = options.graph_of_lanes;
  if (s.ring != nullptr && !s.on_cpu()) s.marks = std::make_unique<StepMarks>(device, *s.ring);
  s.state = memory.find("step state");
  s.losses = memory.find("slice losses");
  s.staging.allocate(device, program);
  for (StepState*& readback : s.readbacks)
    readback = static_cast<StepState*>(device.allocate_host(sizeof(StepState)));
  for (device::Event& end : s.step_ends) end = device.create_event();
  s.streams[Lane::compute] = s.streams[Lane::host] = device.create_stream();
  for (const Instruction& i : program.instructions) {
    if (!s.streams.contains(i.lane)) s.streams[i.lane] = device.create_stream();
  }
  const bool several = s.streams.size() > 2;
  s.events.resize(program.instructions.size(), nullptr);
  for (const Instruction& i : program.instructions) {
    for (const int other : i.waits) {
      device::Event& event = s.events[static_cast<size_t>(other)];
      if (event == nullptr) event = device.create_event();
    }
  }
  for (const auto& [lane, stream] : s.streams) {
    if (several && lane != Lane::host) s.ends[lane] = device.create_event();
  }
  s.binder = std::make_unique<Binder>(
      BindContext{model, program, memory, device, s.streams, s.staging, std::move(options)});
  for (size_t n = 0; n < program.instructions.size(); ++n) {
    s.calls.push_back(s.recorded(s.binder->bind(program.instructions[n]), n));
  }
  if (several && s.on_cpu()) s.lanes = std::make_unique<Lanes>(program, [&s](size_t n) { s.call(n); });
  if ((!several || s.graph_of_lanes) && s.graph_wanted && program.training && device.can_capture()) {
    s.graph = std::make_unique<StepGraph>(device, s.stream());
    if (s.ranks != nullptr && s.ranks->marks() != nullptr) s.ranks->marks()->turn_off();
  }
}

Executor::~Executor() {
  State& s = *state_;
  s.lanes.reset();
  try {
    s.device.synchronize(s.stream());
    s.graph.reset();
    for (const auto& [lane, stream] : s.streams) {
      if (lane != Lane::host) s.device.synchronize(stream);
    }
  } catch (const base::Error&) {  // the device has failed: whoever used it last has said so
  }
  s.staging.free(s.device);
  for (StepState* readback : s.readbacks) s.device.free_host(readback);
  for (const device::Event end : s.step_ends) s.device.destroy_event(end);
  for (const device::Event event : s.events) {
    if (event != nullptr) s.device.destroy_event(event);
  }
  for (const auto& [lane, end] : s.ends) s.device.destroy_event(end);
  for (const auto& [lane, stream] : s.streams) {
    if (lane != Lane::host) s.device.destroy_stream(stream);
  }
}

device::Stream Executor::stream() const { return state_->stream(); }

bool Executor::runs_as_graph() const {
  return state_->graph != nullptr && (state_->graph->captured(0) || state_->graph->captured(1));
}

std::string Executor::graph_refusal() const {
  return state_->graph == nullptr ? "" : state_->graph->refusal();
}

namespace {

// What belongs to the first two slices: the second may add to what the first wrote. Not what outlives a step.
bool is_rehearsed(const program::Program& program, const Instruction& i) {
  const std::vector<int64_t>& own = program.own_slices;
  const auto last = own.begin() + static_cast<int64_t>(std::min<size_t>(2, own.size()));
  if (i.among != program::Among::none) return false;
  if (i.slice >= 0 && std::find(own.begin(), last, i.slice) == last) return false;
  return i.is<program::BeginStep, program::LoadSlice, program::RunSegment, program::JoinStrands,
              program::AddTied>();
}

// What reductions and marks launch, on a few values of its own.
void rehearse_helpers(device::Device& device, device::Stream stream) {
  constexpr int64_t kCount = 64, kInputs = 8;
  const kernels::Kernels& table = kernels::kernels_for(device.id().kind);
  const kernels::Launch launch{.stream = stream};
  auto* values = static_cast<float*>(device.allocate((kInputs + 1) * kCount * 4));
  auto* word = static_cast<uint32_t*>(device.allocate_host(sizeof(uint32_t)));
  device.fill_zero(values, (kInputs + 1) * kCount * 4, stream);
  table.mark({word, 0}, launch);
  table.add({kCount, values, values + kCount}, launch);
  for (const device::DType type : {device::DType::bf16, device::DType::f16}) {
    table.cast({device::DType::f32, type, kCount, values, values + kCount}, launch);
    table.cast({type, device::DType::f32, kCount, values + kCount, values}, launch);
  }
  for (int inputs = 1; inputs <= kInputs; inputs *= 2) {
    kernels::TreeSum sum{.count = kCount, .inputs = inputs, .out = values};
    for (int k = 0; k < inputs; ++k) {
      sum.from[k] = values + (k + 1) * kCount;
      sum.merges[k] = static_cast<uint8_t>(std::countr_one(static_cast<unsigned>(k)));
    }
    table.tree_sum(sum, launch);
  }
  device.synchronize(stream);
  device.free(values);
  device.free_host(word);
}

}  // namespace

void Executor::rehearse() {
  State& s = *state_;
  rehearse_helpers(s.device, s.stream());
  s.staging.clear();
  for (const Instruction& i : s.program.instructions) {
    if (is_rehearsed(s.program, i)) s.binder->bind(i)();
  }
  s.device.synchronize(s.stream());
}

void Executor::step(const StepInputs& inputs, const HostBatch& batch,
                    const std::function<void()>& gradients) {
  State& s = *state_;
  if (s.started == 0) restart_clock();
  s.begin(inputs, batch);
  s.gradients = gradients ? &gradients : nullptr;
  if (gradients) s.gradients_at = s.first_norm();
  s.run();
  s.gradients = nullptr;
  s.staging.in_use(s.device, s.stream());
  if (!s.program.training) return;
  LS_ASSERT(unread() < 2, "two steps are unread");
  StepState* readback = s.readbacks[s.started++ % 2];
  s.device.copy(readback, s.state.data, sizeof(StepState), CopyKind::device_to_host, s.stream());
  s.device.record(s.step_ends[s.started % 4], s.stream());
}

std::string Executor::start_profile() {
  State& s = *state_;
  std::string why_not;
  if (!s.on_cpu()) why_not = s.device.begin_trace();
  if (why_not.empty()) s.profile = std::make_unique<Profile>();
  return why_not;
}

Profile Executor::stop_profile() {
  State& s = *state_;
  LS_ASSERT(s.profile != nullptr, "no profile was started");
  for (const auto& [lane, stream] : s.streams) s.device.synchronize(stream);
  Profile made = std::move(*s.profile);
  s.profile.reset();
  if (!s.on_cpu()) made.ran = s.device.end_trace();
  name_graphs(made, static_cast<int64_t>(s.calls.size()));
  return made;
}

int Executor::unread() const { return static_cast<int>(state_->started - state_->read); }

StepState Executor::read_oldest() {
  LS_ASSERT(unread() > 0);
  State& s = *state_;
  const StepState* readback = s.readbacks[s.read % 2];
  const device::Event before = s.step_ends[s.read % 4], end = s.step_ends[(s.read + 1) % 4];
  ++s.read;
  s.wait(end);
  s.last_ms = s.device.milliseconds_between(before, end);
  return *readback;
}

double Executor::last_step_ms() const { return state_->last_ms; }

void Executor::restart_clock() {
  LS_ASSERT(unread() == 0);
  state_->device.record(state_->step_ends[state_->started % 4], state_->stream());
}

void Executor::step_slowly(const StepInputs& inputs, const HostBatch& batch,
                           const std::function<bool(int)>& before, const std::function<void(int)>& after) {
  State& s = *state_;
  s.begin(inputs, batch);
  for (size_t n = 0; n < s.calls.size(); ++n) {
    if (!before(static_cast<int>(n))) continue;
    s.calls[n]();
    s.device.synchronize(s.stream_of(s.program.instructions[n]));
    after(static_cast<int>(n));
  }
}

std::vector<double> Executor::read_losses() { return state_->read_losses(0, state_->program.losses()); }

std::vector<double> Executor::read_sequences() {
  const program::Program& program = state_->program;
  LS_ASSERT(program.reference_words > 0, "the model's samples are no pairs");
  return state_->read_losses(program.slices + 1, program.slices * program.samples_per_slice);
}

}  // namespace lockstep::run

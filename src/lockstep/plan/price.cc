#include "lockstep/plan/price.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/device/thread_pool.h"

namespace lockstep::plan {

using program::Among;
using program::Instruction;
using program::Program;

namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6;
constexpr int64_t kGib = int64_t{1} << 30;

// What goes over the wire: weights, gradients, edges; not what an engine puts in between.
double bytes_of(const Program& program, const std::vector<program::Use>& uses) {
  double total = 0;
  for (const program::Use& use : uses) {
    const program::Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
    const bool travels = buffer.kind != program::BufferKind::scratch && use.role != program::Role::kept;
    if (travels) total += static_cast<double>(buffer.bytes());
  }
  return total;
}

bool writes_shares(const Program& program, const Instruction& i) {
  return std::any_of(i.writes.begin(), i.writes.end(), [&](const program::Use& use) {
    return program.buffers[static_cast<size_t>(use.buffer)].sharded;
  });
}

double meeting_seconds(const Link& link, int width, const Program& program, const Instruction& i) {
  // Across nodes go pieces: of everything, what each of a node's ranks deals with.
  const double piece = i.among == Among::inter_node ? program.ranks.near() : 1;
  const double in = bytes_of(program, i.reads) / piece, out = bytes_of(program, i.writes) / piece,
               ranks = width;
  const double others = (ranks - 1) / ranks;  // the share of everything that comes from elsewhere
  const auto ring = [&](double bytes) {
    return bytes * others / link.bytes_per_second + (ranks - 1) * link.latency_seconds;
  };
  const auto hop = [&](double bytes) { return bytes / link.bytes_per_second + link.latency_seconds; };
  const auto message = [&] { return hop(static_cast<double>(i.moved_bytes)); };
  // Parts of a sum to their owners; where all want all of it, on to everyone.
  const auto reduce = [&] {
    const bool scatters =
        i.among == Among::intra_node || writes_shares(program, i) || out * (ranks - 0.5) < in;
    return ring(in) + (scatters ? 0 : ring(out));
  };
  return std::visit(program::Cases{
                        [&](const program::SendValues&) { return message(); },
                        [&](const program::RecvValues&) { return message(); },
                        [&](const program::SendTied&) { return message(); },
                        [&](const program::RecvTied&) { return message(); },
                        [&](const program::SendWeights&) { return message(); },
                        [&](const program::RecvWeights&) { return message(); },
                        [&](const program::GatherTokens&) { return ring(out); },
                        [&](const program::GatherWeights&) { return ring(out); },
                        [&](const program::GatherSums&) { return ring(out); },
                        [&](const program::GatherStatistics&) { return ring(out); },
                        [&](const program::ExchangeHeads&) { return ring(std::max(in, out)); },
                        [&](const program::ShiftRing&) { return hop(in); },
                        [&](const program::SumValues&) { return reduce(); },
                        [&](const program::ScatterTokens&) { return reduce(); },
                        [&](const program::SumPartials&) { return reduce(); },
                        [&](const program::ReduceGradients&) { return reduce(); },
                        [&](const program::SumInputs&) { return reduce(); },
                        [&](const program::SumScalars&) { return reduce(); },
                        [](const program::BeginStep&) { return 0.0; },
                        [](const program::LoadSlice&) { return 0.0; },
                        [](const program::RunSegment&) { return 0.0; },
                        [](const program::FoldStatistics&) { return 0.0; },
                        [](const program::ReleaseWeights&) { return 0.0; },
                        [](const program::JoinStrands&) { return 0.0; },
                        [](const program::AddTied&) { return 0.0; },
                        [](const program::Norm&) { return 0.0; },
                        [](const program::Update&) { return 0.0; },
                    },
                    i.what);
}

bool computes_half(const Program& program) {
  if (program.blocks.empty() || program.blocks[0].compute < 0) return false;
  return program.buffers[static_cast<size_t>(program.blocks[0].compute)].dtype != device::DType::f32;
}

}  // namespace

const std::vector<Machine>& machines() {
  static const Link nvlink4{450 * kGiga, 3 * kMicro}, nvlink3{300 * kGiga, 3 * kMicro};
  static const Link net400{45 * kGiga, 8 * kMicro}, net200{22 * kGiga, 8 * kMicro},
      net100{11 * kGiga, 12 * kMicro};
  static const Link pcie4{22 * kGiga, 6 * kMicro}, pcie3{11 * kGiga, 6 * kMicro};
  static const Link memory{8 * kGiga, 20 * kMicro}, wire{0.11 * kGiga, 60 * kMicro};
  static const std::vector<Machine> list{
      {"H100", 67 * kTera, 989 * kTera, 0.6, 3350 * kGiga, 80 * kGib, 5 * kMicro, nvlink4, net400, 8},
      {"H200", 67 * kTera, 989 * kTera, 0.6, 4800 * kGiga, 139 * kGib, 5 * kMicro, nvlink4, net400, 8},
      {"A100", 19.5 * kTera, 312 * kTera, 0.7, 2039 * kGiga, 80 * kGib, 5 * kMicro, nvlink3, net200, 8},
      {"L4", 30.3 * kTera, 121 * kTera, 0.6, 300 * kGiga, 23 * kGib, 5 * kMicro, pcie4, net100, 8},
      {"T4", 8.1 * kTera, 65 * kTera, 0.5, 300 * kGiga, 15 * kGib, 6 * kMicro, pcie3, net100, 4},
      {"laptop", 0.4 * kTera, 0.2 * kTera, 0.6, 40 * kGiga, 12 * kGib, 2 * kMicro, memory, wire, 8},
  };
  return list;
}

const Machine& machine_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Machine& machine : machines()) {
    if (machine.name == name) return machine;
    names.push_back(machine.name);
  }
  throw base::ConfigError(181,
                          fmt::format("unknown machine '{}'; known are {}", name, base::join(names, ", ")));
}

Machine this_machine(device::Kind kind, const device::Properties& device, int ranks_here) {
  const double share = 1.0 / std::max(1, ranks_here);
  std::string like = "laptop";
  if (kind == device::Kind::cuda) {
    like = "A100";
    for (const Machine& machine : machines()) {
      if (device.name.find(machine.name) != std::string::npos) like = machine.name;
    }
  }
  Machine machine = machine_named(like);
  machine.name = device.name;
  if (kind == device::Kind::cpu) {  // a core does about 50 billion multiplications and additions a second
    const double cores = device::thread_count();
    machine.flops_fp32 = cores * 0.1 * kTera * share;
    machine.flops_half = machine.flops_fp32 / 2;
    machine.memory_bytes_per_second = std::min(cores, 4.0) * 10 * kGiga * share;
    machine.memory_bytes = static_cast<int64_t>(static_cast<double>(device.free_bytes) * share);
    return machine;
  }
  if (device.peak_flops_bf16 > 0) machine.flops_half = device.peak_flops_bf16;
  if (device.peak_flops_fp32 > 0) machine.flops_fp32 = device.peak_flops_fp32;
  machine.memory_bytes = device.free_bytes;
  return machine;
}

double seconds_of(const Machine& machine, const Link& link, int width, const Program& program,
                  const Instruction& i) {
  if (i.among != Among::none) {
    const bool alone = width < 2 && !is_message(i);
    return machine.launch_seconds + (alone ? 0 : meeting_seconds(link, std::max(2, width), program, i));
  }
  const double peak = computes_half(program) ? machine.flops_half : machine.flops_fp32;
  const double products = i.flops / (peak * machine.reached);
  const double bytes = static_cast<double>(i.moved_bytes) / machine.memory_bytes_per_second;
  const bool nothing = i.is<program::ReleaseWeights>();  // says only where memory ends
  return nothing ? 0 : std::max(machine.launch_seconds, std::max(products, bytes));
}

namespace {

// The ranks that come to an instruction, and whether they stand on several nodes.
struct Meet {
  int width = 1;
  bool crosses = false;
};

Meet meet_of(const Machine& machine, const World& world, int rank, Among among) {
  const bool message = among == Among::next || among == Among::previous;
  const std::vector<int> all =
      message ? std::vector{rank, world.peer(rank, among)} : world.members(rank, among);
  const auto node = [&](int r) { return r / machine.ranks_per_node; };
  return {static_cast<int>(all.size()),
          node(all.front()) != node(all.back()) || node(rank) != node(all.front())};
}

}  // namespace

Price price_on(const Machine& machine, const World& world) {
  auto known = std::make_shared<std::map<std::pair<int, Among>, Meet>>();
  return [&machine, &world, known](int rank, const Program& program, const Instruction& i) {
    Meet meet;
    if (i.among != Among::none) {
      const auto [it, fresh] = known->try_emplace({rank, i.among});
      if (fresh) it->second = meet_of(machine, world, rank, i.among);
      meet = it->second;
    }
    return seconds_of(machine, meet.crosses ? machine.between : machine.inside, meet.width, program, i);
  };
}

std::function<int(int rank)> apart_on(const Machine& machine, const World& world) {
  std::vector<Among> named;
  for (const Program* program : world.programs) {
    for (const Instruction& i : program->instructions) {
      if (i.among == Among::none || i.among == Among::all) continue;
      if (std::find(named.begin(), named.end(), i.among) == named.end()) named.push_back(i.among);
    }
  }
  return [&machine, &world, named](int rank) {
    int bits = 0;
    for (const Among among : named) {
      if (meet_of(machine, world, rank, among).crosses) bits |= 1 << static_cast<int>(among);
    }
    return bits;
  };
}

}  // namespace lockstep::plan

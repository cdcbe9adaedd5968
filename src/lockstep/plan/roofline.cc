#include "lockstep/plan/roofline.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/round.h"

namespace lockstep::plan {

using program::Instruction;
using program::Pass;
using program::Program;
using program::RunSegment;

namespace {

constexpr int64_t kTileRows = 128, kTileColumns = 256, kLeastSum = 1024;  // of products on a GPU

// The share of the units that have a tile to compute. Long sums may be split among idle units.
double busy_units(const Machine& machine, const ProductShape& s) {
  if (machine.units <= 0) return 1;
  const auto tiles =
      static_cast<double>(base::divide_up(s.m, kTileRows) * base::divide_up(s.n, kTileColumns));
  const auto parts = static_cast<double>(std::max<int64_t>(1, s.k / kLeastSum));
  return std::min(1.0, tiles * parts / machine.units);
}

double product_rate(const Machine& machine, bool fp8, device::DType type) {
  if (fp8 && machine.flops_fp8 > 0) return machine.flops_fp8 * machine.reached_fp8;
  if (type == device::DType::f32 && machine.tf32 && machine.flops_tf32 > 0)
    return machine.flops_tf32 * (machine.reached_tf32 > 0 ? machine.reached_tf32 : machine.reached);
  if (type == device::DType::f32)
    return machine.flops_fp32 * (machine.reached_fp32 > 0 ? machine.reached_fp32 : machine.reached);
  return machine.flops_half * machine.reached;
}

device::DType computes_in(const Program& program) {
  if (program.blocks.empty()) return device::DType::f32;
  for (const program::BlockBuffers& block : program.blocks) {
    if (block.compute >= 0) return program.buffers[static_cast<size_t>(block.compute)].dtype;
  }
  return device::DType::f32;
}

Work kind_of_bytes(const Instruction& i) {
  if (i.is<program::Update, program::Norm>()) return Work::update;
  const RunSegment* run = i.get<RunSegment>();
  return run != nullptr && run->pass == Pass::loss ? Work::loss : Work::passes;
}

// Products and attention of a segment; how many kernels that is.
int add_shapes(const Machine& machine, device::DType type, const Instruction& i, WorkSeconds& seconds) {
  const model::Cost& cost = *i.work;
  const double all = cost.flops(), share = all > 0 ? i.flops / all : 0;
  if (share <= 0) return 0;
  const RunSegment& run = *i.get<RunSegment>();
  for (const model::Cost::Product& p : cost.products) {
    const ProductShape shape{.m = p.m,
                             .n = p.n,
                             .k = p.k,
                             .type = type,
                             .fp8 = p.fp8,
                             .wide_sum = run.pass == Pass::backward_weight};
    seconds[p.fp8 ? Work::fp8_products : Work::products] += share * product_seconds(machine, shape);
    // Once for what comes in and once for its gradient, which the product with the gradient of the weight
    // reads too.
    if (p.fp8 && !shape.wide_sum) {
      seconds[Work::passes] += share * machine.fp8_cast_bytes * static_cast<double>(p.m) *
                               static_cast<double>(p.k) /
                               (machine.memory_bytes_per_second * machine.memory_reached);
    }
  }
  const bool back = run.pass == Pass::backward_input;
  if (cost.attention_flops > 0) {
    seconds[Work::attention] += share * attention_seconds(machine, {.flops = cost.attention_flops,
                                                                    .length = cost.attention_length,
                                                                    .head = cost.attention_head,
                                                                    .type = type,
                                                                    .backward = back});
  }
  return static_cast<int>(cost.products.size()) + (cost.attention_flops > 0 ? (back ? 3 : 1) : 0);
}

}  // namespace

const char* name_of(Work work) {
  switch (work) {
    case Work::products:
      return "products";
    case Work::fp8_products:
      return "fp8 products";
    case Work::attention:
      return "attention";
    case Work::passes:
      return "norms and activations";
    case Work::loss:
      return "loss";
    case Work::update:
      return "update";
    case Work::launches:
      return "launches";
  }
  return "";
}

double WorkSeconds::all() const { return std::accumulate(std::begin(of), std::end(of), 0.0); }

void WorkSeconds::add(const WorkSeconds& other, double times) {
  for (int k = 0; k < kWorks; ++k) of[k] += times * other.of[k];
}

double product_seconds(const Machine& machine, const ProductShape& s) {
  const double m = static_cast<double>(s.m), n = static_cast<double>(s.n), k = static_cast<double>(s.k);
  const double in = s.fp8 ? 1 : static_cast<double>(device::size_of(s.type));
  const double out = s.wide_sum ? 4 : static_cast<double>(device::size_of(s.type));
  const double computing = 2 * m * n * k / (product_rate(machine, s.fp8, s.type) * busy_units(machine, s));
  const double moving = ((m * k + k * n) * in + m * n * out) / machine.memory_bytes_per_second;
  return machine.ramp_seconds + std::max(computing + machine.spill * moving, moving);
}

double attention_seconds(const Machine& machine, const AttentionWork& work) {
  const double of_fp32 = work.backward ? machine.attention_fp32_backward : machine.attention_fp32_forward;
  if (work.type == device::DType::f32 && of_fp32 > 0) return work.flops / (machine.flops_fp32 * of_fp32);
  const AttentionRate& rate = work.backward ? machine.attention_backward : machine.attention_forward;
  const double wide = std::clamp((static_cast<double>(work.head) - 64) / 64, -0.5, 1.0);
  const double reached = rate.reached_64 + wide * (rate.reached_128 - rate.reached_64);
  const auto length = static_cast<double>(work.length);
  const double filled = length / (length + rate.half_length);
  return work.flops / (machine.flops_half * reached * filled);
}

WorkSeconds work_seconds(const Machine& machine, const Program& program, const Instruction& i) {
  WorkSeconds seconds;
  if (i.is<program::ReleaseWeights>()) return seconds;  // says only where memory ends
  const device::DType type = computes_in(program);
  int kernels = 0;
  if (i.work && i.is<RunSegment>()) {
    kernels += add_shapes(machine, type, i, seconds);
  } else if (i.flops > 0) {
    seconds[Work::products] = i.flops / product_rate(machine, false, type);
    ++kernels;
  }
  if (i.moved_bytes > 0) {
    seconds[kind_of_bytes(i)] +=
        static_cast<double>(i.moved_bytes) / (machine.memory_bytes_per_second * machine.memory_reached);
    ++kernels;
  }
  seconds[Work::launches] = std::max(1, kernels) * machine.launch_seconds;
  return seconds;
}

}  // namespace lockstep::plan

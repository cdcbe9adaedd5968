#include "lockstep/plan/roofline.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/plan/machine.h"

namespace lockstep::plan {
namespace {

using program::Instruction;
using program::Program;

const Machine kMachine{.name = "round numbers",
                       .flops_fp32 = 1e12,
                       .flops_half = 4e12,
                       .reached = 0.5,
                       .memory_bytes_per_second = 1e10,
                       .launch_seconds = 0};

TEST(Roofline, ProductsAndPassesAddUp) {
  Program program;
  EXPECT_DOUBLE_EQ(work_seconds(kMachine, program, {.flops = 1e12}).all(), 2);
  EXPECT_DOUBLE_EQ(work_seconds(kMachine, program, {.flops = 1e12, .moved_bytes = 10'000'000'000}).all(), 3);
  program.blocks.push_back({.compute = program.add_buffer({.dtype = device::DType::bf16, .shape = {1}})});
  EXPECT_DOUBLE_EQ(work_seconds(kMachine, program, {.flops = 1e12}).all(), 0.5);
  const WorkSeconds update =
      work_seconds(kMachine, program, {.what = program::Update{}, .moved_bytes = 10'000'000'000});
  EXPECT_DOUBLE_EQ(update[Work::update], 1);
}

TEST(Roofline, APartOfASegmentIsAPartOfItsTime) {
  Program program;
  auto cost = std::make_shared<model::Cost>();
  cost->products.push_back({1000, 1000, 1000});
  Instruction whole{.flops = cost->flops(), .work = cost}, half{.flops = cost->flops() / 2, .work = cost};
  EXPECT_DOUBLE_EQ(work_seconds(kMachine, program, whole).all(),
                   2 * work_seconds(kMachine, program, half).all());
}

// What cuBLASLt took on an H200 (docs/measurements.md and the tables behind it): rows, columns, length of the
// sum, milliseconds.
TEST(Roofline, ProductsOfAnH200) {
  struct Row {
    int64_t m, n, k;
    bool fp8;
    double ms;
  };
  const Machine h200 = machine_named("H200");
  for (const Row& row : std::vector<Row>{{32768, 2304, 768, false, 0.193},
                                         {32768, 768, 768, false, 0.086},
                                         {32768, 3072, 768, false, 0.241},
                                         {32768, 768, 3072, false, 0.231},
                                         {32768, 50304, 768, false, 3.99},
                                         {16384, 3072, 2048, false, 0.334},
                                         {16384, 2048, 2048, false, 0.238},
                                         {16384, 16384, 2048, false, 1.53},
                                         {16384, 2048, 8192, false, 0.797},
                                         {16384, 16384, 2048, true, 0.917},
                                         {16384, 2048, 8192, true, 0.436},
                                         {16384, 128256, 2048, true, 6.92},
                                         {32768, 2304, 768, true, 0.136},
                                         {16384, 3072, 2048, true, 0.204}}) {
    const double ms = 1e3 * product_seconds(h200, {.m = row.m, .n = row.n, .k = row.k, .fp8 = row.fp8});
    EXPECT_NEAR(ms / row.ms, 1, 0.15) << fmt::format("{} x {} x {}: {:.3f} ms", row.m, row.n, row.k, ms);
  }
}

// The faster of cuDNN and FlashAttention on the same one (kernels/attention/attention_choice_test.cc).
TEST(Roofline, AttentionOfAnH200) {
  struct Row {
    int64_t samples, heads, length, head;
    double forward, backward;
  };
  const Machine h200 = machine_named("H200");
  for (const Row& row : std::vector<Row>{{32, 12, 1024, 64, 0.165, 0.429},
                                         {8, 32, 2048, 64, 0.339, 1.008},
                                         {6, 24, 4096, 64, 0.628, 1.771},
                                         {1, 32, 32768, 64, 8.07, 20.96},
                                         {4, 24, 4096, 128, 0.634, 2.233},
                                         {2, 32, 8192, 128, 1.538, 5.332},
                                         {1, 32, 32768, 128, 13.29, 38.79},
                                         {8, 32, 2048, 128, 0.494, 1.780},
                                         {4, 32, 2048, 96, 0.235, 0.745}}) {
    const auto length = static_cast<double>(row.length);
    const double product = length * (length + 1) * static_cast<double>(row.samples * row.heads * row.head);
    const auto ms = [&](int products, bool backward) {
      return 1e3 *
             attention_seconds(
                 h200,
                 {.flops = product * products, .length = row.length, .head = row.head, .backward = backward});
    };
    EXPECT_NEAR(ms(2, false) / row.forward, 1, 0.15) << row.length << " x " << row.head;
    EXPECT_NEAR(ms(5, true) / row.backward, 1, 0.15) << row.length << " x " << row.head;
  }
}

// fp32: products as TF32 where machine and recipe have it, attention without tensor cores.
TEST(Roofline, Fp32HasRatesOfItsOwn) {
  struct Row {
    const char* what;
    double tf32, attention;  // TFLOP/s, share of the fp32 peak
    bool allowed;
    double product_seconds, attention_seconds;  // of a TFLOP
  };
  for (const Row& row : std::vector<Row>{
           {"a device without TF32", 0, 0, true, 2.0, 0.625},
           {"TF32", 8e12, 0, true, 0.25, 0.625},
           {"which the recipe forbids", 8e12, 0, false, 2.0, 0.625},
           {"attention on plain multiply-adds", 8e12, 0.25, true, 0.25, 4},
       }) {
    SCOPED_TRACE(row.what);
    Machine machine = kMachine;
    machine.memory_bytes_per_second = 1e15;
    machine.flops_tf32 = row.tf32, machine.tf32 = row.allowed;
    machine.attention_fp32_forward = machine.attention_fp32_backward = row.attention;
    machine.attention_forward = {.reached_64 = 0.4, .reached_128 = 0.4, .half_length = 0};
    const ProductShape shape{.m = 1000, .n = 1000, .k = 500'000, .type = device::DType::f32};
    EXPECT_NEAR(product_seconds(machine, shape), row.product_seconds, 1e-3);
    EXPECT_DOUBLE_EQ(
        attention_seconds(machine, {.flops = 1e12, .length = 64, .head = 64, .type = device::DType::f32}),
        row.attention_seconds);
    EXPECT_DOUBLE_EQ(attention_seconds(machine, {.flops = 1e12, .length = 64, .head = 64}), 0.625);
  }
}

// What casts of other software move beyond ours: of inputs and of their gradients, not a third time for a
// weight's.
TEST(Roofline, CastsOfOtherSoftware) {
  Machine machine = kMachine;
  machine.fp8_cast_bytes = 3;
  const auto passes = [&](program::Pass pass, bool fp8) {
    program::Instruction i{.what = program::RunSegment{.pass = pass}};
    model::Cost cost;
    cost.products.push_back({1000, 200, 300, fp8});
    i.flops = cost.flops();
    i.work = std::make_shared<const model::Cost>(cost);
    return work_seconds(machine, program::Program{}, i)[Work::passes];
  };
  const double seconds = 3.0 * 1000 * 300 / (machine.memory_bytes_per_second * machine.memory_reached);
  EXPECT_DOUBLE_EQ(passes(program::Pass::forward, true), seconds);
  EXPECT_DOUBLE_EQ(passes(program::Pass::backward_input, true), seconds);
  EXPECT_EQ(passes(program::Pass::backward_weight, true), 0);
  EXPECT_EQ(passes(program::Pass::forward, false), 0);
}

// A product of few tiles leaves units idle, unless its sum is long enough to be split.
TEST(Roofline, FewTilesLeaveUnitsIdle) {
  const Machine h200 = machine_named("H200");
  const double one = product_seconds(h200, {.m = 128, .n = 256, .k = 512});
  const double many = product_seconds(h200, {.m = 128 * 132, .n = 256, .k = 512});
  EXPECT_LT(many, 3 * one);
}

}  // namespace
}  // namespace lockstep::plan

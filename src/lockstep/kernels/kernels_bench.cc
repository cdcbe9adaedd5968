// Speed of the operations that a CPU training step is made of, at the default model's sizes.
//
//     kernels_bench --benchmark_filter=gemm      OMP_NUM_THREADS sets the threads
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/kernels/table.h"

namespace lockstep::kernels {
namespace {

using benchmark::Counter;
using benchmark::State;
using device::DType;

// The CPU's table and memory filled with ordinary numbers.
class Bench {
 public:
  const Kernels& kernels = kernels_for(device::Kind::cpu);

  float* floats(int64_t count, float deviation = 1) {
    buffers_.emplace_back(static_cast<size_t>(count));
    kernels.fill_normal({count, buffers_.back().data(), 0, deviation, 1, buffers_.size()}, {});
    return buffers_.back().data();
  }
  Launch launch(int64_t bytes) {
    buffers_.emplace_back(static_cast<size_t>(bytes / 4 + 1));
    return {nullptr, buffers_.back().data(), bytes};
  }

 private:
  std::vector<std::vector<float>> buffers_;
};

void count_flops(State& state, double each) {
  state.counters["FLOP/s"] = Counter(each, Counter::kIsIterationInvariantRate);
}
void count_bytes(State& state, int64_t each) { state.SetBytesProcessed(state.iterations() * each); }

void gemm(State& state) {
  Bench bench;
  Gemm op{.m = state.range(0), .n = state.range(1), .k = state.range(2)};
  op.trans_a = state.range(3) == 1;
  op.trans_b = state.range(3) == 2;
  op.a = bench.floats(op.m * op.k);
  op.b = bench.floats(op.k * op.n);
  op.c = bench.floats(op.m * op.n);
  for (auto _ : state) bench.kernels.gemm(op, {});
  count_flops(state, 2.0 * static_cast<double>(op.m * op.n * op.k));
}
BENCHMARK(gemm)
    ->ArgNames({"m", "n", "k", "trans"})
    ->UseRealTime()
    ->Args({512, 384, 128, 2})
    ->Args({512, 128, 384, 0})
    ->Args({384, 128, 512, 1})
    ->Args({512, 128, 128, 2})
    ->Args({128, 128, 512, 1})
    ->Args({512, 512, 128, 2})
    ->Args({512, 128, 512, 1})
    ->Args({4096, 768, 256, 2})
    ->Args({4096, 256, 768, 0})
    ->Args({768, 256, 4096, 1})
    ->Args({4096, 1024, 256, 2})
    ->Args({256, 256, 4096, 1})
    ->Args({2048, 2048, 2048, 0});

void norm_forward(State& state) {
  Bench bench;
  NormForward op{.rows = state.range(0), .width = state.range(1)};
  const int64_t count = op.rows * op.width;
  op.x = bench.floats(count);
  op.residual = bench.floats(count);
  op.sum = bench.floats(count);
  op.y = bench.floats(count);
  op.weight = bench.floats(op.width);
  op.bias = bench.floats(op.width);
  op.mean = bench.floats(op.rows);
  op.rstd = bench.floats(op.rows);
  for (auto _ : state) bench.kernels.norm_forward(op, {});
  count_bytes(state, 16 * count);
}
BENCHMARK(norm_forward)->Args({512, 128})->Args({4096, 256})->UseRealTime();

void norm_backward(State& state) {
  Bench bench;
  NormBackward op{.rows = state.range(0), .width = state.range(1)};
  const int64_t count = op.rows * op.width;
  op.dy = bench.floats(count);
  op.sum = bench.floats(count);
  op.weight = bench.floats(op.width);
  op.mean = bench.floats(op.rows);
  op.rstd = bench.floats(op.rows);
  op.dresidual = bench.floats(count);
  op.dsum = bench.floats(count);
  op.partial_dweight = bench.floats(row_parts(op.rows) * op.width);
  op.partial_dbias = bench.floats(row_parts(op.rows) * op.width);
  for (auto _ : state) bench.kernels.norm_backward(op, {});
  count_bytes(state, 16 * count);
}
BENCHMARK(norm_backward)->Args({512, 128})->Args({4096, 256})->UseRealTime();

void gelu(State& state) {
  Bench bench;
  const int64_t count = state.range(0);
  const Activate op{ActivationKind::gelu_tanh, DType::f32, count, bench.floats(count), bench.floats(count)};
  for (auto _ : state) bench.kernels.activate(op, {});
  count_bytes(state, 8 * count);
}
BENCHMARK(gelu)->Arg(512 * 512)->Arg(4096 * 1024)->UseRealTime();

void gelu_backward(State& state) {
  Bench bench;
  const int64_t count = state.range(0);
  const ActivateBackward op{ActivationKind::gelu_tanh, DType::f32,          count,
                            bench.floats(count),       bench.floats(count), bench.floats(count)};
  for (auto _ : state) bench.kernels.activate_backward(op, {});
  count_bytes(state, 12 * count);
}
BENCHMARK(gelu_backward)->Arg(512 * 512)->Arg(4096 * 1024)->UseRealTime();

AttentionShape shape_of(const State& state) {
  return {DType::f32, state.range(0), state.range(1), state.range(2), state.range(2), state.range(3)};
}

// Of the lower triangle: what a causal pass has to do. A product forward is 2 flops, twice; backward, five
// times.
double attention_flops(const AttentionShape& s, int products) {
  return 2.0 * products *
         static_cast<double>(s.samples * s.heads * s.head_dim * s.seq_len * (s.seq_len + 1) / 2);
}

void attention_forward(State& state) {
  Bench bench;
  const AttentionShape shape = shape_of(state);
  AttentionForward op{shape, bench.floats(shape.rows() * shape.qkv_width())};
  op.out = bench.floats(shape.rows() * shape.heads * shape.head_dim);
  op.lse = bench.floats(shape.rows() * shape.heads);
  const Launch launch = bench.launch(bench.kernels.attention_workspace(shape));
  for (auto _ : state) bench.kernels.attention_forward(op, launch);
  count_flops(state, attention_flops(shape, 2));
}

void attention_backward(State& state) {
  Bench bench;
  const AttentionShape shape = shape_of(state);
  const int64_t out_count = shape.rows() * shape.heads * shape.head_dim;
  float* qkv = bench.floats(shape.rows() * shape.qkv_width());
  float* out = bench.floats(out_count);
  float* lse = bench.floats(shape.rows() * shape.heads);
  const Launch launch = bench.launch(bench.kernels.attention_workspace(shape));
  bench.kernels.attention_forward({shape, qkv, out, lse}, launch);
  const AttentionBackward op{
      shape, qkv, out, bench.floats(out_count), lse, bench.floats(shape.rows() * shape.qkv_width())};
  for (auto _ : state) bench.kernels.attention_backward(op, launch);
  count_flops(state, attention_flops(shape, 5));
}
#define ATTENTION_SIZES                        \
  ArgNames({"samples", "seq", "heads", "dim"}) \
      ->Args({8, 64, 4, 32})                   \
      ->Args({64, 64, 4, 64})                  \
      ->Args({4, 512, 4, 64})                  \
      ->UseRealTime()
BENCHMARK(attention_forward)->ATTENTION_SIZES;
BENCHMARK(attention_backward)->ATTENTION_SIZES;

// Queries against as many earlier keys, merged into a running result: one step of a ring, forward and back.
AttentionPartShape part_shape_of(const State& state) {
  AttentionPartShape shape = only_part(shape_of(state));
  shape.causal = false;
  shape.kv_stride = 2 * shape.kv_heads * shape.head_dim;
  return shape;
}

double part_flops(const AttentionPartShape& s, int products) {
  return 2.0 * products * static_cast<double>(s.samples * s.heads * s.head_dim * s.q_len * s.kv_len);
}

void attention_part(State& state) {
  Bench bench;
  const AttentionPartShape shape = part_shape_of(state);
  const int64_t rows = shape.samples * shape.q_len, width = shape.heads * shape.head_dim;
  const float* kv = bench.floats(rows * shape.kv_stride);
  const AttentionPart op{.shape = shape,
                         .q = bench.floats(rows * shape.q_stride),
                         .k = kv,
                         .v = kv + width,
                         .out = bench.floats(rows * width),
                         .lse = bench.floats(rows * shape.heads)};
  const Launch launch = bench.launch(bench.kernels.attention_part_workspace(shape));
  for (auto _ : state) bench.kernels.attention_part(op, launch);
  count_flops(state, part_flops(shape, 2));
}

void attention_part_backward(State& state) {
  Bench bench;
  const AttentionPartShape shape = part_shape_of(state);
  const int64_t rows = shape.samples * shape.q_len, width = shape.heads * shape.head_dim;
  const float* kv = bench.floats(rows * shape.kv_stride);
  AttentionPartBackward op{shape, bench.floats(rows * shape.q_stride), kv, kv + width};
  op.dout = bench.floats(rows * width);
  float* lse = bench.floats(rows * shape.heads);
  bench.kernels.fill_value({rows * shape.heads, lse, 10}, {});  // about that of these scores
  op.lse = lse;
  op.delta = bench.floats(rows * shape.heads);
  op.dq = bench.floats(rows * width);
  op.dk = bench.floats(rows * shape.kv_stride);
  op.dv = op.dk + width;
  op.dkv_stride = shape.kv_stride;
  op.first_q = op.first_kv = true;
  const Launch launch = bench.launch(bench.kernels.attention_part_workspace(shape));
  for (auto _ : state) bench.kernels.attention_part_backward(op, launch);
  count_flops(state, part_flops(shape, 5));
}
BENCHMARK(attention_part)->ATTENTION_SIZES;
BENCHMARK(attention_part_backward)->ATTENTION_SIZES;

void cross_entropy(State& state) {
  Bench bench;
  const int64_t rows = state.range(0), vocab = state.range(1);
  const StepInputs inputs;
  const StepState step;
  const std::vector<int32_t> labels(static_cast<size_t>(rows), 1);
  const CrossEntropy op{.rows = rows,
                        .vocab = vocab,
                        .logits = bench.floats(rows * vocab),
                        .labels = labels.data(),
                        .losses = bench.floats(rows),
                        .gradient = true,
                        .inputs = &inputs,
                        .state = &step};
  for (auto _ : state) bench.kernels.cross_entropy(op, {});
  count_bytes(state, 8 * rows * vocab);
}
BENCHMARK(cross_entropy)->Args({512, 256})->Args({4096, 256})->Args({512, 50257})->UseRealTime();

// One part of the vocabulary, both passes.
void vocab_cross_entropy(State& state) {
  Bench bench;
  const int64_t rows = state.range(0), vocab = state.range(1), parts = 2;
  const StepInputs inputs;
  const StepState step;
  const std::vector<int32_t> labels(static_cast<size_t>(rows), 1);
  float* stats = bench.floats(parts * rows * 3);
  const VocabStats first{.rows = rows,
                         .vocab = vocab,
                         .logits = bench.floats(rows * vocab),
                         .labels = labels.data(),
                         .stats = stats};
  bench.kernels.vocab_stats(first, {});
  std::copy(stats, stats + rows * 3, stats + rows * 3);
  const VocabCrossEntropy second{.rows = rows,
                                 .vocab = vocab,
                                 .parts = parts,
                                 .logits = bench.floats(rows * vocab),
                                 .labels = labels.data(),
                                 .stats = stats,
                                 .losses = bench.floats(rows),
                                 .gradient = true,
                                 .inputs = &inputs,
                                 .state = &step};
  for (auto _ : state) {
    bench.kernels.vocab_stats(first, {});
    bench.kernels.vocab_cross_entropy(second, {});
  }
  count_bytes(state, 12 * rows * vocab);
}
BENCHMARK(vocab_cross_entropy)->Args({512, 128})->Args({512, 25129})->UseRealTime();

void embedding_backward(State& state) {
  Bench bench;
  const int64_t rows = state.range(0), width = state.range(1);
  const std::vector<int32_t> tokens(static_cast<size_t>(rows), 3);
  EmbeddingBackward op{DType::f32, 1, rows, width, 256, tokens.data(), bench.floats(rows * width)};
  op.dtable = bench.floats(256 * width);
  for (auto _ : state) bench.kernels.embedding_backward(op, {});
  count_bytes(state, 12 * rows * width);
}
BENCHMARK(embedding_backward)->Args({4096, 256})->UseRealTime();

void adamw(State& state) {
  Bench bench;
  const int64_t count = state.range(0);
  std::vector<Chunk> chunks;
  for (int64_t begin = 0; begin < count; begin += kChunk)
    chunks.push_back({begin, static_cast<int32_t>(kChunk), 0.1f});
  const StepInputs inputs;
  StepState step;
  step.beta1_power = step.beta2_power = 0.5;
  Update op{.master = bench.floats(count),
            .gradient = bench.floats(count),
            .m = bench.floats(count),
            .v = bench.floats(count)};
  bench.kernels.fill_value({.count = count, .values = static_cast<float*>(op.v), .value = 1}, {});
  op.chunks = chunks.data();
  op.chunk_count = static_cast<int64_t>(chunks.size());
  op.inputs = &inputs;
  op.state = &step;
  for (auto _ : state) bench.kernels.update(op, {});
  count_bytes(state, 28 * count);
}
BENCHMARK(adamw)->Arg(16 * kChunk)->Arg(256 * kChunk)->UseRealTime();

void dropout(State& state) {
  Bench bench;
  const int64_t count = state.range(0);
  const StepInputs inputs;
  const Dropout op{DType::f32, count, 0, bench.floats(count), bench.floats(count), 0.1f, 0, 0, &inputs};
  for (auto _ : state) bench.kernels.dropout(op, {});
  count_bytes(state, 8 * count);
}
BENCHMARK(dropout)->Arg(4096 * 256)->UseRealTime();

void fill_normal(State& state) {
  Bench bench;
  const int64_t count = state.range(0);
  const FillNormal op{count, bench.floats(count)};
  for (auto _ : state) bench.kernels.fill_normal(op, {});
  count_bytes(state, 4 * count);
}
BENCHMARK(fill_normal)->Arg(1 << 20)->UseRealTime();

void tree_sum(State& state) {
  Bench bench;
  TreeSum op{.count = state.range(0), .inputs = static_cast<int>(state.range(1))};
  for (int i = 0; i < op.inputs; ++i) {
    op.from[i] = bench.floats(op.count);
    op.merges[i] =
        static_cast<uint8_t>(__builtin_ctz(static_cast<unsigned>(i) + 1));  // a power of two: halves
  }
  op.out = bench.floats(op.count);
  for (auto _ : state) bench.kernels.tree_sum(op, {});
  count_bytes(state, 4 * op.count * (op.inputs + 1));
}
BENCHMARK(tree_sum)
    ->ArgNames({"count", "inputs"})
    ->ArgsProduct({{1 << 12, 1 << 22}, {1, 2, 4, 8, 16}})
    ->UseRealTime();

}  // namespace
}  // namespace lockstep::kernels

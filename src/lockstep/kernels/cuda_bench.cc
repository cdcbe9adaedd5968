// Speed of the operations that a GPU training step is made of, at the sizes of GPT-2 124M (32 x 1024) and of
// a Llama of 1B parameters (8 x 2048), in bf16: GB/s or TFLOP/s, and the share of this GPU's own copy and
// large square product, measured first. Nothing runs where there is no GPU.
//
//     kernels_bench --benchmark_filter=cuda
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/device/device.h"
#include "lockstep/kernels/table.h"

namespace lockstep::kernels {
namespace {

using benchmark::State;
using device::DType;

constexpr DType kType = DType::bf16;
constexpr int64_t kElement = 2;

class Gpu {
 public:
  Gpu()
      : device_(device::open({device::Kind::cuda, 0})),
        table_(kernels_for(device::Kind::cuda)),
        stream_(device_->create_stream()),
        begin_(device_->create_event()),
        end_(device_->create_event()) {}

  const Kernels& kernels() const { return table_; }

  // Memory of ordinary numbers, until forget().
  void* halves(int64_t count) {
    float* wide = floats(count);
    void* narrow = bytes(count * kElement);
    table_.cast({DType::f32, kType, count, wide, narrow}, launch(0));
    return narrow;
  }
  float* floats(int64_t count, float mean = 0) {
    auto* values = static_cast<float*>(bytes(count * 4));
    table_.fill_normal({.count = count, .values = values, .mean = mean, .stream = owned_.size()}, launch(0));
    return values;
  }
  int32_t* numbers(int64_t count, int32_t below) {
    std::vector<int32_t> host(static_cast<size_t>(count));
    for (size_t i = 0; i < host.size(); ++i)
      host[i] = static_cast<int32_t>(i * 2654435761u % static_cast<uint32_t>(below));
    return upload(host);
  }
  template <class T>
  T* upload(const std::vector<T>& host) {
    auto* there = static_cast<T*>(bytes(static_cast<int64_t>(host.size() * sizeof(T))));
    device_->copy(there, host.data(), static_cast<int64_t>(host.size() * sizeof(T)),
                  device::CopyKind::host_to_device, stream_);
    device_->synchronize(stream_);
    return there;
  }
  void* bytes(int64_t count) {
    owned_.push_back(device_->allocate(count));
    return owned_.back();
  }
  Launch launch(int64_t workspace) {
    return {stream_, workspace > 0 ? bytes(workspace) : nullptr, workspace};
  }
  void forget() {
    device_->synchronize(stream_);
    for (void* memory : owned_) device_->free(memory);
    owned_.clear();
  }
  void copy(void* to, const void* from, int64_t count) {
    device_->copy(to, from, count, device::CopyKind::device_to_device, stream_);
  }
  double seconds(const std::function<void()>& call) {
    device_->record(begin_, stream_);
    call();
    device_->record(end_, stream_);
    device_->synchronize(stream_);
    return device_->milliseconds_between(begin_, end_) / 1e3;
  }

 private:
  std::unique_ptr<device::Device> device_;
  const Kernels& table_;
  device::Stream stream_;
  device::Event begin_, end_;
  std::vector<void*> owned_;
};

// What one call does: bytes that must move, or the flops of products.
struct Work {
  double bytes = 0, flops = 0;
  std::function<void()> call;
};

struct Row {
  std::string name;
  std::function<Work(Gpu&)> make;
  std::string attention = {};  // by whom: LOCKSTEP_ATTENTION
  AttentionShape shape = {};   // of which
};

struct Shape {
  const char* model;
  NormKind norm;
  int64_t rows, width, ffn, vocab, samples, heads, kv_heads, parameters;
};
constexpr Shape kShapes[] = {{"124m", NormKind::layer, 32768, 768, 3072, 50304, 32, 12, 12, 124'000'000},
                             {"1b", NormKind::rms, 16384, 2048, 8192, 128256, 8, 32, 8, 1'236'000'000}};

Work norm_forward_work(Gpu& g, const Shape& s) {
  const int64_t count = s.rows * s.width;
  const bool layer = s.norm == NormKind::layer;
  NormForward op{.kind = s.norm, .type = kType, .rows = s.rows, .width = s.width};
  op.x = g.halves(count), op.residual = g.halves(count), op.sum = g.halves(count), op.y = g.halves(count);
  op.weight = g.halves(s.width), op.bias = layer ? g.halves(s.width) : nullptr;
  op.mean = layer ? g.floats(s.rows) : nullptr, op.rstd = g.floats(s.rows);
  return {.bytes = 4.0 * kElement * static_cast<double>(count),
          .call = [&g, op] { g.kernels().norm_forward(op, g.launch(0)); }};
}

Work norm_backward_work(Gpu& g, const Shape& s) {
  const int64_t count = s.rows * s.width, parts = row_parts(s.rows);
  const bool layer = s.norm == NormKind::layer;
  NormBackward op{.kind = s.norm, .type = kType, .rows = s.rows, .width = s.width};
  op.dy = g.halves(count), op.sum = g.halves(count), op.dresidual = g.halves(count),
  op.dsum = g.halves(count);
  op.weight = g.halves(s.width), op.mean = layer ? g.floats(s.rows) : nullptr, op.rstd = g.floats(s.rows);
  op.partial_dweight = g.floats(parts * s.width),
  op.partial_dbias = layer ? g.floats(parts * s.width) : nullptr;
  return {.bytes = 4.0 * kElement * static_cast<double>(count),
          .call = [&g, op] { g.kernels().norm_backward(op, g.launch(0)); }};
}

Work bias_work(Gpu& g, const Shape& s) {
  const BiasBackward op{kType, s.rows, s.ffn, g.halves(s.rows * s.ffn), g.floats(s.ffn)};
  const Launch launch = g.launch(bias_backward_workspace(s.rows, s.ffn));
  return {.bytes = 1.0 * kElement * static_cast<double>(s.rows * s.ffn),
          .call = [&g, op, launch] { g.kernels().bias_backward(op, launch); }};
}

Work activation_work(Gpu& g, const Shape& s, bool backward) {
  const int64_t count = s.rows * s.ffn;
  const double one = kElement * static_cast<double>(count);
  if (s.norm == NormKind::layer) {
    void* x = g.halves(count);
    void* y = g.halves(count);
    if (!backward)
      return {.bytes = 2 * one, .call = [&g, count, x, y] {
                g.kernels().activate({ActivationKind::gelu_tanh, kType, count, x, y}, g.launch(0));
              }};
    return {.bytes = 3 * one, .call = [&g, count, x, y] {
              g.kernels().activate_backward({ActivationKind::gelu_tanh, kType, count, x, y, y}, g.launch(0));
            }};
  }
  void* gate_up = g.halves(2 * count);
  void* y = g.halves(count);
  if (!backward)
    return {.bytes = 3 * one, .call = [&g, s, gate_up, y] {
              g.kernels().glu({ActivationKind::silu, kType, s.rows, s.ffn, gate_up, y}, g.launch(0));
            }};
  void* dgate_up = g.halves(2 * count);
  return {.bytes = 5 * one, .call = [&g, s, gate_up, y, dgate_up] {
            g.kernels().glu_backward({ActivationKind::silu, kType, s.rows, s.ffn, gate_up, y, dgate_up},
                                     g.launch(0));
          }};
}

AttentionShape attention_of(const Shape& s) {
  return {kType, s.samples, s.rows / s.samples, s.heads, s.kv_heads, s.width / s.heads};
}

Work rope_work(Gpu& g, const Shape& s) {
  const AttentionShape shape = attention_of(s);
  const Rope op{shape, g.halves(shape.rows() * shape.qkv_width()), g.floats(shape.seq_len * shape.head_dim)};
  return {.bytes = 2.0 * kElement * static_cast<double>(s.rows * (s.heads + s.kv_heads) * shape.head_dim),
          .call = [&g, op] { g.kernels().rope(op, g.launch(0)); }};
}

Work attention_work(Gpu& g, const AttentionShape& shape, bool backward) {
  const int64_t out = shape.rows() * shape.heads * shape.head_dim, qkv = shape.rows() * shape.qkv_width();
  const AttentionForward forward{shape, g.halves(qkv), g.halves(out), g.floats(shape.rows() * shape.heads)};
  const Launch launch = g.launch(g.kernels().attention_workspace(shape));
  const double product =
      static_cast<double>(out) * static_cast<double>(shape.seq_len + 1);  // of the causal half
  if (!backward)
    return {.flops = 2 * product,
            .call = [&g, forward, launch] { g.kernels().attention_forward(forward, launch); }};
  g.kernels().attention_forward(forward, launch);
  const AttentionBackward op{shape, forward.qkv, forward.out, g.halves(out), forward.lse, g.halves(qkv)};
  return {.flops = 5 * product, .call = [&g, op, launch] { g.kernels().attention_backward(op, launch); }};
}

// Queries against as many keys of another chunk, merged into what is there: one step of a ring.
Work attention_part_work(Gpu& g, const Shape& s, bool backward) {
  const AttentionShape whole = attention_of(s);
  AttentionPartShape shape = only_part(whole);
  shape.causal = false;
  const int64_t width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
  const int64_t out = whole.rows() * width;
  shape.kv_stride = 2 * kv_width;
  const void* q = g.halves(whole.rows() * shape.q_stride);
  const auto* k = static_cast<const char*>(g.halves(whole.rows() * shape.kv_stride));
  const void* v = k + kv_width * kElement;
  float* lse = g.floats(whole.rows() * shape.heads);
  const Launch launch = g.launch(g.kernels().attention_part_workspace(shape));
  const double product = 2.0 * static_cast<double>(out) * static_cast<double>(shape.kv_len);
  if (!backward) {
    const AttentionPart op{shape, q, k, v, g.floats(out), lse};
    return {.flops = 2 * product, .call = [&g, op, launch] { g.kernels().attention_part(op, launch); }};
  }
  float* dk = g.floats(whole.rows() * shape.kv_stride);
  const AttentionPartBackward op{.shape = shape,
                                 .q = q,
                                 .k = k,
                                 .v = v,
                                 .out = g.halves(out),
                                 .dout = g.halves(out),
                                 .lse = lse,
                                 .delta = g.floats(whole.rows() * shape.heads),
                                 .dq = g.floats(out),
                                 .dk = dk,
                                 .dv = dk + kv_width,
                                 .dkv_stride = shape.kv_stride};
  return {.flops = 5 * product,
          .call = [&g, op, launch] { g.kernels().attention_part_backward(op, launch); }};
}

Work loss_work(Gpu& g, const Shape& s) {
  constexpr int64_t kRows = 4096;
  const CrossEntropy op{.type = kType,
                        .rows = kRows,
                        .vocab = s.vocab,
                        .logits = g.halves(kRows * s.vocab),
                        .labels = g.numbers(kRows, static_cast<int32_t>(s.vocab)),
                        .losses = g.floats(kRows),
                        .gradient = true,
                        .inputs = g.upload<StepInputs>({StepInputs{}}),
                        .state = g.upload<StepState>({StepState{}})};
  return {.bytes = 2.0 * kElement * static_cast<double>(kRows * s.vocab),
          .call = [&g, op] { g.kernels().cross_entropy(op, g.launch(0)); }};
}

Work embedding_work(Gpu& g, const Shape& s) {
  EmbeddingBackward op{kType, s.samples, s.rows / s.samples, s.width, s.vocab};
  op.tokens = g.numbers(s.rows, static_cast<int32_t>(s.vocab));
  op.dout = g.halves(s.rows * s.width), op.dtable = g.floats(s.vocab * s.width);
  const Launch launch = g.launch(g.kernels().embedding_workspace(s.rows, s.width));
  return {.bytes = static_cast<double>(s.rows * s.width * (kElement + 4) + s.vocab * s.width * 4),
          .call = [&g, op, launch] { g.kernels().embedding_backward(op, launch); }};
}

Work update_work(Gpu& g, const Shape& s) {
  const int64_t count = s.parameters / kChunk * kChunk;
  std::vector<Chunk> chunks;
  for (int64_t begin = 0; begin < count; begin += kChunk)
    chunks.push_back({begin, static_cast<int32_t>(kChunk), 0.1f});
  StepState state;
  state.beta1_power = state.beta2_power = 0.5;
  Update op{.master = g.floats(count),
            .gradient = g.floats(count),
            .m = g.floats(count),
            .v = g.floats(count, 100)};
  op.compute = g.bytes(count * kElement), op.compute_type = kType;
  op.chunks = g.upload(chunks), op.chunk_count = static_cast<int64_t>(chunks.size());
  op.inputs = g.upload<StepInputs>({StepInputs{}}), op.state = g.upload<StepState>({state});
  return {.bytes = 30.0 * static_cast<double>(count),
          .call = [&g, op] { g.kernels().update(op, g.launch(0)); }};
}

Work product_work(Gpu& g, int64_t m, int64_t n, int64_t k, bool weight_gradient) {
  Gemm op{.m = m, .n = n, .k = k, .in_type = kType, .out_type = weight_gradient ? DType::f32 : kType};
  op.trans_a = weight_gradient, op.trans_b = !weight_gradient;
  op.a = g.halves(m * k), op.b = g.halves(n * k), op.c = g.bytes(m * n * device::size_of(op.out_type));
  const Launch launch = g.launch(g.kernels().gemm_workspace(op));
  return {.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          .call = [&g, op, launch] { g.kernels().gemm(op, launch); }};
}

// Both copies of what the widest map reads; with `amax`, only how large it is.
Work fp8_cast_work(Gpu& g, const Shape& s, Fp8Scaling scaling, bool amax) {
  const int64_t rows = s.rows, columns = s.ffn, count = rows * columns;
  const void* x = g.halves(count);
  float* largest = g.floats(fp8_amax_count(scaling, rows, columns) + 64);
  const Fp8Amax find{scaling, rows, columns, x, largest};
  if (amax)
    return {.bytes = 2.0 * static_cast<double>(count),
            .call = [&g, find] { g.kernels().fp8_amax(find, g.launch(0)); }};
  Fp8Cast op{.scaling = scaling, .rows = rows, .columns = columns, .x = x, .amax = largest};
  op.straight = {g.bytes(count), g.floats(fp8_scale_count(scaling, rows, columns))};
  op.transposed = {g.bytes(count), g.floats(fp8_scale_count(scaling, columns, rows))};
  g.kernels().fp8_amax(find, g.launch(0));
  return {.bytes = 4.0 * static_cast<double>(count),
          .call = [&g, op] { g.kernels().fp8_cast(op, g.launch(0)); }};
}

Fp8Operand fp8_operand(Gpu& g, Fp8 format, Fp8Scaling scaling, int64_t rows, int64_t columns) {
  const void* x = g.halves(rows * columns);
  float* amax = g.floats(fp8_amax_count(scaling, rows, columns) + 64);
  const Fp8Copy copy{g.bytes(rows * columns), g.floats(fp8_scale_count(scaling, rows, columns))};
  g.kernels().fp8_amax({scaling, rows, columns, x, amax}, g.launch(0));
  g.kernels().fp8_cast({.format = format,
                        .scaling = scaling,
                        .rows = rows,
                        .columns = columns,
                        .x = x,
                        .amax = amax,
                        .straight = copy},
                       g.launch(0));
  return {format, scaling, copy.data, copy.scales};
}

// `weights`: B holds some, so that blocks are squares there; else the product is a weight's gradient.
Work fp8_product_work(Gpu& g, int64_t m, int64_t n, int64_t k, Fp8Scaling scaling, bool fast, bool weights) {
  const Fp8Scaling of_b = weights && scaling == Fp8Scaling::block ? Fp8Scaling::square : scaling;
  Fp8Gemm op{.m = m, .n = n, .k = k, .out_type = weights ? kType : DType::f32, .fast_sum = fast};
  op.a = fp8_operand(g, weights ? Fp8::e4m3 : Fp8::e5m2, scaling, m, k);
  op.b = fp8_operand(g, Fp8::e4m3, of_b, n, k);
  op.c = g.bytes(m * n * device::size_of(op.out_type));
  const Launch launch = g.launch(g.kernels().fp8_gemm_workspace(op));
  return {.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
          .call = [&g, op, launch] { g.kernels().fp8_gemm(op, launch); }};
}

std::vector<Row> rows() {
  std::vector<Row> all;
  for (const Shape& s : kShapes) {
    const auto add = [&](const std::string& name, auto make) {
      all.push_back({std::string("cuda/") + s.model + "/" + name, make});
    };
    const bool gpt = s.norm == NormKind::layer;
    add("norm_forward", [s](Gpu& g) { return norm_forward_work(g, s); });
    add("norm_backward", [s](Gpu& g) { return norm_backward_work(g, s); });
    if (gpt) add("bias_backward", [s](Gpu& g) { return bias_work(g, s); });
    add(gpt ? "gelu" : "swiglu", [s](Gpu& g) { return activation_work(g, s, false); });
    add(gpt ? "gelu_backward" : "swiglu_backward", [s](Gpu& g) { return activation_work(g, s, true); });
    if (!gpt) add("rope", [s](Gpu& g) { return rope_work(g, s); });
    add("cross_entropy", [s](Gpu& g) { return loss_work(g, s); });
    add("embedding_backward", [s](Gpu& g) { return embedding_work(g, s); });
    add("adamw", [s](Gpu& g) { return update_work(g, s); });
    add("attention_forward", [s](Gpu& g) { return attention_work(g, attention_of(s), false); });
    add("attention_backward", [s](Gpu& g) { return attention_work(g, attention_of(s), true); });
    add("attention_part", [s](Gpu& g) { return attention_part_work(g, s, false); });
    add("attention_part_backward", [s](Gpu& g) { return attention_part_work(g, s, true); });
    add("product_up", [s](Gpu& g) { return product_work(g, s.rows, s.ffn, s.width, false); });
    add("product_down", [s](Gpu& g) { return product_work(g, s.rows, s.width, s.ffn, false); });
    add("product_out_gradient", [s](Gpu& g) { return product_work(g, s.width, s.width, s.rows, true); });
    for (const auto& [scaling, name] :
         {std::pair(Fp8Scaling::tensor, "tensor"), std::pair(Fp8Scaling::row, "row"),
          std::pair(Fp8Scaling::block, "block")}) {
      const std::string by = std::string("_by_") + name;
      if (fp8_amax_count(scaling, 1, 1) > 0)
        add("fp8_amax" + by, [s, scaling](Gpu& g) { return fp8_cast_work(g, s, scaling, true); });
      add("fp8_cast" + by, [s, scaling](Gpu& g) { return fp8_cast_work(g, s, scaling, false); });
      for (const bool fast : {true, false}) {
        const std::string sums = by + (fast ? "_fast_sum" : "");
        add("fp8_product_up" + sums, [s, scaling, fast](Gpu& g) {
          return fp8_product_work(g, s.rows, s.ffn, s.width, scaling, fast, true);
        });
        add("fp8_product_up_gradient" + sums, [s, scaling, fast](Gpu& g) {
          return fp8_product_work(g, s.ffn, s.width, s.rows, scaling, fast, false);
        });
      }
    }
  }
  return all;
}

// samples, heads, kv_heads, seq_len, head_dim: the rows of docs/measurements.md.
constexpr int64_t kAttentions[][5] = {{32, 12, 12, 1024, 64}, {8, 32, 8, 2048, 64},   {6, 24, 4, 4096, 64},
                                      {1, 32, 8, 16384, 64},  {1, 32, 8, 32768, 64},  {4, 24, 8, 4096, 128},
                                      {2, 32, 8, 8192, 128},  {1, 32, 8, 32768, 128}, {64, 12, 12, 512, 64},
                                      {16, 32, 8, 1024, 64},  {8, 12, 12, 4096, 64},  {32, 32, 8, 512, 128},
                                      {16, 32, 8, 1024, 128}, {8, 32, 8, 2048, 128},  {8, 16, 16, 2048, 128},
                                      {4, 32, 32, 2048, 96},  {2, 16, 8, 4096, 256},  {2, 40, 8, 4096, 128}};

// Each by everybody who takes it: FlashAttention, cuDNN.
std::vector<Row> attention_rows() {
  std::vector<Row> all;
  for (const auto& [samples, heads, kv_heads, seq_len, head_dim] : kAttentions) {
    const AttentionShape shape{kType, samples, seq_len, heads, kv_heads, head_dim};
    for (const char* engine : {"flash", "cudnn"}) {
      for (const bool backward : {false, true}) {
        all.push_back({.name = fmt::format("cuda/attention/{}x{}({})x{}x{}/{}/{}", samples, heads, kv_heads,
                                           seq_len, head_dim, backward ? "backward" : "forward", engine),
                       .make = [shape, backward](Gpu& g) { return attention_work(g, shape, backward); },
                       .attention = engine,
                       .shape = shape});
      }
    }
  }
  return all;
}

struct Ceiling {
  double bytes = 0, flops = 0;  // a second
};

Ceiling measure_ceiling(Gpu& g) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  void* from = g.bytes(kBytes);
  void* to = g.bytes(kBytes);
  const Work product = product_work(g, 8192, 8192, 8192, false);
  Ceiling ceiling;
  for (int i = 0; i < 10; ++i) {
    ceiling.bytes = std::max(ceiling.bytes, 2.0 * kBytes / g.seconds([&] { g.copy(to, from, kBytes); }));
    ceiling.flops = std::max(ceiling.flops, product.flops / g.seconds(product.call));
  }
  g.forget();
  return ceiling;
}

void run(State& state, Gpu& g, const Row& row, const Ceiling& ceiling) {
  const Work work = row.make(g);
  for (int i = 0; i < 3; ++i) g.seconds(work.call);
  for (auto _ : state) state.SetIterationTime(g.seconds(work.call));
  using benchmark::Counter;
  const bool moves = work.bytes > 0;
  const double each = moves ? work.bytes : work.flops;
  state.counters[moves ? "bytes/s" : "FLOP/s"] = Counter(each, Counter::kIsIterationInvariantRate);
  state.counters["of_ceiling"] =
      Counter(each / (moves ? ceiling.bytes : ceiling.flops), Counter::kIsIterationInvariantRate);
  g.forget();
}

void run_by(const std::string& attention, State& state, Gpu& g, const Row& row, const Ceiling& ceiling) {
  ::setenv("LOCKSTEP_ATTENTION", attention.c_str(), 1);
  if (g.kernels().attention_engine(row.shape).starts_with(attention)) {
    run(state, g, row, ceiling);
  } else {
    state.SkipWithError("not here, or not for this shape");
  }
  ::unsetenv("LOCKSTEP_ATTENTION");
}

// Registered when the program starts, if there is a GPU.
const bool registered = [] {
  if (device::cuda_availability().devices == 0) return false;
  const auto gpu = std::make_shared<Gpu>();
  const Ceiling ceiling = measure_ceiling(*gpu);
  std::vector<Row> all = rows();
  for (Row& row : attention_rows()) all.push_back(std::move(row));
  for (const Row& row : all) {
    benchmark::RegisterBenchmark(row.name.c_str(),
                                 [gpu, row, ceiling](State& state) {
                                   if (row.attention.empty()) return run(state, *gpu, row, ceiling);
                                   run_by(row.attention, state, *gpu, row, ceiling);
                                 })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.05);
  }
  return true;
}();

}  // namespace
}  // namespace lockstep::kernels

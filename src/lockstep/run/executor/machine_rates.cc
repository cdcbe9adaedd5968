#include "lockstep/run/executor/machine_rates.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/kernels/table.h"

namespace lockstep::run {
namespace {

using device::DType;

enum class Pass { forward, backward };

constexpr int kTimes = 40;

class Bench {
 public:
  explicit Bench(device::Device& device)
      : device_(device), kernels_(kernels::kernels_for(device.id().kind)), stream_(device.create_stream()) {}
  ~Bench() {
    for (void* memory : taken_) device_.free(memory);
    device_.destroy_stream(stream_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Each call works on other values, as a step does: what it reads is not in a cache. Seconds.
  double product(int64_t m, int64_t n, int64_t k, DType type, bool tf32) {
    kernels::Gemm gemm{.m = m, .n = n, .k = k, .in_type = type, .out_type = type, .trans_b = true};
    const int64_t element = device::size_of(type);
    gemm.a = values(m * k * element), gemm.b = values(n * k * element), gemm.c = values(m * n * element);
    const int64_t bytes = kernels_.gemm_workspace(gemm);
    const kernels::Launch launch{stream_, values(bytes), bytes, tf32};
    const double seconds = time_in_a_row([&] { kernels_.gemm(gemm, launch); });
    give_back();
    return seconds;
  }

  // The mean of the three products that training has of a map, where nothing that they touch is in a cache.
  double cold_product(int64_t m, int64_t n, int64_t k, DType type) {
    constexpr int64_t kCaches = int64_t{256} << 20;
    constexpr int kForms = 3;  // forward, gradient of what comes in, gradient of the weight
    const int64_t element = device::size_of(type);
    const int64_t sets = std::max<int64_t>(kForms, kCaches / ((m * k + n * k + m * n) * element));
    std::vector<kernels::Gemm> all;
    for (int64_t i = 0; i < sets; ++i) {
      kernels::Gemm gemm{.m = m, .n = n, .k = k, .in_type = type, .out_type = type};
      gemm.trans_a = i % kForms == 2, gemm.trans_b = i % kForms == 0;
      gemm.a = values(m * k * element), gemm.b = values(n * k * element), gemm.c = values(m * n * element);
      all.push_back(gemm);
    }
    size_t next = 0;
    const double seconds = time([&] {
      for (int i = 0; i < kForms; ++i) kernels_.gemm(all[next++ % all.size()], {stream_});
    });
    give_back();
    return seconds / kForms;
  }

  double attention(int64_t samples, int64_t length, int64_t heads, int64_t head, DType type, Pass pass) {
    const kernels::AttentionShape shape{type, samples, length, heads, heads, head};
    const int64_t element = device::size_of(type), wide = shape.rows() * shape.qkv_width() * element;
    const int64_t narrow = shape.rows() * heads * head * element, bytes = kernels_.attention_workspace(shape);
    void *qkv = values(wide), *out = values(narrow), *dout = values(narrow), *dqkv = values(wide);
    auto* lse = static_cast<float*>(values(samples * heads * length * 4));
    const kernels::Launch launch{stream_, values(bytes), bytes, true};
    const auto forward = [&] { kernels_.attention_forward({shape, qkv, out, lse}, launch); };
    forward();
    const double seconds = pass == Pass::backward ? time([&] {
      kernels_.attention_backward({shape, qkv, out, dout, lse, dqkv}, launch);
    })
                                                  : time(forward);
    give_back();
    return seconds;
  }

  double copy(int64_t bytes) {
    void *from = values(bytes), *to = values(bytes);
    const double seconds =
        time([&] { device_.copy(to, from, bytes, device::CopyKind::device_to_device, stream_); });
    give_back();
    return seconds;
  }

  double sum(int64_t count, DType type) {
    const int64_t bytes = count * device::size_of(type);
    void *a = values(bytes), *b = values(bytes), *out = values(bytes);
    const double seconds = time_in_a_row([&] { kernels_.add_edges({type, count, a, b, out}, {stream_}); });
    give_back();
    return seconds;
  }

 private:
  // Small random numbers would do; zeros make a GPU draw less power and run faster than it does in a step.
  void* values(int64_t bytes) {
    void* memory = device_.allocate(std::max<int64_t>(bytes, 256));
    taken_.push_back(memory);
    kernels_.fill_normal({.count = bytes / 4, .values = static_cast<float*>(memory)}, {stream_});
    return memory;
  }
  void give_back() {
    device_.synchronize(stream_);
    for (void* memory : taken_) device_.free(memory);
    taken_.clear();
  }

  // As a step has them: one behind the other in a graph, where the device has graphs. A call alone between
  // two events costs microseconds more than it does there, which a small model's many short kernels would add
  // up.
  template <class Call>
  double time_in_a_row(const Call& call) {
    constexpr int kInARow = 32;
    constexpr double kLong = 2e-4;  // beside this, those microseconds do not count
    const double alone = time(call);
    if (!device_.can_capture() || alone > kLong) return alone;
    device_.begin_capture(stream_);
    for (int i = 0; i < kInARow; ++i) call();
    const device::Graph graph = device_.end_capture(stream_);
    if (graph == nullptr) return alone;
    const double seconds = time([&] { device_.launch(graph, stream_); });
    device_.destroy_graph(graph);
    return seconds / kInARow;
  }

  template <class Call>
  double time(const Call& call) {
    const bool cpu = device_.id().kind == device::Kind::cpu;
    const device::Event begin = device_.create_event(), end = device_.create_event();
    std::vector<double> seconds;
    for (int i = 0; i < kTimes + 2; ++i) {
      const int64_t began = base::monotonic_ns();
      device_.record(begin, stream_);
      call();
      device_.record(end, stream_);
      device_.synchronize(stream_);
      if (i < 2) continue;  // warm
      seconds.push_back(cpu ? static_cast<double>(base::monotonic_ns() - began) / 1e9
                            : device_.milliseconds_between(begin, end) / 1e3);
    }
    device_.destroy_event(begin);
    device_.destroy_event(end);
    // A quarter of the way up: beside other work, the median is theirs too.
    std::nth_element(seconds.begin(), seconds.begin() + kTimes / 4, seconds.end());
    return seconds[kTimes / 4];
  }

  device::Device& device_;
  const kernels::Kernels& kernels_;
  device::Stream stream_;
  std::vector<void*> taken_;
};

// A line through two points: what each costs anyway, and the rate.
struct Line {
  double fixed = 0, per_second = 1;
};
Line line_through(double work_a, double seconds_a, double work_b, double seconds_b) {
  const double slope = std::max((seconds_b - seconds_a) / (work_b - work_a), 1e-18);
  return {std::clamp(seconds_a - slope * work_a, 0.0, seconds_a / 2), 1 / slope};
}

// Rates at two lengths: what very long ones reach, and the length at which half of that is.
plan::AttentionRate rate_through(double peak, double length_a, double rate_a, double length_b,
                                 double rate_b) {
  const double ratio = rate_b / rate_a;
  const double half =
      ratio <= 1 ? 0 : length_a * length_b * (ratio - 1) / std::max(length_b - ratio * length_a, 1.0);
  const double length = std::min(half, 4 * length_b);
  const double reached = rate_b * (length_b + length) / length_b / peak;
  return {.reached_64 = reached, .reached_128 = reached, .half_length = length};
}

plan::AttentionRate measure_attention(Bench& bench, double peak, DType type, bool cpu, Pass pass) {
  const int64_t heads = cpu ? 2 : 16, head = cpu ? 64 : 128;
  const double products = pass == Pass::backward ? 5 : 2;
  const auto rate = [&](int64_t samples, int64_t length) {
    const auto l = static_cast<double>(length);
    const double flops = products * static_cast<double>(samples * heads * head) * l * (l + 1);
    return flops / bench.attention(samples, length, heads, head, type, pass);
  };
  const int64_t a = cpu ? 128 : 1024, b = cpu ? 512 : 8192;
  return rate_through(peak, static_cast<double>(a), rate(16, a), static_cast<double>(b),
                      rate(cpu ? 4 : 2, b));
}

// Which tensor cores do not take. Its kernels are full at short lengths, so one is enough.
double fp32_attention_rate(Bench& bench, Pass pass) {
  constexpr int64_t kSamples = 8, kLength = 1024, kHeads = 16, kHead = 64;
  const double products = pass == Pass::backward ? 5 : 2;
  const double flops = products * static_cast<double>(kSamples * kHeads * kHead * kLength * (kLength + 1));
  return flops / bench.attention(kSamples, kLength, kHeads, kHead, DType::f32, pass);
}

// The share of a product's operands whose traffic nothing hides, on a processor: what one of a small model
// costs more than its arithmetic.
double measured_spill(Bench& bench, const plan::Machine& machine) {
  constexpr int64_t kRows = 256, kColumns = 1024, kSum = 256;
  constexpr double kFlops = 2.0 * kRows * kColumns * kSum;
  constexpr double kBytes = 4.0 * (kRows * kSum + kSum * kColumns + kRows * kColumns);
  const double cold = bench.cold_product(kRows, kColumns, kSum, DType::f32);
  const double computing = machine.ramp_seconds + kFlops / machine.flops_fp32;
  return std::clamp((cold - computing) / (kBytes / machine.memory_bytes_per_second), 0.0, 4.0);
}

}  // namespace

plan::Machine measure_machine(device::Device& device, const std::function<void(const std::string&)>& say) {
  const bool cpu = device.id().kind == device::Kind::cpu;
  const device::Properties properties = device.properties();
  plan::Machine machine = plan::this_machine(device.id().kind, properties, 1);
  Bench bench(device);
  const auto products = [&](DType type, bool tf32) {
    const int64_t rows = cpu ? 512 : 16384, small = cpu ? 128 : 1024, large = cpu ? 768 : 8192;
    const auto flops = [&](int64_t side) { return 2.0 * static_cast<double>(rows * side * side); };
    return line_through(flops(small), bench.product(rows, small, small, type, tf32), flops(large),
                        bench.product(rows, large, large, type, tf32));
  };
  say("products");
  const Line fp32 = products(DType::f32, false);
  machine.flops_fp32 = fp32.per_second, machine.reached_fp32 = machine.reached = 1;
  machine.ramp_seconds = fp32.fixed, machine.spill = 0;
  const DType half = properties.fast_bf16 || !properties.fast_fp16 ? DType::bf16 : DType::f16;
  const Line halves = products(half, false);
  machine.flops_half = halves.per_second;
  if (!cpu) machine.ramp_seconds = halves.fixed;
  say("memory");
  const int64_t bytes = int64_t{1} << (cpu ? 25 : 30);
  machine.memory_bytes_per_second = 2.0 * static_cast<double>(bytes) / bench.copy(bytes);
  const DType edge = cpu ? DType::f32 : half;
  const int64_t count = bytes / device::size_of(edge) / 2;
  const double passes = 3.0 * static_cast<double>(bytes / 2) / bench.sum(count, edge);
  machine.memory_reached = std::clamp(passes / machine.memory_bytes_per_second, 0.05, 1.0);
  if (cpu) machine.spill = measured_spill(bench, machine);
  machine.launch_seconds = std::min(bench.sum(64, edge), 1e-4);
  say("attention");
  const DType attends = cpu ? DType::f32 : half;
  machine.attention_forward = measure_attention(bench, machine.flops_half, attends, cpu, Pass::forward);
  machine.attention_backward = measure_attention(bench, machine.flops_half, attends, cpu, Pass::backward);
  machine.flops_tf32 = machine.attention_fp32_forward = machine.attention_fp32_backward = 0;
  if (!cpu) {
    const Line rounded = products(DType::f32, true);
    const double rate = std::max(rounded.per_second, fp32.per_second);  // older GPUs do not round
    machine.flops_tf32 = rate, machine.reached_tf32 = 1;
    machine.attention_fp32_forward = fp32_attention_rate(bench, Pass::forward) / machine.flops_fp32;
    machine.attention_fp32_backward = fp32_attention_rate(bench, Pass::backward) / machine.flops_fp32;
  }
  machine.measured = true;
  machine.error = 0.1;
  return machine;
}

}  // namespace lockstep::run

#include "lockstep/comm/bench_collectives.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/comm/engine.h"
#include "lockstep/comm/rank_sum.h"

namespace lockstep::comm {
namespace {

constexpr int kBatches = 5;  // the fastest counts: other work on the machine only adds
constexpr int64_t kFloat = 4;

struct Operation {
  const char* name;
  bool sums = false;
  bool divides = false;  // the size is that of all ranks' parts together
  double (*bus_factor)(double ranks);
};

constexpr double all_but_own(double n) { return (n - 1) / n; }
constexpr double once(double) { return 1.0; }

constexpr Operation kOperations[] = {
    {.name = "all_reduce", .sums = true, .bus_factor = [](double n) { return 2 * (n - 1) / n; }},
    {.name = "reduce_scatter", .sums = true, .divides = true, .bus_factor = all_but_own},
    {.name = "all_gather", .divides = true, .bus_factor = all_but_own},
    {.name = "broadcast", .bus_factor = once},
    {.name = "all_to_all", .divides = true, .bus_factor = all_but_own},
    {.name = "sendrecv", .bus_factor = once},
};

// Whole numbers whose sums over the ranks are exact.
float value_of(int rank, int64_t i) { return static_cast<float>((rank * 3 + i) % 31); }

// One engine on one rank: its group and two buffers in the memory it works on.
class Bench {
 public:
  Bench(const std::string& engine, GroupOptions options, int64_t bytes, double seconds, Store& store)
      : rank_(options.self),
        size_(static_cast<int>(options.ranks.size())),
        seconds_(seconds),
        arena_(make_shared_arena()) {
    const Engine* const row = find_engine(engine);
    if (row != nullptr && !row->carries_memory_of(device::Kind::cpu)) {
      const int gpus = std::max(device::cuda_availability().devices, 1);
      gpu_ = device::open(device::resolve("cuda", rank_ % gpus));
      options.device = gpu_.get();
    }
    options.name = "bench." + engine;
    resolve_engine(engine, options, store);  // says why when it does not fit
    group_ = make_group(engine, options, store, arena_.get());
    in_ = static_cast<float*>(allocate(bytes));
    out_ = static_cast<float*>(allocate(bytes));
    scratch_ = allocate(static_cast<int64_t>(sizeof(double)) * size_);
  }
  ~Bench() {
    for (void* memory : {static_cast<void*>(in_), static_cast<void*>(out_), scratch_}) {
      gpu_ ? gpu_->free(memory) : arena_->free(memory);
    }
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  BenchFigure measure(const Operation& operation, int64_t part, int64_t whole) {
    part_ = part;
    whole_ = whole;
    BenchFigure figure;
    figure.engine = group_->engine();
    figure.time_us = fastest_us([&] { call(operation); });
    figure.algbw = static_cast<double>(whole * kFloat) / figure.time_us * 1e-3;
    figure.busbw = figure.algbw * operation.bus_factor(size_);
    figure.wrong = wrong(operation);
    return figure;
  }

  // Where memory is shared: what reading all shares and writing one takes, without any waiting.
  double ideal_us() {
    const std::vector<std::vector<Tensor>> all(static_cast<size_t>(size_), {at(out_, whole_)});
    if (group_->staging_bytes(all) > 0) return 0;
    const auto views = group_->borrow(all, all, {});
    const int64_t begin = whole_ * rank_ / size_, end = whole_ * (rank_ + 1) / size_;
    std::vector<const void*> from;
    for (const auto& view : views) from.push_back(view[0].as<float>() + begin);
    void* to = out_ + begin;
    const double time =
        fastest_us([&] { sum_ranks(device::DType::f32, from.data(), size_, &to, 1, end - begin); });
    group_->give_back();
    return time;
  }

 private:
  void* allocate(int64_t bytes) { return gpu_ ? gpu_->allocate(bytes) : arena_->allocate(bytes); }
  void copy(void* to, const void* from, int64_t bytes, device::CopyKind kind) {
    if (!gpu_) return static_cast<void>(std::memcpy(to, from, static_cast<size_t>(bytes)));
    gpu_->copy(to, from, bytes, kind, nullptr);
    gpu_->synchronize(nullptr);
  }

  Tensor at(float* data, int64_t count) const { return {data, device::DType::f32, {count}}; }
  std::vector<Tensor> parts(float* data) const {
    std::vector<Tensor> all;
    for (int q = 0; q < size_; ++q) all.push_back(at(data + q * part_, part_));
    return all;
  }

  void call(const Operation& operation) {
    const std::string_view name = operation.name;
    if (name == "all_reduce") return group_->all_reduce(at(out_, whole_));
    if (name == "reduce_scatter") return group_->reduce_scatter(parts(in_), at(out_ + rank_ * part_, part_));
    if (name == "all_gather") return group_->all_gather(parts(out_));
    if (name == "broadcast") return group_->broadcast(at(out_, whole_), 0);
    if (name == "all_to_all") return group_->all_to_all(parts(in_), parts(out_));
    const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
    if (rank_ % 2 == 0) group_->send(at(in_, whole_), next);
    group_->recv(at(out_, whole_), before);
    if (rank_ % 2 != 0) group_->send(at(in_, whole_), next);
  }

  // What out_[i] must be after one call on what wrong() writes; NaN where the operation leaves it alone.
  float expected(const Operation& operation, int64_t i) const {
    const std::string_view name = operation.name;
    if (operation.sums) {
      if (name == "reduce_scatter" && (i < rank_ * part_ || i >= (rank_ + 1) * part_)) return NAN;
      float sum = 0;
      for (int q = 0; q < size_; ++q) sum += value_of(q, i);
      return sum;
    }
    if (name == "broadcast") return value_of(0, i);
    if (name == "sendrecv") return value_of((rank_ + size_ - 1) % size_, i);
    const auto owner = static_cast<int>(i / part_);
    return name == "all_gather" ? value_of(owner, i) : value_of(owner, i % part_ + rank_ * part_);
  }

  int64_t wrong(const Operation& operation) {
    std::vector<float> values(static_cast<size_t>(whole_));
    for (int64_t i = 0; i < whole_; ++i) values[static_cast<size_t>(i)] = value_of(rank_, i);
    copy(in_, values.data(), whole_ * kFloat, device::CopyKind::host_to_device);
    copy(out_, values.data(), whole_ * kFloat, device::CopyKind::host_to_device);
    group_->barrier();  // nobody writes into a peer that is still writing itself
    call(operation);
    copy(values.data(), out_, whole_ * kFloat, device::CopyKind::device_to_host);
    int64_t count = 0;
    for (int64_t i = 0; i < whole_; ++i) {
      const float right = expected(operation, i);
      count += !std::isnan(right) && values[static_cast<size_t>(i)] != right;
    }
    const std::vector<double> all = gather(static_cast<double>(count));
    return static_cast<int64_t>(std::accumulate(all.begin(), all.end(), 0.0));
  }

  // One number of every rank.
  std::vector<double> gather(double value) {
    std::vector<double> all(static_cast<size_t>(size_), value);
    const auto bytes = static_cast<int64_t>(all.size() * sizeof(double));
    copy(scratch_, all.data(), bytes, device::CopyKind::host_to_device);
    std::vector<Tensor> slots;
    for (int q = 0; q < size_; ++q)
      slots.push_back({static_cast<double*>(scratch_) + q, device::DType::f64, {1}});
    group_->all_gather(slots);
    copy(all.data(), scratch_, bytes, device::CopyKind::device_to_host);
    return all;
  }

  template <class Call>
  double seconds_for(int64_t calls, Call call) {
    group_->barrier();
    const int64_t begin = base::monotonic_ns();
    for (int64_t i = 0; i < calls; ++i) call();
    if (gpu_) gpu_->synchronize(nullptr);
    const std::vector<double> all = gather(static_cast<double>(base::monotonic_ns() - begin) * 1e-9);
    return *std::max_element(all.begin(), all.end());
  }

  template <class Call>
  double fastest_us(Call call) {
    seconds_for(2, call);  // pages are mapped, connections warm
    const double one = seconds_for(3, call) / 3;
    const auto calls = static_cast<int64_t>(std::clamp(seconds_ / kBatches / one, 1.0, 20'000.0));
    double best = one;
    for (int batch = 0; batch < kBatches; ++batch) {
      best = std::min(best, seconds_for(calls, call) / static_cast<double>(calls));
    }
    return best * 1e6;
  }

  int rank_, size_;
  double seconds_;
  std::unique_ptr<SharedArena> arena_;
  std::unique_ptr<device::Device> gpu_;
  std::unique_ptr<Group> group_;
  float *in_ = nullptr, *out_ = nullptr;
  void* scratch_ = nullptr;
  int64_t part_ = 0, whole_ = 0;  // elements
};

void bind_to_core(int rank) {
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int skip = rank % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    CPU_SET(core, &own);
    break;
  }
  ::sched_setaffinity(0, sizeof(own), &own);  // advice: failure only makes figures less steady
}

int64_t parse_bytes(std::string_view text) {
  const int64_t value = base::take_number(text).value_or(-1);
  const int shift = text.empty() ? 0 : text == "K" ? 10 : text == "M" ? 20 : text == "G" ? 30 : -1;
  constexpr int64_t kMost = int64_t{1} << 40;
  if (shift < 0 || value <= 0 || value > kMost >> shift) return -1;
  return value << shift;
}

}  // namespace

std::vector<int64_t> parse_sizes(const std::string& text) {
  std::vector<std::string> words{""};
  for (const char letter : text)
    letter == ':' ? words.emplace_back() : (words.back() += letter, words.back());
  const int64_t least = parse_bytes(words[0]), most = words.size() > 1 ? parse_bytes(words[1]) : least;
  const int64_t factor = words.size() > 2 ? parse_bytes(words[2]) : 4;
  if (words.size() > 3 || least < kFloat || most < least || factor < 2) {
    throw base::ConfigError(
        524, fmt::format("sizes \"{}\" are not MIN:MAX or MIN:MAX:FACTOR, such as 8:32M or 1K:1G:2", text));
  }
  std::vector<int64_t> sizes;
  for (int64_t size = least; size < most; size *= factor) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

const std::vector<std::string>& bench_operations() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Operation& operation : kOperations) all.push_back(operation.name);
    return all;
  }();
  return names;
}

void bench_collectives(int rank, int size, Store& store, const BenchOptions& options,
                       const std::function<void(const BenchRow&)>& each) {
  if (options.bind) bind_to_core(rank);
  GroupOptions group;
  group.ranks.resize(static_cast<size_t>(size));
  std::iota(group.ranks.begin(), group.ranks.end(), 0);
  group.self = rank;
  group.timeout = Duration(60'000);
  group.interface = options.interface;
  const int64_t least = kFloat * size, most = *std::max_element(options.sizes.begin(), options.sizes.end());
  std::vector<std::unique_ptr<Bench>> benches;
  for (const std::string& engine : options.engines) {
    benches.push_back(std::make_unique<Bench>(engine, group, std::max(most, least), options.seconds, store));
  }
  for (const Operation& operation : kOperations) {
    const auto& wanted = options.operations;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), operation.name) == wanted.end()) continue;
    for (const int64_t bytes : options.sizes) {
      const int64_t pieces = operation.divides ? size : 1;
      BenchRow row;
      row.operation = operation.name;
      row.redop = operation.sums ? "sum" : "none";
      row.count = std::max(bytes, least) / kFloat / pieces;
      row.bytes = row.count * pieces * kFloat;
      for (const auto& bench : benches) {
        row.figures.push_back(bench->measure(operation, row.count, row.count * pieces));
        if (row.operation == "all_reduce" && row.ideal_us == 0) row.ideal_us = bench->ideal_us();
      }
      if (each) each(row);
    }
  }
}

}  // namespace lockstep::comm

#include "lockstep/kernels/cudnn/attention_plan.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/check.h"
#include "lockstep/kernels/cudnn/library.h"
#include "lockstep/kernels/workspace.h"

#pragma GCC visibility push(hidden)
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // plans are not written to disk
#include <cudnn_frontend.h>
#pragma GCC visibility pop

namespace lockstep::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;

constexpr int64_t kMostScoreBytes = int64_t{1} << 30;  // of the backward pass's scratch at once
constexpr int64_t kMostHeadDim = 256;
constexpr int kOldestVersion = 90500;

enum Uid : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

// What one call of cuDNN takes: some samples, and the query heads of some key heads.
struct Tile {
  int64_t samples = 1, kv_heads = 1;
};

int64_t largest_divisor(int64_t n, int64_t most) {
  int64_t d = std::min(n, most);
  while (n % d != 0) --d;
  return d;
}

int64_t score_bytes(const AttentionShape& s, int64_t samples, int64_t kv_heads) {
  const int64_t side = (s.seq_len + 63) / 64 * 64;
  return samples * (kv_heads * (s.heads / s.kv_heads)) * side * side * 2;
}

Tile tile_of(const AttentionShape& s) {
  const int64_t of_sample = score_bytes(s, 1, s.kv_heads);
  if (of_sample <= kMostScoreBytes) {
    return {largest_divisor(s.samples, kMostScoreBytes / of_sample), s.kv_heads};
  }
  const int64_t of_head = score_bytes(s, 1, 1);
  return {1, largest_divisor(s.kv_heads, std::max<int64_t>(1, kMostScoreBytes / of_head))};
}

using Dims = std::vector<int64_t>;

// Strides of a [samples, heads, seq_len, head_dim] view of rows that are `width` elements apart.
Dims row_strides(const AttentionShape& s, int64_t width) { return {s.seq_len * width, s.head_dim, width, 1}; }

class Graph {
 public:
  Graph(const AttentionShape& shape, const Tile& tile) : shape_(shape), tile_(tile) {
    graph_
        .set_io_data_type(shape.type == device::DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  void describe_forward() {
    auto [out, lse] = graph_.sdpa(input(kQ), input(kK), input(kV),
                                  fe::graph::SDPA_attributes()
                                      .set_name("attention")
                                      .set_causal_mask(true)
                                      .set_attn_scale(shape_.scale())
                                      .set_generate_stats(true));
    output(out, kOut);
    output(lse, kLse);
  }

  void describe_backward() {
    auto [dq, dk, dv] =
        graph_.sdpa_backward(input(kQ), input(kK), input(kV), input(kOut), input(kDout), input(kLse),
                             fe::graph::SDPA_backward_attributes()
                                 .set_name("attention_backward")
                                 .set_causal_mask(true)
                                 .set_attn_scale(shape_.scale())
                                 .set_deterministic_algorithm(true));
    output(dq, kDq);
    output(dk, kDk);
    output(dv, kDv);
  }

  // Empty, or why cuDNN cannot.
  std::string build(cudnnHandle_t handle) {
    auto problem = graph_.validate();
    if (problem.is_good()) problem = graph_.build_operation_graph(handle);
    if (problem.is_good()) problem = graph_.create_execution_plans({fe::HeurMode_t::A});
    if (problem.is_good()) problem = graph_.check_support(handle);
    if (problem.is_good()) problem = graph_.build_plans(handle);
    if (problem.is_bad()) return problem.get_message();
    workspace_ = graph_.get_workspace_size();
    return "";
  }

  int64_t workspace() const { return workspace_; }

  void run(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& at, void* workspace) const {
    auto problem = graph_.execute(handle, at, workspace);
    if (problem.is_bad()) {
      throw base::IoError(433, fmt::format("cuDNN could not run attention ({}); update the NVIDIA driver, or "
                                           "set LOCKSTEP_ATTENTION=own to do without cuDNN",
                                           problem.get_message()));
    }
  }

 private:
  Dims sizes(int64_t uid) const {
    const bool of_keys = uid == kK || uid == kV || uid == kDk || uid == kDv;
    const int64_t heads = tile_.kv_heads * (of_keys ? 1 : shape_.heads / shape_.kv_heads);
    return {tile_.samples, heads, shape_.seq_len, uid == kLse ? 1 : shape_.head_dim};
  }
  Dims strides(int64_t uid) const {
    if (uid == kLse) return {shape_.heads * shape_.seq_len, shape_.seq_len, 1, 1};
    const bool of_out = uid == kOut || uid == kDout;
    return row_strides(shape_, of_out ? shape_.heads * shape_.head_dim : shape_.qkv_width());
  }
  std::shared_ptr<fe::graph::Tensor_attributes> input(int64_t uid) {
    auto tensor = fe::graph::Tensor_attributes().set_uid(uid).set_dim(sizes(uid)).set_stride(strides(uid));
    if (uid == kLse) tensor.set_data_type(fe::DataType_t::FLOAT);
    return graph_.tensor(tensor);
  }
  void output(const std::shared_ptr<fe::graph::Tensor_attributes>& tensor, int64_t uid) {
    tensor->set_output(true).set_uid(uid).set_dim(sizes(uid)).set_stride(strides(uid));
    if (uid == kLse) tensor->set_data_type(fe::DataType_t::FLOAT);
  }

  AttentionShape shape_;
  Tile tile_;
  fe::graph::Graph graph_;
  int64_t workspace_ = 0;
};

// One GPU's handle. A handle has one stream at a time, so a call holds the lock while it enqueues.
struct OfDevice {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  bool start() { return handle != nullptr || cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS; }
};

class Plan final : public CudnnAttention {
 public:
  Plan(const AttentionShape& shape, OfDevice& device)
      : shape_(shape),
        whole_{shape.samples, shape.kv_heads},
        tile_(tile_of(shape)),
        device_(device),
        forward_(shape, whole_),
        backward_(shape, tile_) {}

  std::string build() {
    forward_.describe_forward();
    backward_.describe_backward();
    std::string why_not = forward_.build(device_.handle);
    return why_not.empty() ? backward_.build(device_.handle) : why_not;
  }

  std::string name() const override { return "cudnn " + cudnn_state().version; }
  int64_t workspace_bytes() const override { return std::max(forward_.workspace(), backward_.workspace()); }

  void forward(const AttentionForward& op, const Launch& launch) const override {
    const Sources from{op.qkv, op.out, op.lse};
    over_tiles(whole_, launch, [&](int64_t sample, int64_t kv_head) {
      auto at = places(from, sample, kv_head);
      forward_.run(device_.handle, at, launch.workspace);
    });
  }

  void backward(const AttentionBackward& op, const Launch& launch) const override {
    const Sources from{op.qkv, op.out, op.lse};
    over_tiles(tile_, launch, [&](int64_t sample, int64_t kv_head) {
      auto at = places(from, sample, kv_head);
      at[kDout] = out_at(op.dout, sample, kv_head);
      at[kDq] = qkv_at(op.dqkv, sample, kv_head * group());
      at[kDk] = qkv_at(op.dqkv, sample, shape_.heads + kv_head);
      at[kDv] = qkv_at(op.dqkv, sample, shape_.heads + shape_.kv_heads + kv_head);
      backward_.run(device_.handle, at, launch.workspace);
    });
  }

 private:
  struct Sources {
    const void* qkv;
    const void* out;
    const float* lse;
  };

  int64_t group() const { return shape_.heads / shape_.kv_heads; }
  // cuDNN takes what it only reads without const as well.
  void* at(const void* base, int64_t element) const {
    return const_cast<char*>(static_cast<const char*>(base)) + element * device::size_of(shape_.type);
  }
  void* qkv_at(const void* base, int64_t sample, int64_t head) const {
    return at(base, sample * shape_.seq_len * shape_.qkv_width() + head * shape_.head_dim);
  }
  void* out_at(const void* base, int64_t sample, int64_t kv_head) const {
    return at(base, (sample * shape_.seq_len * shape_.heads + kv_head * group()) * shape_.head_dim);
  }

  std::unordered_map<int64_t, void*> places(const Sources& from, int64_t sample, int64_t kv_head) const {
    return {
        {kQ, qkv_at(from.qkv, sample, kv_head * group())},
        {kK, qkv_at(from.qkv, sample, shape_.heads + kv_head)},
        {kV, qkv_at(from.qkv, sample, shape_.heads + shape_.kv_heads + kv_head)},
        {kOut, out_at(from.out, sample, kv_head)},
        {kLse, const_cast<float*>(from.lse) + (sample * shape_.heads + kv_head * group()) * shape_.seq_len}};
  }

  template <class Function>
  void over_tiles(const Tile& tile, const Launch& launch, Function function) const {
    require_workspace(launch, workspace_bytes(), "attention");
    const std::lock_guard lock(device_.mutex);
    cudnnSetStream(device_.handle, static_cast<cudaStream_t>(launch.stream));
    for (int64_t sample = 0; sample < shape_.samples; sample += tile.samples) {
      for (int64_t kv_head = 0; kv_head < shape_.kv_heads; kv_head += tile.kv_heads)
        function(sample, kv_head);
    }
  }

  AttentionShape shape_;
  Tile whole_, tile_;  // of the forward pass, which wants no scratch, and of the backward pass
  OfDevice& device_;
  Graph forward_, backward_;
};

// What we know without asking cuDNN.
std::string refusal(const AttentionShape& s) {
  if (!cudnn_state().here) return cudnn_state().why_not;
  if (cudnnGetVersion() < kOldestVersion) return "cuDNN " + cudnn_state().version + " is older than 9.5";
  if (s.type != device::DType::bf16 && s.type != device::DType::f16) return "fp32";
  if (s.head_dim % 8 != 0 || s.head_dim > kMostHeadDim) return fmt::format("heads of {}", s.head_dim);
  if (s.samples <= 0 || s.seq_len < 2) return "too short";
  if (score_bytes(s, 1, 1) > 4 * kMostScoreBytes) return fmt::format("{} tokens", s.seq_len);
  int index = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  return major >= 8 ? "" : "a GPU older than compute capability 8.0";
}

struct Key {
  int device;
  std::array<int64_t, 6> shape;
  auto operator<=>(const Key&) const = default;
};

struct Known {
  std::unique_ptr<Plan> plan;
  std::string why_not;
};

struct Cache {
  std::mutex mutex;
  std::map<int, OfDevice> devices;
  std::map<Key, Known> known;
};

// Kept until the process ends: the driver may be gone before destructors run.
Cache& cache() {
  static Cache& made = *new Cache;
  return made;
}

Known make(const AttentionShape& shape, OfDevice& device) {
  Known known{nullptr, refusal(shape)};
  if (!known.why_not.empty()) return known;
  if (!device.start()) {
    known.why_not = "cuDNN could not be started";
    return known;
  }
  auto plan = std::make_unique<Plan>(shape, device);
  known.why_not = plan->build();
  if (known.why_not.empty()) known.plan = std::move(plan);
  return known;
}

}  // namespace

void CudnnAttention::load() { static_cast<void>(cudnn_state()); }

void CudnnAttention::start() {
  if (!cudnn_state().here) return;
  int index = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  Cache& all = cache();
  const std::lock_guard lock(all.mutex);
  static_cast<void>(all.devices[index].start());
}

const CudnnAttention* CudnnAttention::find(const AttentionShape& s, std::string* why_not) {
  int index = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  const Key key{index, {static_cast<int64_t>(s.type), s.samples, s.seq_len, s.heads, s.kv_heads, s.head_dim}};
  Cache& all = cache();
  const std::lock_guard lock(all.mutex);
  auto found = all.known.find(key);
  if (found == all.known.end()) found = all.known.emplace(key, make(s, all.devices[index])).first;
  if (why_not != nullptr) *why_not = found->second.why_not;
  return found->second.plan.get();
}

}  // namespace lockstep::kernels::cuda

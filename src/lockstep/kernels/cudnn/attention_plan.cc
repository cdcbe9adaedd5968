#include "lockstep/kernels/cudnn/attention_plan.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

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

int64_t score_bytes(const AttentionPartShape& s, int64_t samples, int64_t kv_heads) {
  const auto side = [](int64_t tokens) { return (tokens + 63) / 64 * 64; };
  return samples * (kv_heads * (s.heads / s.kv_heads)) * side(s.q_len) * side(s.kv_len) * 2;
}

Tile tile_of(const AttentionPlanShape& shape) {
  const AttentionPartShape& s = shape.part;
  if (shape.pass == AttentionPass::forward) return {s.samples, s.kv_heads};  // which wants no scratch
  const int64_t of_sample = score_bytes(s, 1, s.kv_heads);
  if (of_sample <= kScoreBytes) {
    return {largest_divisor(s.samples, kScoreBytes / of_sample), s.kv_heads};
  }
  const int64_t of_head = score_bytes(s, 1, 1);
  return {1, largest_divisor(s.kv_heads, std::max<int64_t>(1, kScoreBytes / of_head))};
}

using Dims = std::vector<int64_t>;

// Tokens, heads, and elements between rows of an operand.
struct Rows {
  int64_t tokens, heads, stride;
};

Rows rows_of(const AttentionPlanShape& shape, int64_t uid) {
  const AttentionPartShape& s = shape.part;
  switch (uid) {
    case kQ:
      return {s.q_len, s.heads, s.q_stride};
    case kK:
    case kV:
      return {s.kv_len, s.kv_heads, s.kv_stride};
    case kDq:
      return {s.q_len, s.heads, shape.dq_stride};
    case kDk:
    case kDv:
      return {s.kv_len, s.kv_heads, shape.dkv_stride};
    default:
      return {s.q_len, s.heads, shape.out_stride};  // out, dout; and lse, without columns
  }
}

class Graph {
 public:
  Graph(const AttentionPlanShape& shape, const Tile& tile) : shape_(shape), tile_(tile) {
    graph_
        .set_io_data_type(shape.part.type == device::DType::bf16 ? fe::DataType_t::BFLOAT16
                                                                 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (shape.pass == AttentionPass::forward) {
      describe_forward();
    } else {
      describe_backward();
    }
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
                                           "set LOCKSTEP_ATTENTION=own to run without cuDNN",
                                           problem.get_message()));
    }
  }

 private:
  // The band keeps what lies less than the bound left of the diagonal, which is what a window is here.
  template <class Attributes>
  void set_window(Attributes& attributes) const {
    if (shape_.part.window_binds())
      attributes.set_diagonal_band_left_bound(static_cast<int>(shape_.part.scores.window));
  }

  void describe_forward() {
    auto attributes = fe::graph::SDPA_attributes()
                          .set_name("attention")
                          .set_causal_mask(shape_.part.causal)
                          .set_attn_scale(shape_.part.scale())
                          .set_generate_stats(true);
    set_window(attributes);
    auto [out, lse] = graph_.sdpa(input(kQ), input(kK), input(kV), attributes);
    output(out, kOut);
    output(lse, kLse);
  }

  void describe_backward() {
    auto attributes = fe::graph::SDPA_backward_attributes()
                          .set_name("attention_backward")
                          .set_causal_mask(shape_.part.causal)
                          .set_attn_scale(shape_.part.scale())
                          .set_deterministic_algorithm(true);
    set_window(attributes);
    auto [dq, dk, dv] = graph_.sdpa_backward(input(kQ), input(kK), input(kV), input(kOut), input(kDout),
                                             input(kLse), attributes);
    output(dq, kDq);
    output(dk, kDk);
    output(dv, kDv);
  }

  // Of a [samples, heads, tokens, head_dim] view.
  Dims sizes(int64_t uid) const {
    const Rows rows = rows_of(shape_, uid);
    const int64_t heads = tile_.kv_heads * (rows.heads / shape_.part.kv_heads);
    return {tile_.samples, heads, rows.tokens, uid == kLse ? 1 : shape_.part.head_dim};
  }
  Dims strides(int64_t uid) const {
    const Rows rows = rows_of(shape_, uid);
    if (uid == kLse) return {rows.heads * shape_.lse_stride, shape_.lse_stride, 1, 1};
    return {rows.tokens * rows.stride, shape_.part.head_dim, rows.stride, 1};
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

  AttentionPlanShape shape_;
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

class Plan final : public AttentionPlan {
 public:
  Plan(const AttentionPlanShape& shape, OfDevice& device)
      : shape_(shape), tile_(tile_of(shape)), device_(device), graph_(shape, tile_) {}

  std::string build() { return graph_.build(device_.handle); }

  std::string name() const override { return "cudnn " + cudnn_state().version; }
  int64_t workspace_bytes() const override { return graph_.workspace(); }

  void run(const Operands& operands, const Launch& launch) const override {
    require_workspace(launch, workspace_bytes(), "attention");
    const auto all = by_uid(operands);
    const std::lock_guard lock(device_.mutex);
    cudnnSetStream(device_.handle, static_cast<cudaStream_t>(launch.stream));
    std::unordered_map<int64_t, void*> at;
    for (int64_t sample = 0; sample < shape_.part.samples; sample += tile_.samples) {
      for (int64_t kv_head = 0; kv_head < shape_.part.kv_heads; kv_head += tile_.kv_heads) {
        // cuDNN takes what it only reads without const as well.
        for (const auto& [uid, first] : all)
          at[uid] = const_cast<char*>(static_cast<const char*>(first)) + offset(uid, sample, kv_head);
        graph_.run(device_.handle, at, launch.workspace);
      }
    }
  }

 private:
  std::vector<std::pair<int64_t, const void*>> by_uid(const Operands& o) const {
    std::vector<std::pair<int64_t, const void*>> all = {
        {kQ, o.q}, {kK, o.k}, {kV, o.v}, {kOut, o.out}, {kLse, o.lse}};
    if (shape_.pass == AttentionPass::backward)
      all.insert(all.end(), {{kDout, o.dout}, {kDq, o.dq}, {kDk, o.dk}, {kDv, o.dv}});
    return all;
  }

  // Where a tile begins in an operand, in bytes.
  int64_t offset(int64_t uid, int64_t sample, int64_t kv_head) const {
    const Rows rows = rows_of(shape_, uid);
    const int64_t head = kv_head * (rows.heads / shape_.part.kv_heads);
    if (uid == kLse)
      return (sample * rows.heads + head) * shape_.lse_stride * static_cast<int64_t>(sizeof(float));
    return (sample * rows.tokens * rows.stride + head * shape_.part.head_dim) *
           device::size_of(shape_.part.type);
  }

  AttentionPlanShape shape_;
  Tile tile_;
  OfDevice& device_;
  Graph graph_;
};

// What we know without asking cuDNN.
std::string refusal(const AttentionPlanShape& shape) {
  const AttentionPartShape& s = shape.part;
  if (!cudnn_state().here) return cudnn_state().why_not;
  if (cudnnGetVersion() < kOldestVersion) return "cuDNN " + cudnn_state().version + " is older than 9.5";
  if (s.type != device::DType::bf16 && s.type != device::DType::f16) return "fp32";
  if (s.head_dim % 8 != 0 || s.head_dim > kMostHeadDim) return fmt::format("heads of {}", s.head_dim);
  if (s.scores.softcap > 0) return "a soft cap";
  if (s.window_binds() && !s.causal) return "a window that reaches into another part";
  if (s.samples <= 0 || std::min(s.q_len, s.kv_len) < 2) return "too short";
  if (shape.pass == AttentionPass::backward && score_bytes(s, 1, 1) > kMostScoreBytes)
    return fmt::format("{} tokens", std::max(s.q_len, s.kv_len));
  int index = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  return major >= 8 ? "" : "a GPU older than compute capability 8.0";
}

struct Known {
  std::unique_ptr<Plan> plan;
  std::string why_not;
};

struct Cache {
  std::mutex mutex;
  std::map<int, OfDevice> devices;
  std::map<std::pair<int, AttentionPlanShape>, Known> known;  // by GPU
};

// Kept until the process ends: the driver may be gone before destructors run.
Cache& cache() {
  static Cache& made = *new Cache;
  return made;
}

Known make(const AttentionPlanShape& shape, OfDevice& device) {
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

const AttentionPlan* CudnnAttention::find(const AttentionPlanShape& shape, std::string* why_not) {
  int index = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  const std::pair key(index, shape);
  Cache& all = cache();
  const std::lock_guard lock(all.mutex);
  auto found = all.known.find(key);
  if (found == all.known.end()) found = all.known.emplace(key, make(shape, all.devices[index])).first;
  if (why_not != nullptr) *why_not = found->second.why_not;
  return found->second.plan.get();
}

}  // namespace lockstep::kernels::cuda

// Attention on CUDA: cuDNN where it takes the shape, our own kernels everywhere else. The choice is a
// function of the shape, the GPU and cuDNN's version, and stands in the numerics record.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/kernels/attention_merge.cuh"
#include "lockstep/kernels/attention_own.cuh"
#include "lockstep/kernels/cudnn/attention_plan.h"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::cuda {
namespace {

// LOCKSTEP_ATTENTION=own does without cuDNN: for tests, and for a cuDNN that misbehaves.
const CudnnAttention* chosen(const CudnnShape& shape) {
  const char* wish = std::getenv("LOCKSTEP_ATTENTION");
  if (wish != nullptr && std::strcmp(wish, "own") == 0) return nullptr;
  return CudnnAttention::find(shape);
}

const CudnnAttention* chosen(const AttentionShape& shape) {
  return chosen({only_part(shape), shape.qkv_width(), shape.qkv_width()});
}

int64_t q_width(const AttentionPartShape& s) { return s.heads * s.head_dim; }
int64_t kv_width(const AttentionPartShape& s) { return s.kv_heads * s.head_dim; }

const CudnnAttention* chosen(const AttentionPartShape& shape) {
  return chosen({shape, q_width(shape), 2 * kv_width(shape)});
}

// Columns of qkv, or of dqkv, from `column` on.
template <class Void>
Void* column_of(const AttentionShape& shape, Void* qkv, int64_t column) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  return static_cast<Byte*>(qkv) + column * device::size_of(shape.type);
}
int64_t first_key(const AttentionShape& s) { return s.heads * s.head_dim; }
int64_t first_value(const AttentionShape& s) { return (s.heads + s.kv_heads) * s.head_dim; }

// What a part gives on its own lies behind cuDNN's own scratch until it is merged.
struct PartScratch {
  explicit PartScratch(const AttentionPartShape& s, const CudnnAttention& plan) {
    const int64_t element = device::size_of(s.type);
    first = round_up(plan.workspace_bytes());
    second = first + round_up(s.samples * s.q_len * q_width(s) * element);
    const int64_t lse = s.samples * s.q_len * s.heads * static_cast<int64_t>(sizeof(float));
    const int64_t dkv = s.samples * s.kv_len * 2 * kv_width(s) * element;
    bytes = second + round_up(std::max(lse, dkv));
  }
  static int64_t round_up(int64_t n) { return divide_up(n, 256) * 256; }

  int64_t first = 0;   // out, or dq
  int64_t second = 0;  // lse, or dk and dv side by side
  int64_t bytes = 0;
};

int64_t part_bytes(const AttentionPartShape& shape) {
  const CudnnAttention* plan = chosen(shape);
  return plan != nullptr ? PartScratch(shape, *plan).bytes : 0;
}

}  // namespace

void attention_forward(const AttentionForward& op, const Launch& launch) {
  const Launcher run("attention_forward", launch);
  const CudnnAttention* plan = chosen(op.shape);
  if (plan == nullptr) return own_attention_forward(op, launch);
  plan->forward({.q = op.qkv,
                 .k = column_of(op.shape, op.qkv, first_key(op.shape)),
                 .v = column_of(op.shape, op.qkv, first_value(op.shape)),
                 .out = op.out,
                 .lse = op.lse},
                launch);
}

void attention_backward(const AttentionBackward& op, const Launch& launch) {
  const Launcher run("attention_backward", launch);
  const CudnnAttention* plan = chosen(op.shape);
  if (plan == nullptr) return own_attention_backward(op, launch);
  const int64_t k = first_key(op.shape), v = first_value(op.shape);
  plan->backward({.q = op.qkv,
                  .k = column_of(op.shape, op.qkv, k),
                  .v = column_of(op.shape, op.qkv, v),
                  .out = op.out,
                  .dout = op.dout,
                  .lse = op.lse,
                  .dq = op.dqkv,
                  .dk = column_of(op.shape, op.dqkv, k),
                  .dv = column_of(op.shape, op.dqkv, v)},
                 launch);
}

int64_t attention_workspace(const AttentionShape& shape) {
  const CudnnAttention* plan = chosen(shape);
  return plan != nullptr ? plan->workspace_bytes() : own_attention_workspace(shape);
}

void attention_part(const AttentionPart& op, const Launch& launch) {
  const Launcher run("attention_part", launch);
  require_valid(op.shape);
  const CudnnAttention* plan = chosen(op.shape);
  if (plan == nullptr) return own_attention_part(op, launch);
  const PartScratch scratch(op.shape, *plan);
  require_workspace(launch, scratch.bytes, "attention_part");
  char* const at = static_cast<char*>(launch.workspace);
  void* const out = at + scratch.first;
  auto* const lse = reinterpret_cast<float*>(at + scratch.second);
  plan->forward({.q = op.q, .k = op.k, .v = op.v, .out = out, .lse = lse}, launch);
  merge_part(op, out, lse, launch);
}

void attention_part_backward(const AttentionPartBackward& op, const Launch& launch) {
  const Launcher run("attention_part_backward", launch);
  require_valid(op.shape);
  const CudnnAttention* plan = chosen(op.shape);
  if (plan == nullptr) return own_attention_part_backward(op, launch);
  const PartScratch scratch(op.shape, *plan);
  require_workspace(launch, scratch.bytes, "attention_part_backward");
  char* const at = static_cast<char*>(launch.workspace);
  char* const dkv = at + scratch.second;
  plan->backward({.q = op.q,
                  .k = op.k,
                  .v = op.v,
                  .out = op.out,
                  .dout = op.dout,
                  .lse = op.lse,
                  .dq = at + scratch.first,
                  .dk = dkv,
                  .dv = dkv + kv_width(op.shape) * device::size_of(op.shape.type)},
                 launch);
  add_part(op, at + scratch.first, dkv, launch);
}

// A chunk meets its own keys causally and others whole.
int64_t attention_part_workspace(const AttentionPartShape& shape) {
  AttentionPartShape other = shape;
  other.causal = !shape.causal && shape.q_len == shape.kv_len;
  return std::max(part_bytes(shape), part_bytes(other));
}

std::string attention_engine(const AttentionShape& shape) {
  const CudnnAttention* plan = chosen(shape);
  return plan != nullptr ? plan->name() : "own";
}

std::string attention_part_engine(const AttentionPartShape& shape) {
  const CudnnAttention* plan = chosen(shape);
  return plan != nullptr ? plan->name() : "own";
}

}  // namespace lockstep::kernels::cuda

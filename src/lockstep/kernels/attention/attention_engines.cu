// Attention on CUDA: FlashAttention or cuDNN where they take the shape, our own kernels everywhere else. The
// choice is a function of the shape, the GPU and what set-up found, and stands in the numerics record.
#include <algorithm>
#include <cstdlib>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/kernels/attention/attention_choice.h"
#include "lockstep/kernels/attention/attention_merge.cuh"
#include "lockstep/kernels/attention/attention_own.cuh"
#include "lockstep/kernels/cudnn/attention_pieces.h"
#include "lockstep/kernels/flash/flash_attention.h"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t q_width(const AttentionPartShape& s) { return s.heads * s.head_dim; }
int64_t kv_width(const AttentionPartShape& s) { return s.kv_heads * s.head_dim; }
int64_t aligned(int64_t bytes) { return divide_up(bytes, 256) * 256; }

template <class Pointer>
Pointer at(void* memory, int64_t bytes) {
  return static_cast<Pointer>(static_cast<void*>(static_cast<char*>(memory) + bytes));
}

// LOCKSTEP_ATTENTION names who computes, where it can: flash, cudnn, or own, for tests and for a library that
// misbehaves. "pieces" is cuDNN that cuts short sequences as if they were long: for tests.
bool forced(const char* what) { return base::environment("LOCKSTEP_ATTENTION") == what; }
constexpr int64_t kTestChunk = 40;

// What computes the backward pass: `whole`, or `pieces`, or neither, which is our own kernels.
struct Backward {
  const AttentionPlan* whole = nullptr;
  std::unique_ptr<AttentionPieces> pieces;
};

const AttentionPlan* flash_of(const AttentionPlanShape& shape) {
  if (forced("cudnn") || forced("pieces")) return nullptr;
  return FlashAttention::find(shape);
}

AttentionPlanShape forward_shape(const AttentionPartShape& s) {
  return {.part = s, .out_stride = q_width(s), .lse_stride = s.q_len};
}

AttentionPlanShape backward_shape(const AttentionPartShape& s, int64_t dq_stride, int64_t dkv_stride) {
  return {.part = s,
          .pass = AttentionPass::backward,
          .out_stride = q_width(s),
          .lse_stride = s.q_len,
          .dq_stride = dq_stride,
          .dkv_stride = dkv_stride};
}

// Documents of packed samples: FlashAttention, or our own kernels, the same ones in both passes, because each
// keeps the log-sum-exp in its own order.
const AttentionPlan* of_documents(const AttentionPartShape& s, AttentionPass pass) {
  const AttentionPlan* forward = flash_of(forward_shape(s));
  const AttentionPlan* backward = flash_of(backward_shape(s, s.q_stride, s.kv_stride));
  if (forward == nullptr || backward == nullptr) return nullptr;
  return pass == AttentionPass::forward ? forward : backward;
}

// Chunks of packed samples: our own kernels, because neither library can be told where documents begin.
bool only_own(const AttentionPartShape& s) { return forced("own") || s.kept_apart; }

const AttentionPlan* forward_of(const AttentionPartShape& s) {
  if (only_own(s)) return nullptr;
  if (s.documents > 0) return of_documents(s, AttentionPass::forward);
  const AttentionPlanShape shape = forward_shape(s);
  const AttentionPlan* flash = flash_of(shape);
  if (flash != nullptr && (flash_forward_is_faster(s) || forced("flash"))) return flash;
  const AttentionPlan* cudnn = CudnnAttention::find(shape);
  return cudnn != nullptr ? cudnn : flash;
}

Backward backward_of(const AttentionPartShape& s, int64_t dq_stride, int64_t dkv_stride) {
  if (only_own(s)) return {};
  if (s.documents > 0) return {of_documents(s, AttentionPass::backward), nullptr};
  if (forced("pieces")) return {nullptr, AttentionPieces::find(s, kTestChunk)};
  const AttentionPlanShape shape = backward_shape(s, dq_stride, dkv_stride);
  const AttentionPlan* flash = flash_of(shape);
  if (flash != nullptr && (flash_backward_is_faster(s) || forced("flash"))) return {flash, nullptr};
  if (const AttentionPlan* cudnn = CudnnAttention::find(shape)) return {cudnn, nullptr};
  if (flash != nullptr) return {flash, nullptr};
  return {nullptr, AttentionPieces::find(s)};
}
Backward backward_of(const AttentionShape& s) {
  return backward_of(only_part(s), s.qkv_width(), s.qkv_width());
}
Backward backward_of(const AttentionPartShape& s) { return backward_of(s, q_width(s), 2 * kv_width(s)); }

std::string engine_of(const AttentionPlan* forward, const Backward& backward) {
  const std::string there = forward != nullptr ? forward->name() : "own";
  const std::string back = backward.whole != nullptr    ? backward.whole->name()
                           : backward.pieces != nullptr ? backward.pieces->name()
                                                        : "own";
  return there == back ? there : there + ", backward " + back;
}

// ---- whole sequences

// Elements of qkv before the keys, and before the values.
int64_t first_key(const AttentionShape& s) { return s.heads * s.head_dim; }
int64_t first_value(const AttentionShape& s) { return (s.heads + s.kv_heads) * s.head_dim; }

AttentionPartBackward as_part(const AttentionBackward& op) {
  const int64_t element = device::size_of(op.shape.type);
  const auto* qkv = static_cast<const char*>(op.qkv);
  return {.shape = only_part(op.shape),
          .q = qkv,
          .k = qkv + first_key(op.shape) * element,
          .v = qkv + first_value(op.shape) * element,
          .out = op.out,
          .dout = op.dout,
          .lse = op.lse};
}

// Gradients of one key head in fp32, behind the scratch of the pieces: dq, then dk and dv side by side.
struct HeadSums {
  HeadSums(const AttentionShape& s, const AttentionPieces& pieces)
      : group(s.heads / s.kv_heads),
        dq(aligned(pieces.workspace_bytes())),
        dkv(dq + aligned(s.seq_len * group * s.head_dim * kFloat)),
        bytes(dkv + aligned(s.seq_len * 2 * s.head_dim * kFloat)) {}
  int64_t group, dq, dkv, bytes;
};

void backward_in_pieces(const AttentionPieces& pieces, const AttentionBackward& op, const Launch& launch) {
  const AttentionShape& s = op.shape;
  const HeadSums scratch(s, pieces);
  require_workspace(launch, scratch.bytes, "attention_backward");
  const int64_t dim = s.head_dim, element = device::size_of(s.type);
  auto* dq = at<float*>(launch.workspace, scratch.dq);
  auto* dk = at<float*>(launch.workspace, scratch.dkv);
  const AttentionPieces::Sums sums{.dq = dq,
                                   .dk = dk,
                                   .dv = dk + dim,
                                   .dq_stride = scratch.group * dim,
                                   .dkv_stride = 2 * dim,
                                   .first_q = true,
                                   .first_kv = true};
  const AttentionPartBackward part = as_part(op);
  for (int64_t sample = 0; sample < s.samples; ++sample) {
    for (int64_t kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
      pieces.backward(part, sample, kv_head, sums, launch);
      const auto round = [&](const float* from, int64_t from_stride, int64_t width, int64_t column) {
        const int64_t first = sample * s.seq_len * s.qkv_width() + column;
        round_rows({.type = s.type,
                    .rows = s.seq_len,
                    .width = width,
                    .from = from,
                    .from_stride = from_stride,
                    .to = at<void*>(op.dqkv, first * element),
                    .to_stride = s.qkv_width()},
                   launch);
      };
      round(dq, sums.dq_stride, scratch.group * dim, kv_head * scratch.group * dim);
      round(sums.dk, sums.dkv_stride, dim, first_key(s) + kv_head * dim);
      round(sums.dv, sums.dkv_stride, dim, first_value(s) + kv_head * dim);
    }
  }
}

// ---- parts

// What a part gives on its own lies behind the plan's own scratch until it is merged.
struct PartScratch {
  PartScratch(const AttentionPartShape& s, const AttentionPlan& plan, int64_t second_bytes)
      : first(aligned(plan.workspace_bytes())),
        second(first + aligned(s.samples * s.q_len * q_width(s) * device::size_of(s.type))),
        bytes(second + aligned(second_bytes)) {}
  int64_t first;   // out, or dq
  int64_t second;  // lse, or dk and dv side by side
  int64_t bytes;
};

PartScratch forward_scratch(const AttentionPartShape& s, const AttentionPlan& plan) {
  return {s, plan, s.samples * s.q_len * s.heads * kFloat};
}
PartScratch backward_scratch(const AttentionPartShape& s, const AttentionPlan& plan) {
  return {s, plan, s.samples * s.kv_len * 2 * kv_width(s) * device::size_of(s.type)};
}

void backward_whole(const AttentionPlan& plan, const AttentionPartBackward& op, const Launch& launch) {
  const AttentionPartShape& s = op.shape;
  const PartScratch scratch = backward_scratch(s, plan);
  require_workspace(launch, scratch.bytes, "attention_part_backward");
  const int64_t dkv_stride = 2 * kv_width(s);
  void* const dq = at<void*>(launch.workspace, scratch.first);
  void* const dk = at<void*>(launch.workspace, scratch.second);
  void* const dv = at<void*>(dk, kv_width(s) * device::size_of(s.type));
  plan.run({.q = op.q,
            .k = op.k,
            .v = op.v,
            .out = op.out,
            .lse = op.lse,
            .dout = op.dout,
            .dq = dq,
            .dk = dk,
            .dv = dv},
           launch);
  add_rows({s.type, s.samples * s.q_len, q_width(s), dq, q_width(s), op.dq, q_width(s), op.first_q}, launch);
  for (const auto& [from, into] : {std::pair(dk, op.dk), std::pair(dv, op.dv)})
    add_rows({s.type, s.samples * s.kv_len, kv_width(s), from, dkv_stride, into, op.dkv_stride, op.first_kv},
             launch);
}

void backward_in_pieces(const AttentionPieces& pieces, const AttentionPartBackward& op,
                        const Launch& launch) {
  const AttentionPartShape& s = op.shape;
  const int64_t group = s.heads / s.kv_heads, dim = s.head_dim;
  for (int64_t sample = 0; sample < s.samples; ++sample) {
    for (int64_t kv_head = 0; kv_head < s.kv_heads; ++kv_head) {
      const int64_t dkv_at = sample * s.kv_len * op.dkv_stride + kv_head * dim;
      pieces.backward(op, sample, kv_head,
                      {.dq = op.dq + sample * s.q_len * q_width(s) + kv_head * group * dim,
                       .dk = op.dk + dkv_at,
                       .dv = op.dv + dkv_at,
                       .dq_stride = q_width(s),
                       .dkv_stride = op.dkv_stride,
                       .first_q = op.first_q,
                       .first_kv = op.first_kv},
                      launch);
    }
  }
}

int64_t part_bytes(const AttentionPartShape& shape) {
  const AttentionPlan* forward = forward_of(shape);
  const Backward backward = backward_of(shape);
  int64_t bytes = forward != nullptr ? forward_scratch(shape, *forward).bytes : 0;
  if (backward.whole != nullptr) bytes = std::max(bytes, backward_scratch(shape, *backward.whole).bytes);
  if (backward.pieces != nullptr) bytes = std::max(bytes, backward.pieces->workspace_bytes());
  return bytes;
}

}  // namespace

void attention_forward(const AttentionForward& op, const Launch& launch) {
  const Launcher run("attention_forward", launch);
  const AttentionShape& s = op.shape;
  const AttentionPlan* plan = forward_of(only_part(s));
  if (plan == nullptr) return own_attention_forward(op, launch);
  const auto* qkv = static_cast<const char*>(op.qkv);
  plan->run({.q = qkv,
             .k = qkv + first_key(s) * device::size_of(s.type),
             .v = qkv + first_value(s) * device::size_of(s.type),
             .out = op.out,
             .lse = op.lse,
             .offsets = op.documents.offsets},
            launch);
}

void attention_backward(const AttentionBackward& op, const Launch& launch) {
  const Launcher run("attention_backward", launch);
  const Backward by = backward_of(op.shape);
  if (by.pieces != nullptr) return backward_in_pieces(*by.pieces, op, launch);
  if (by.whole == nullptr) return own_attention_backward(op, launch);
  const AttentionPartBackward part = as_part(op);
  const int64_t element = device::size_of(op.shape.type);
  by.whole->run({.q = part.q,
                 .k = part.k,
                 .v = part.v,
                 .out = op.out,
                 .lse = op.lse,
                 .dout = op.dout,
                 .dq = op.dqkv,
                 .dk = at<void*>(op.dqkv, first_key(op.shape) * element),
                 .dv = at<void*>(op.dqkv, first_value(op.shape) * element),
                 .offsets = op.documents.offsets},
                launch);
}

int64_t attention_workspace(const AttentionShape& shape) {
  const AttentionPlan* forward = forward_of(only_part(shape));
  const Backward backward = backward_of(shape);
  const int64_t there = forward != nullptr ? forward->workspace_bytes() : 0;
  if (backward.whole != nullptr) return std::max(there, backward.whole->workspace_bytes());
  if (backward.pieces != nullptr) return std::max(there, HeadSums(shape, *backward.pieces).bytes);
  return std::max(there, own_attention_workspace(shape));
}

void attention_part(const AttentionPart& op, const Launch& launch) {
  const Launcher run("attention_part", launch);
  require_valid(op.shape);
  const AttentionPlan* plan = forward_of(op.shape);
  if (plan == nullptr) return own_attention_part(op, launch);
  const PartScratch scratch = forward_scratch(op.shape, *plan);
  require_workspace(launch, scratch.bytes, "attention_part");
  void* const out = at<void*>(launch.workspace, scratch.first);
  auto* const lse = at<float*>(launch.workspace, scratch.second);
  plan->run({.q = op.q, .k = op.k, .v = op.v, .out = out, .lse = lse}, launch);
  merge_part(op, out, lse, launch);
}

void attention_part_backward(const AttentionPartBackward& op, const Launch& launch) {
  const Launcher run("attention_part_backward", launch);
  require_valid(op.shape);
  const Backward by = backward_of(op.shape);
  if (by.whole != nullptr) return backward_whole(*by.whole, op, launch);
  if (by.pieces != nullptr) return backward_in_pieces(*by.pieces, op, launch);
  own_attention_part_backward(op, launch);
}

// A chunk meets its own keys causally and others whole, within the window or partly outside.
int64_t attention_part_workspace(const AttentionPartShape& shape) {
  AttentionPartShape other = shape;
  other.causal = !shape.causal && shape.q_len == shape.kv_len;
  other.distance = 0;
  AttentionPartShape near = shape.causal ? other : shape;
  near.scores.window = 0;
  return std::max({part_bytes(shape), part_bytes(other), part_bytes(near)});
}

std::string attention_engine(const AttentionShape& shape) {
  return engine_of(forward_of(only_part(shape)), backward_of(shape));
}

std::string attention_part_engine(const AttentionPartShape& shape) {
  return engine_of(forward_of(shape), backward_of(shape));
}

}  // namespace lockstep::kernels::cuda

#include "lockstep/kernels/cudnn/attention_pieces.h"

#include <algorithm>
#include <cmath>

#include "lockstep/kernels/attention/attention_merge.cuh"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kRows = 64;  // chunks are multiples of cuDNN's tiles

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// As many tokens as leave the scores of `heads` heads within scratch, in chunks of about one length.
int64_t chunk_of(int64_t tokens, int64_t heads) {
  const double scores = static_cast<double>(kMostScoreBytes) / 2 / static_cast<double>(heads);
  const int64_t most = std::max(kRows, static_cast<int64_t>(std::sqrt(scores)) / kRows * kRows);
  const int64_t chunks = (tokens + most - 1) / most;
  return round_up((tokens + chunks - 1) / chunks, kRows);
}

const void* offset(const void* values, int64_t elements, int64_t element) {
  return static_cast<const char*>(values) + elements * element;
}

}  // namespace

std::unique_ptr<AttentionPieces> AttentionPieces::find(const AttentionPartShape& shape, int64_t chunk) {
  if (shape.window_binds()) return nullptr;  // pairs of chunks would each have a window of their own
  std::unique_ptr<AttentionPieces> pieces(new AttentionPieces(shape));
  pieces->chunk_ = chunk > 0 ? chunk : chunk_of(std::max(shape.q_len, shape.kv_len), pieces->group());
  bool all = true;
  int64_t engine = 0;
  pieces->each_pair([&](const Run& queries, const Run& keys, bool, bool) {
    const AttentionPlan* plan = all ? pieces->plan(queries, keys) : nullptr;
    all = plan != nullptr;
    if (!all) return;
    engine = std::max(engine, plan->workspace_bytes());
    pieces->name_ = plan->name() + " in pieces";
  });
  if (!all) return nullptr;
  const int64_t element = device::size_of(shape.type);
  pieces->dq_at_ = round_up(engine, 256);
  pieces->dkv_at_ = pieces->dq_at_ + round_up(pieces->chunk_ * pieces->dq_width() * element, 256);
  pieces->workspace_ = pieces->dkv_at_ + round_up(pieces->chunk_ * 2 * shape.head_dim * element, 256);
  return pieces;
}

std::string AttentionPieces::name() const { return name_; }

std::vector<AttentionPieces::Run> AttentionPieces::runs_of(int64_t tokens) const {
  std::vector<Run> runs;
  for (int64_t first = 0; first < tokens; first += chunk_)
    runs.push_back({first, std::min(chunk_, tokens - first)});
  return runs;
}

// visit(queries, keys, whether these queries, and these keys, are met for the first time).
template <class Visit>
void AttentionPieces::each_pair(Visit visit) const {
  for (const Run& queries : runs_of(shape_.q_len)) {
    for (const Run& keys : runs_of(shape_.kv_len)) {
      if (shape_.causal && keys.first > queries.first) break;
      const int64_t earliest = shape_.causal ? keys.first : 0;
      visit(queries, keys, keys.first == 0, queries.first == earliest);
    }
  }
}

const AttentionPlan* AttentionPieces::plan(const Run& queries, const Run& keys) const {
  AttentionPlanShape piece{.part = shape_,
                           .pass = AttentionPass::backward,
                           .out_stride = shape_.heads * shape_.head_dim,
                           .lse_stride = shape_.q_len,
                           .dq_stride = dq_width(),
                           .dkv_stride = 2 * shape_.head_dim};
  piece.part.samples = 1;
  piece.part.q_len = queries.tokens;
  piece.part.kv_len = keys.tokens;
  piece.part.heads = group();
  piece.part.kv_heads = 1;
  piece.part.causal = shape_.causal && keys.first == queries.first;
  return CudnnAttention::find(piece);
}

void AttentionPieces::backward(const AttentionPartBackward& op, int64_t sample, int64_t kv_head,
                               const Sums& sums, const Launch& launch) const {
  require_workspace(launch, workspace_, "attention_backward");
  char* const scratch = static_cast<char*>(launch.workspace);
  const int64_t element = device::size_of(shape_.type), dim = shape_.head_dim, head = kv_head * group();
  void* const dq = scratch + dq_at_;
  char* const dk = scratch + dkv_at_;
  char* const dv = dk + dim * element;
  each_pair([&](const Run& queries, const Run& keys, bool first_q, bool first_kv) {
    const int64_t query = sample * shape_.q_len + queries.first, key = sample * shape_.kv_len + keys.first;
    const int64_t q_at = query * shape_.q_stride + head * dim;
    const int64_t kv_at = key * shape_.kv_stride + kv_head * dim;
    const int64_t out_at = (query * shape_.heads + head) * dim;
    plan(queries, keys)
        ->run({.q = offset(op.q, q_at, element),
               .k = offset(op.k, kv_at, element),
               .v = offset(op.v, kv_at, element),
               .out = offset(op.out, out_at, element),
               .lse = op.lse + (sample * shape_.heads + head) * shape_.q_len + queries.first,
               .dout = offset(op.dout, out_at, element),
               .dq = dq,
               .dk = dk,
               .dv = dv},
              launch);
    const auto add = [&](const Run& run, int64_t width, const void* from, int64_t from_stride, float* into,
                         int64_t into_stride, bool write) {
      add_rows({.type = shape_.type,
                .rows = run.tokens,
                .width = width,
                .from = from,
                .from_stride = from_stride,
                .into = into + run.first * into_stride,
                .into_stride = into_stride,
                .write = write},
               launch);
    };
    add(queries, dq_width(), dq, dq_width(), sums.dq, sums.dq_stride, sums.first_q && first_q);
    add(keys, dim, dk, 2 * dim, sums.dk, sums.dkv_stride, sums.first_kv && first_kv);
    add(keys, dim, dv, 2 * dim, sums.dv, sums.dkv_stride, sums.first_kv && first_kv);
  });
}

}  // namespace lockstep::kernels::cuda

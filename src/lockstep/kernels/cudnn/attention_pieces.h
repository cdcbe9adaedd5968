// cuDNN's backward pass for sequences whose scores do not fit into its scratch at once: one key head of one
// sample at a time, pairs of chunks of its queries and keys, added up in fp32 in one order.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/kernels/cudnn/attention_plan.h"

namespace lockstep::kernels::cuda {

class AttentionPieces {
 public:
  // Null where cuDNN does not take the pieces. With `chunk` 0, chunks are as long as scratch allows.
  static std::unique_ptr<AttentionPieces> find(const AttentionPartShape& shape, int64_t chunk = 0);

  std::string name() const;  // "cudnn 9.19.0 in pieces"
  int64_t workspace_bytes() const { return workspace_; }

  // The gradients of one key head: dq of its query heads, without gaps between them, and dk and dv.
  struct Sums {
    float *dq, *dk, *dv;  // of its first token
    int64_t dq_stride, dkv_stride;
    bool first_q, first_kv;  // write; otherwise add to what is there
  };
  // Of `op`, only what is read.
  void backward(const AttentionPartBackward& op, int64_t sample, int64_t kv_head, const Sums& sums,
                const Launch& launch) const;

 private:
  explicit AttentionPieces(const AttentionPartShape& shape) : shape_(shape) {}
  struct Run {
    int64_t first, tokens;
  };
  std::vector<Run> runs_of(int64_t tokens) const;
  const AttentionPlan* plan(const Run& queries, const Run& keys) const;
  template <class Visit>
  void each_pair(Visit visit) const;

  int64_t group() const { return shape_.heads / shape_.kv_heads; }
  int64_t dq_width() const { return group() * shape_.head_dim; }

  AttentionPartShape shape_;
  int64_t chunk_ = 0;
  int64_t dq_at_ = 0, dkv_at_ = 0, workspace_ = 0;  // in the workspace, behind cuDNN's own
  std::string name_;
};

}  // namespace lockstep::kernels::cuda

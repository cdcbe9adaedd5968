// Attention on CUDA: cuDNN where it takes the shape, our own kernels everywhere else. The choice is a
// function of the shape, the GPU and cuDNN's version, and stands in the numerics record.
#include <cstdlib>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/kernels/attention_own.cuh"
#include "lockstep/kernels/cudnn/attention_plan.h"
#include "lockstep/kernels/launcher.cuh"
#include "lockstep/kernels/table.cuh"

namespace lockstep::kernels::cuda {
namespace {

// LOCKSTEP_ATTENTION=own does without cuDNN: for tests, and for a cuDNN that misbehaves.
const CudnnAttention* chosen(const AttentionShape& shape) {
  const char* wish = std::getenv("LOCKSTEP_ATTENTION");
  if (wish != nullptr && std::strcmp(wish, "own") == 0) return nullptr;
  return CudnnAttention::find(shape);
}

}  // namespace

void attention_forward(const AttentionForward& op, const Launch& launch) {
  const Launcher run("attention_forward", launch);
  if (const CudnnAttention* plan = chosen(op.shape)) return plan->forward(op, launch);
  own_attention_forward(op, launch);
}

void attention_backward(const AttentionBackward& op, const Launch& launch) {
  const Launcher run("attention_backward", launch);
  if (const CudnnAttention* plan = chosen(op.shape)) return plan->backward(op, launch);
  own_attention_backward(op, launch);
}

int64_t attention_workspace(const AttentionShape& shape) {
  const CudnnAttention* plan = chosen(shape);
  return plan != nullptr ? plan->workspace_bytes() : own_attention_workspace(shape);
}

std::string attention_engine(const AttentionShape& shape) {
  const CudnnAttention* plan = chosen(shape);
  return plan != nullptr ? plan->name() : "own";
}

}  // namespace lockstep::kernels::cuda

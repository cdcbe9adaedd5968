// Stands in for attention_plan.cc where the build had no cuDNN headers.
#include "lockstep/kernels/cudnn/attention_plan.h"

namespace lockstep::kernels::cuda {

const AttentionPlan* CudnnAttention::find(const AttentionPlanShape&, std::string* why_not) {
  if (why_not != nullptr) *why_not = "this plugin was built without cuDNN's headers";
  return nullptr;
}

void CudnnAttention::load() {}
void CudnnAttention::start() {}

}  // namespace lockstep::kernels::cuda

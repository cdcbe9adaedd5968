#include "lockstep/kernels/cublas/matmul_choice.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/check.h"
#include "lockstep/kernels/cublas/result_hash.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr double kWorthMeasuring = 4e9;  // flops: a few microseconds on a large GPU
constexpr int kRounds = 4;
constexpr float kBurst = 2.0f;     // milliseconds of one candidate in one round
constexpr float kWorthIt = 0.99f;  // of the first candidate's time

// Times and hashes a product's candidates on its own operands: all that are taken write the same bits, so
// that running it several times does no harm.
class Trial {
 public:
  Trial(cublasLtHandle_t handle, const Gemm& op, const Launch& launch)
      : handle_(handle), op_(op), launch_(launch), stream_(static_cast<cudaStream_t>(launch.stream)) {
    CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&hash_), sizeof(*hash_)));
    CUDA_CHECK(cudaEventCreateWithFlags(&begin_, cudaEventDefault));
    CUDA_CHECK(cudaEventCreateWithFlags(&end_, cudaEventDefault));
  }
  ~Trial() {
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaEventDestroy(end_));
    static_cast<void>(cudaFree(hash_));
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool run(const MatmulPlan& plan) {
    return try_matmul(handle_, plan, op_, launch_) == CUBLAS_STATUS_SUCCESS;
  }

  uint64_t hash_of_result() {
    const int64_t words = op_.m * op_.n * device::size_of(op_.out_type) / 4;
    unsigned long long hash = 0;
    CUDA_CHECK(cudaMemsetAsync(hash_, 0, sizeof(*hash_), stream_));
    add_result_hash(static_cast<const uint32_t*>(op_.c), words, hash_, stream_);
    CUDA_CHECK(cudaMemcpyAsync(&hash, hash_, sizeof(hash), cudaMemcpyDeviceToHost, stream_));
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    return hash;
  }

  // Of one product, `times` of them running back to back.
  float milliseconds(const MatmulPlan& plan, int times) {
    CUDA_CHECK(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < times; ++i) run(plan);
    CUDA_CHECK(cudaEventRecord(end_, stream_));
    CUDA_CHECK(cudaEventSynchronize(end_));
    float taken = 0;
    CUDA_CHECK(cudaEventElapsedTime(&taken, begin_, end_));
    return taken / static_cast<float>(times);
  }

 private:
  cublasLtHandle_t handle_;
  const Gemm& op_;
  const Launch& launch_;
  cudaStream_t stream_;
  unsigned long long* hash_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

bool is_worth_measuring(const MatmulKey& key, const Launch& launch) {
  const double flops =
      2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
  if (flops < kWorthMeasuring || key.add_to_c || key.c_row > 0 ||
      key.m * key.n * device::size_of(key.out_type) % 4 != 0)
    return false;
  cudaStreamCaptureStatus capturing{};
  CUDA_CHECK(cudaStreamIsCapturing(static_cast<cudaStream_t>(launch.stream), &capturing));
  return capturing == cudaStreamCaptureStatusNone;
}

struct Candidate {
  size_t index;
  MatmulPlan plan;
  float taken;  // milliseconds, of all rounds together
};

// Those that give the first one's bits.
std::vector<Candidate> equal_candidates(Trial& trial, MatmulPlan plan,
                                        const std::vector<MatmulCandidate>& ways) {
  std::vector<Candidate> equal;
  uint64_t expected = 0;
  for (size_t i = 0; i < ways.size(); ++i) {
    plan.how = ways[i];
    if (!trial.run(plan)) {
      if (i == 0) return {};  // whoever runs it for good says why
      continue;
    }
    const uint64_t hash = trial.hash_of_result();
    if (i == 0) expected = hash;
    if (hash == expected) equal.push_back({i, plan, 0});
  }
  return equal;
}

// In turns, and long enough that the GPU runs at the clock that it can hold under load: what is fastest for a
// moment on a cool chip is often not what is fastest in a step.
size_t measure(cublasLtHandle_t handle, const MatmulPlan& plan, const std::vector<MatmulCandidate>& ways,
               const Gemm& op, const Launch& launch) {
  Trial trial(handle, op, launch);
  std::vector<Candidate> candidates = equal_candidates(trial, plan, ways);
  if (candidates.size() < 2) return 0;
  const float once = trial.milliseconds(candidates[0].plan, 1);
  const int times = std::clamp(static_cast<int>(kBurst / std::max(once, 1e-3f)), 1, 100);
  for (int round = 0; round < kRounds; ++round) {
    for (Candidate& candidate : candidates) candidate.taken += trial.milliseconds(candidate.plan, times);
  }
  const auto best =
      std::min_element(candidates.begin(), candidates.end(),
                       [](const Candidate& a, const Candidate& b) { return a.taken < b.taken; });
  return best->taken < candidates[0].taken * kWorthIt ? best->index : 0;
}

// Whether a remembered choice is there and gives the first one's bits: a file proposes, and never decides
// them.
bool still_equal(cublasLtHandle_t handle, const MatmulPlan& plan, const std::vector<MatmulCandidate>& ways,
                 int remembered, const Gemm& op, const Launch& launch) {
  const auto index = static_cast<size_t>(remembered);
  if (index == 0) return true;
  if (index >= ways.size()) return false;
  Trial trial(handle, op, launch);
  return equal_candidates(trial, plan, {ways[0], ways[index]}).size() == 2;
}

}  // namespace

size_t choose(cublasLtHandle_t handle, const MatmulPlan& plan, const std::vector<MatmulCandidate>& candidates,
              const MatmulKey& key, const Gemm& op, const Launch& launch, MatmulMemory& memory) {
  if (candidates.size() == 1 || !is_worth_measuring(key, launch)) return 0;
  const std::optional<int> remembered = memory.find(key.text());
  if (remembered && still_equal(handle, plan, candidates, *remembered, op, launch))
    return static_cast<size_t>(*remembered);
  const size_t best = measure(handle, plan, candidates, op, launch);
  memory.remember(key.text(), static_cast<int>(best));
  return best;
}

}  // namespace lockstep::kernels::cuda

#include "lockstep/kernels/flash/flash_attention.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/check.h"
#include "lockstep/kernels/flash/library.h"
#include "lockstep/kernels/workspace.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256, kFloat = sizeof(float), kTurn = sizeof(int32_t);

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

void check(int32_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  throw base::IoError(434,
                      fmt::format("FlashAttention kernels could not {} ({}); compile them again with "
                                  "`lockstep setup`, or set LOCKSTEP_ATTENTION=cudnn to run without them",
                                  what, cudaGetErrorString(static_cast<cudaError_t>(error))));
}

// Calls what the compiler wrote. Arguments are passed by value here, so that each has an address of its own
// type.
template <class Function, class... Arguments>
void call(Function function, const std::string& what, Arguments... arguments) {
  int32_t error = 0;
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))..., &error};
  if constexpr (std::is_invocable_v<Function, void**, int32_t>) {
    function(pointers, static_cast<int32_t>(std::size(pointers)));
  } else {
    function(pointers);
  }
  check(error, what);
}

// Where the backward pass keeps its sums. What must be zero when it starts is the end, from `zeroed` on.
struct Scratch {
  int64_t dq_sum = 0, lse_log2 = 0, delta = 0;
  int64_t zeroed = 0, dk_sum = 0, dv_sum = 0, dq_turn = 0, dk_turn = 0, dv_turn = 0;
  int64_t bytes = 0;

  Scratch(const AttentionPartShape& s, const LockstepFlashKernel& kernel) {
    const int64_t rows = s.heads * tiled(s, s.q_len, kernel.q_tile);
    dq_sum = take(rows * kernel.width * kFloat);
    lse_log2 = take(rows * kFloat);
    delta = take(rows * kFloat);
    zeroed = bytes;
    if (kernel.group > 1) {
      const int64_t kv_rows = s.kv_heads * tiled(s, s.kv_len, kernel.kv_tile);
      dk_sum = take(kv_rows * kernel.width * kFloat);
      dv_sum = take(kv_rows * kernel.width * kFloat);
      const int64_t kv_turns =
          sequences(s) * s.kv_heads * (round_up(s.kv_len, kernel.kv_tile) / kernel.kv_tile);
      dk_turn = take(kv_turns * 2 * kTurn);
      dv_turn = take(kv_turns * 2 * kTurn);
    }
    dq_turn = take(sequences(s) * s.heads * (round_up(s.q_len, kernel.q_tile) / kernel.q_tile) * kTurn);
  }
  // Rows of all samples, each rounded up to tiles; documents begin with a tile of their own.
  static int64_t tiled(const AttentionPartShape& s, int64_t length, int64_t tile) {
    if (s.documents == 0) return s.samples * round_up(length, tile);
    return round_up(s.samples * length + s.documents * tile, tile);
  }
  static int64_t sequences(const AttentionPartShape& s) { return s.documents > 0 ? s.documents : s.samples; }
  int64_t take(int64_t size) {
    const int64_t at = bytes;
    bytes += round_up(size, kAlignment);
    return at;
  }
};

class Plan final : public AttentionPlan {
 public:
  Plan(const AttentionPlanShape& shape, const LockstepFlashKernel& kernel)
      : shape_(shape), kernel_(kernel), scratch_(shape.part, kernel) {}

  std::string name() const override { return std::string("flash ") + flash_state().table->version; }
  int64_t workspace_bytes() const override { return kernel_.backward != 0 ? scratch_.bytes : 0; }

  void run(const Operands& o, const Launch& launch) const override {
    const AttentionPartShape& s = shape_.part;
    const auto size = [](int64_t n) { return static_cast<int32_t>(n); };
    const auto stream = static_cast<cudaStream_t>(launch.stream);
    const bool packed = s.documents > 0;  // then sizes have the meaning of tools/flash/kernels.py
    const int32_t samples = size(packed ? s.documents : s.samples),
                  q_len = size(packed ? s.samples * s.q_len : s.q_len), kv_len = size(s.kv_len),
                  heads = size(s.heads), kv_heads = size(s.kv_heads), window = size(s.scores.window);
    if (shape_.pass == AttentionPass::forward) {
      call(kernel_.run, "run", o.q, o.k, o.v, o.out, o.lse, o.offsets, samples, q_len, kv_len, heads,
           kv_heads, s.q_stride, s.kv_stride, shape_.out_stride, s.scale(), window, s.scores.softcap, stream);
      return;
    }
    require_workspace(launch, scratch_.bytes, "attention_backward");
    const auto at = [&](int64_t offset) { return static_cast<char*>(launch.workspace) + offset; };
    CUDA_CHECK(cudaMemsetAsync(at(scratch_.zeroed), 0, static_cast<size_t>(scratch_.bytes - scratch_.zeroed),
                               stream));
    call(kernel_.run, "run", o.q, o.k, o.v, o.out, o.dout, o.lse, o.dq, o.dk, o.dv, at(scratch_.dq_sum),
         at(scratch_.dk_sum), at(scratch_.dv_sum), at(scratch_.lse_log2), at(scratch_.delta),
         at(scratch_.dq_turn), at(scratch_.dk_turn), at(scratch_.dv_turn), o.offsets, samples, q_len, kv_len,
         heads, kv_heads, s.q_stride, s.kv_stride, shape_.out_stride, shape_.dq_stride, shape_.dkv_stride,
         s.scale(), window, s.scores.softcap, stream);
  }

 private:
  AttentionPlanShape shape_;
  const LockstepFlashKernel& kernel_;
  Scratch scratch_;
};

// ---- finding a kernel

int32_t mask_of(const AttentionPartShape& s) {
  if (!s.causal) return LOCKSTEP_FLASH_FULL;
  return s.window_binds() ? LOCKSTEP_FLASH_WINDOW : LOCKSTEP_FLASH_CAUSAL;
}

const LockstepFlashKernel* kernel_for(const AttentionPlanShape& shape) {
  const AttentionPartShape& s = shape.part;
  const LockstepFlashTable& table = *flash_state().table;
  const std::string type = device::name_of(s.type);
  for (int32_t i = 0; i < table.count; ++i) {
    const LockstepFlashKernel& kernel = table.kernels[i];
    if (type == kernel.type && kernel.head_dim == s.head_dim && kernel.group == s.heads / s.kv_heads &&
        kernel.mask == mask_of(s) && (kernel.capped != 0) == (s.scores.softcap > 0) &&
        (kernel.packed != 0) == (s.documents > 0) &&
        (kernel.backward != 0) == (shape.pass == AttentionPass::backward))
      return &kernel;
  }
  return nullptr;
}

// What does not depend on the table.
std::string refusal(const AttentionPlanShape& shape) {
  const AttentionPartShape& s = shape.part;
  if (flash_state().table == nullptr) return flash_state().why_not;
  int index = 0, major = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  if (major != 9) return "a GPU that is not of compute capability 9.0";
  for (const int64_t stride : {s.q_stride, s.kv_stride, shape.out_stride, shape.dq_stride, shape.dkv_stride})
    if (stride % 8 != 0) return fmt::format("rows {} elements apart", stride);
  if (shape.lse_stride != s.q_len) return "a log-sum-exp with gaps";
  if (s.window_binds() && !s.causal) return "a window that reaches into another part";
  const int64_t most = int64_t{1} << 31;
  if (s.samples * s.heads * std::max(s.q_len, s.kv_len) >= most) return "too many rows";
  return "";
}

struct Known {
  std::unique_ptr<Plan> plan;
  std::string why_not;
};

struct Cache {
  std::mutex mutex;
  std::map<const LockstepFlashKernel*, cudaLibrary_t> libraries;
  std::set<std::pair<const LockstepFlashKernel*, int>> loaded;  // onto which GPU
  std::map<std::pair<int, AttentionPlanShape>, Known> known;    // by GPU
};

// Kept until the process ends: the driver may be gone before destructors run.
Cache& cache() {
  static Cache& made = *new Cache;
  return made;
}

void load(Cache& all, const LockstepFlashKernel& kernel, int device) {
  if (!all.loaded.emplace(&kernel, device).second) return;
  const auto [place, fresh] = all.libraries.try_emplace(&kernel, nullptr);
  cudaLibrary_t* const library = &place->second;
  if (fresh) call(kernel.init, "be loaded", library);
  call(kernel.load, "be loaded onto the GPU", library, static_cast<int32_t>(device));
}

Known make(Cache& all, const AttentionPlanShape& shape, int device) {
  const AttentionPartShape& s = shape.part;
  Known known{nullptr, refusal(shape)};
  if (!known.why_not.empty()) return known;
  const LockstepFlashKernel* const kernel = kernel_for(shape);
  if (kernel == nullptr) {
    known.why_not = fmt::format(
        "no kernel for {} heads of {}, {} to a key head{}{}{}", device::name_of(s.type), s.head_dim,
        s.heads / s.kv_heads, s.window_binds() ? ", with a window" : "",
        s.scores.softcap > 0 ? ", with a soft cap" : "", s.documents > 0 ? ", of packed documents" : "");
    return known;
  }
  load(all, *kernel, device);
  known.plan = std::make_unique<Plan>(shape, *kernel);
  return known;
}

}  // namespace

void FlashAttention::load() { static_cast<void>(flash_state()); }

const AttentionPlan* FlashAttention::find(const AttentionPlanShape& shape, std::string* why_not) {
  int index = 0;
  CUDA_CHECK(cudaGetDevice(&index));
  const std::pair key(index, shape);
  Cache& all = cache();
  const std::lock_guard lock(all.mutex);
  auto found = all.known.find(key);
  if (found == all.known.end()) found = all.known.emplace(key, make(all, shape, index)).first;
  if (why_not != nullptr) *why_not = found->second.why_not;
  return found->second.plan.get();
}

}  // namespace lockstep::kernels::cuda

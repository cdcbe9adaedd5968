// Every operation, once for each device: the one list to extend when an operation is added.
//
// A group of files `op.h, op_cpu.cc, op.cu, op_test.cc` fills one or more rows. The CPU
// version is the reference that the CUDA version is tested against. The CUDA table comes out of the plugin.
#pragma once

#include <string>

#include "lockstep/device/device.h"
#include "lockstep/kernels/attention/attention.h"
#include "lockstep/kernels/attention/attention_part.h"
#include "lockstep/kernels/elementwise/activation.h"
#include "lockstep/kernels/elementwise/dropout.h"
#include "lockstep/kernels/elementwise/elementwise.h"
#include "lockstep/kernels/embedding/embedding.h"
#include "lockstep/kernels/fp8/fp8.h"
#include "lockstep/kernels/gemm/gemm.h"
#include "lockstep/kernels/loss/loss.h"
#include "lockstep/kernels/norm/head_norm.h"
#include "lockstep/kernels/norm/norm.h"
#include "lockstep/kernels/optimizer/muon.h"
#include "lockstep/kernels/optimizer/optimizer.h"
#include "lockstep/kernels/quantized/quantized.h"
#include "lockstep/kernels/reduce/sum_addends.h"
#include "lockstep/kernels/reduce/tree_sum.h"

// name of the row, its arguments
#define LOCKSTEP_KERNELS(ROW)                         \
  ROW(gemm, Gemm)                                     \
  ROW(fp8_gemm, Fp8Gemm)                              \
  ROW(fp8_amax, Fp8Amax)                              \
  ROW(fp8_cast, Fp8Cast)                              \
  ROW(norm_forward, NormForward)                      \
  ROW(norm_backward, NormBackward)                    \
  ROW(norm_weight_backward, NormWeightBackward)       \
  ROW(bias_backward, BiasBackward)                    \
  ROW(head_norm, HeadNorm)                            \
  ROW(head_norm_backward, HeadNormBackward)           \
  ROW(head_squares, HeadSquares)                      \
  ROW(head_squares_backward, HeadSquaresBackward)     \
  ROW(activate, Activate)                             \
  ROW(activate_backward, ActivateBackward)            \
  ROW(glu, Glu)                                       \
  ROW(glu_backward, GluBackward)                      \
  ROW(rope, Rope)                                     \
  ROW(attention_forward, AttentionForward)            \
  ROW(attention_backward, AttentionBackward)          \
  ROW(attention_decode, AttentionDecode)              \
  ROW(attention_part, AttentionPart)                  \
  ROW(attention_delta, AttentionDelta)                \
  ROW(attention_part_backward, AttentionPartBackward) \
  ROW(embedding, Embedding)                           \
  ROW(embedding_backward, EmbeddingBackward)          \
  ROW(cross_entropy, CrossEntropy)                    \
  ROW(vocab_stats, VocabStats)                        \
  ROW(vocab_cross_entropy, VocabCrossEntropy)         \
  ROW(loss_sum, LossSum)                              \
  ROW(preference_loss, PreferenceLoss)                \
  ROW(dropout, Dropout)                               \
  ROW(square_sums, SquareSums)                        \
  ROW(norm_finish, NormFinish)                        \
  ROW(update, Update)                                 \
  ROW(muon_momentum, MuonMomentum)                    \
  ROW(muon_apply, MuonApply)                          \
  ROW(normalize, Normalize)                           \
  ROW(blend, Blend)                                   \
  ROW(hash_chunks, HashChunks)                        \
  ROW(cast, Cast)                                     \
  ROW(dequantize, Dequantize)                         \
  ROW(add, Add)                                       \
  ROW(add_edges, AddEdges)                            \
  ROW(regroup, Regroup)                               \
  ROW(soft_cap, SoftCap)                              \
  ROW(tree_sum, TreeSum)                              \
  ROW(sum_addends, SumAddends)                        \
  ROW(fill_normal, FillNormal)                        \
  ROW(fill_value, FillValue)                          \
  ROW(count_nonfinite, CountNonfinite)                \
  ROW(mark, Mark)

namespace lockstep::kernels {

struct Kernels {
#define ROW(name, Arguments) void (*name)(const Arguments&, const Launch&) = nullptr;
  LOCKSTEP_KERNELS(ROW)
#undef ROW
  // Scratch that gemm needs for these sizes, in bytes (bf16 on the CPU widens its operands there).
  int64_t (*gemm_workspace)(const Gemm&) = nullptr;
  int64_t (*fp8_gemm_workspace)(const Fp8Gemm&) = nullptr;
  int64_t (*attention_workspace)(const AttentionShape&) = nullptr;  // of forward and backward, the larger
  int64_t (*attention_part_workspace)(const AttentionPartShape&) = nullptr;  // the same
  int64_t (*embedding_workspace)(int64_t tokens, int64_t width) = nullptr;
  // Whether every kernel that adds to a gradient forms its own sum first and adds that once: the same bits as
  // writing the sum apart and adding the two.
  bool adds_own_sums = false;
  // Which code computes attention of this shape: "own", "cudnn 9.19.0". Part of the numerics record.
  std::string (*attention_engine)(const AttentionShape&) = nullptr;
  std::string (*attention_part_engine)(const AttentionPartShape&) = nullptr;
};

// The table for a device; for CUDA, from the plugin that device::open() loaded. The CPU's is chosen by
// instruction set (x86-64-v4, v3, or generic).
const Kernels& kernels_for(device::Kind kind);

}  // namespace lockstep::kernels

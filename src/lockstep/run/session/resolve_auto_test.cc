// What "auto" comes to on devices that need not be here.
#include "lockstep/run/session/resolve_auto.h"

#include <gtest/gtest.h>

namespace lockstep::run {
namespace {

using device::DType;

TEST(ResolvePrecision, IsTheBestOfWhatTheDeviceIsFastAt) {
  struct Case {
    bool fast_bf16, fast_fp16, own_model;
    const char* word;
    DType type;
  };
  for (const Case& one :
       {Case{.fast_bf16 = true, .fast_fp16 = true, .word = "bf16", .type = DType::bf16},
        Case{.fast_fp16 = true, .word = "fp16", .type = DType::f16}, Case{.word = "fp32", .type = DType::f32},
        Case{.fast_bf16 = true, .own_model = true, .word = "fp32", .type = DType::f32}}) {
    recipe::Resolved resolved;
    device::Properties device;
    device.fast_bf16 = one.fast_bf16, device.fast_fp16 = one.fast_fp16;
    EXPECT_EQ(resolve_precision(resolved, device, one.own_model), one.type) << one.word;
    EXPECT_EQ(resolved.recipe.precision.compute, one.word);
    EXPECT_EQ(resolved.origin["precision.compute"], "auto");
  }
  recipe::Resolved said;
  said.recipe.precision.compute = "fp16";
  EXPECT_EQ(resolve_precision(said, {}, false), DType::f16) << "what was asked for counts";
}

// 64 MiB of logits on a CPU, 1 GiB on a GPU, in whole steps of 64 rows.
TEST(ResolveLogitsChunk, IsABudgetOfBytes) {
  const auto rows = [](int64_t vocab, DType type, bool cuda) {
    recipe::Resolved resolved;
    resolved.recipe.model.vocab = vocab;
    resolve_logits_chunk(resolved, type, cuda);
    return resolved.recipe.memory.logits_chunk.value;
  };
  EXPECT_EQ(rows(1 << 14, DType::f32, false), 1024);
  EXPECT_EQ(rows(1 << 14, DType::bf16, false), 2048);
  EXPECT_EQ(rows(1 << 14, DType::f32, true), 16384);
  EXPECT_EQ(rows(50257, DType::f32, false), 320) << "333 rows would fit";
  EXPECT_EQ(rows(int64_t{1} << 30, DType::f32, false), 64) << "no fewer than one step";
  recipe::Resolved said;
  said.recipe.memory.logits_chunk = 100;
  resolve_logits_chunk(said, DType::f32, false);
  EXPECT_EQ(said.recipe.memory.logits_chunk.value, 100);
}

}  // namespace
}  // namespace lockstep::run

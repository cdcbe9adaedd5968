// Layouts with a fixed number of strands of products and of sequences: there tensor and context ranks have
// the bits of one rank.
#include "lockstep/run/layouts_testing.h"

namespace lockstep::run {
namespace {

// With a fixed number of product strands, tensor layouts too have the bits of one rank.
constexpr Layout kStrandLayouts[] = {
    {2, "parallel.tensor=2", true},
    {4, "parallel.tensor=4", true},
    {2, "parallel.tensor=2 parallel.sequence=true memory.recompute=full", true},
    {4, "parallel.tensor=4 parallel.sequence=true", true},
    {2, "memory.recompute=cheap", true},
    {4, "parallel.tensor=2 parallel.zero=3", true},
    {4, "parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true", true},
    {8, "parallel.pipeline=2 parallel.tensor=2 parallel.zero=3", true},
    {8, "parallel.tensor=4 parallel.zero=1 memory.recompute=cheap", true},
};
Words in_strands(const Words& more) {
  Words words = layout_recipe({"batch.strands=8", "batch.product_strands=4"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
const Family kStrandFamilies[] = {
    {"gpt2_strands", in_strands({"model.dropout=0.1", "model.vocab=139", "memory.logits_chunk=13"})},
    {"gpt2_strands_bf16_moments", in_strands({"optim.moments=bf16", "precision.compute=bf16"})},
    {"llama_strands",
     in_strands({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "optim.clip=0.1"})},
    {"llama_strands_bf16_untied",
     in_strands({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16",
                 "model.tied=false", "model.vocab=4109"})},
    {"qwen3_strands_bf16",
     in_strands({"model.family=qwen3", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16"})},
    {"gemma2_strands",
     in_strands({"model.family=gemma2", "model.kv_heads=4", "model.ffn=128", "model.sliding_window=7",
                 "model.attn_softcap=2", "model.final_softcap=3"})},
};

// What else strands carry: layers that add both halves at once, norms over all heads, adapters, fp8.
constexpr Layout kFewStrandLayouts[] = {
    {4, "parallel.tensor=4", true},
    {2, "parallel.tensor=2 parallel.sequence=true memory.recompute=full", true},
    {8, "parallel.pipeline=2 parallel.tensor=2 parallel.zero=3 memory.recompute=cheap", true},
};
const Family kOtherStrandFamilies[] = {
    {"phi_strands", in_strands({"model.family=phi", "model.kv_heads=4", "model.dropout=0.1"})},
    {"neox_strands_bf16",
     in_strands({"model.family=gpt_neox", "model.dropout=0.1", "precision.compute=bf16"})},
    {"olmo2_strands", in_strands({"model.family=olmo2", "model.kv_heads=4"})},
    {"olmo2_strands_bf16", in_strands({"model.family=olmo2", "model.kv_heads=4", "precision.compute=bf16"})},
    {"gpt2_strands_lora", in_strands({"tune.method=lora", "tune.rank=4", "tune.dropout=0.1"})},
    {"llama_strands_lora_bf16",
     in_strands({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16",
                 "tune.method=lora", "tune.rank=2", "tune.targets=q_proj,v_proj,down_proj"})},
    {"llama_strands_qlora",
     in_strands({"model.family=llama", "model.hidden=256", "model.kv_heads=8", "model.ffn=256",
                 "precision.compute=bf16", "tune.method=lora", "tune.rank=4", "tune.base=nf4"})},
    {"llama_strands_fp8",
     in_strands({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=fp8"})},
    {"gpt2_strands_fp8_rows_head",
     in_strands({"precision.compute=fp8", "precision.fp8_scaling=row", "precision.fp8_head=true",
                 "model.vocab=192", "memory.logits_chunk=16", "model.dropout=0.1"})},
};

// What all layouts of a contract have in common is right, too: near the run without strands, also where
// slices of a strand are added up on one rank.
class Contracts : public testing::TestWithParam<Family> {};

TEST_P(Contracts, AreNearTheRunWithoutStrands) {
  LS_NEEDS_HOST_MEMORY();
  const auto result_of = [](const Words& words) {
    comm::World world;
    return train_rank(words, world);
  };
  const Words strands = with(GetParam().recipe, "batch.strands=4");
  Words plain = strands;
  std::erase_if(plain, [](const std::string& word) {
    return word.starts_with("batch.product_strands") || word.starts_with("batch.sequence_strands");
  });
  const Result one = result_of(plain), many = result_of(strands);
  const bool rounds = computes(plain, "bf16") || computes(plain, "fp8");
  const size_t steps = rounds ? 2 : one.losses.size();  // in bf16, steps drift apart once they differ
  EXPECT_LT(largest_difference({many.losses.begin(), many.losses.begin() + steps},
                               {one.losses.begin(), one.losses.begin() + steps}),
            computes(plain, "fp8") ? 2e-2
            : rounds               ? 5e-3
                                   : 1e-5);
  EXPECT_LT(largest_difference({many.norms[0]}, {one.norms[0]}), computes(plain, "fp8") ? 1e-1
                                                                 : rounds               ? 2e-2
                                                                                        : 1e-4);
  if (!rounds) EXPECT_LT(largest_difference(many.norms, one.norms), 1e-4);
}

// With a fixed number of sequence strands, context layouts too: in a ring and with heads exchanged alike.
constexpr Layout kPieceLayouts[] = {
    {2, "parallel.context=2", true},
    {4, "parallel.context=4", true},
    {2, "parallel.context=2 parallel.context_form=heads", true},
    {4, "parallel.context=4 parallel.context_form=heads memory.recompute=full", true},
    {2, "memory.recompute=cheap", true},
    {4, "parallel.context=2 parallel.zero=3", true},
    {4, "parallel.context=2 parallel.pipeline=2", true},
    {8, "parallel.context=4 parallel.zero=1 memory.recompute=full", true},
    {4, "parallel.context=2 parallel.pipeline=2 parallel.schedule=zero-bubble", true},
    {8, "parallel.context=2 parallel.context_form=heads parallel.zero=2 parallel.shard=2", true},
    {2, "parallel.tensor=2 parallel.sequence=true", false},
    {4, "parallel.tensor=2 parallel.context=2 parallel.sequence=true", false},
};
Words in_pieces(const Words& more) {
  Words words = layout_recipe({"batch.strands=8", "batch.sequence_strands=4"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
const Family kPieceFamilies[] = {
    {"gpt2_pieces", in_pieces({"model.dropout=0.1", "model.vocab=139", "memory.logits_chunk=13"})},
    {"llama_pieces_bf16_untied",
     in_pieces({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16",
                "optim.moments=bf16", "model.tied=false", "model.vocab=4109"})},
};
constexpr Layout kFewPieceLayouts[] = {
    {2, "parallel.context=2", true},
    {4, "parallel.context=4 parallel.context_form=heads memory.recompute=full", true},
};
const Family kOtherPieceFamilies[] = {
    {"llama_pieces",
     in_pieces({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "optim.clip=0.1"})},
    {"qwen3_pieces_bf16",
     in_pieces({"model.family=qwen3", "model.kv_heads=4", "model.ffn=128", "precision.compute=bf16"})},
    {"gemma2_pieces", in_pieces({"model.family=gemma2", "model.kv_heads=4", "model.ffn=128",
                                 "model.sliding_window=7", "model.attn_softcap=2", "model.final_softcap=3"})},
    {"olmo2_pieces", in_pieces({"model.family=olmo2", "model.kv_heads=4"})},
    {"neox_pieces", in_pieces({"model.family=gpt_neox", "model.dropout=0.1"})},
    {"llama_pieces_lora", in_pieces({"model.family=llama", "model.kv_heads=4", "model.ffn=128",
                                     "tune.method=lora", "tune.rank=4", "tune.dropout=0.1"})},
    {"llama_pieces_fp8",
     in_pieces({"model.family=llama", "model.kv_heads=4", "model.ffn=128", "precision.compute=fp8"})},
};
// And both: tensor and context ranks, alone and together.
constexpr Layout kBothLayouts[] = {
    {2, "parallel.tensor=2", true},
    {2, "parallel.context=2", true},
    {4, "parallel.tensor=2 parallel.context=2", true},
    {8, "parallel.tensor=4 parallel.context=2 parallel.context_form=heads", true},
    {8, "parallel.tensor=2 parallel.context=4 memory.recompute=cheap", true},
    {8, "parallel.tensor=2 parallel.context=2 parallel.pipeline=2 parallel.zero=1", true},
};
const Family kBothFamilies[] = {
    {"gpt2_both", in_pieces({"batch.product_strands=4", "model.dropout=0.1", "memory.logits_chunk=13"})},
    {"llama_both_bf16", in_pieces({"batch.product_strands=4", "model.family=llama", "model.kv_heads=8",
                                   "model.ffn=128", "precision.compute=bf16"})},
    {"neox_both_bf16",
     in_pieces({"batch.product_strands=4", "model.family=gpt_neox", "precision.compute=bf16"})},
    {"olmo2_both_fp8", in_pieces({"batch.product_strands=4", "model.family=olmo2", "model.kv_heads=8",
                                  "model.ffn=128", "precision.compute=fp8"})},
};

INSTANTIATE_TEST_SUITE_P(Strands, Layouts,
                         testing::Combine(testing::ValuesIn(kStrandFamilies),
                                          testing::ValuesIn(kStrandLayouts)),
                         name_of);
std::string name_of_family(const testing::TestParamInfo<Family>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Strands, Contracts, testing::ValuesIn(kStrandFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(OtherStrands, Contracts, testing::ValuesIn(kOtherStrandFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(Pieces, Contracts, testing::ValuesIn(kPieceFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(OtherPieces, Contracts, testing::ValuesIn(kOtherPieceFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(Both, Contracts, testing::ValuesIn(kBothFamilies), name_of_family);
INSTANTIATE_TEST_SUITE_P(OtherStrands, Layouts,
                         testing::Combine(testing::ValuesIn(kOtherStrandFamilies),
                                          testing::ValuesIn(kFewStrandLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Pieces, Layouts,
                         testing::Combine(testing::ValuesIn(kPieceFamilies),
                                          testing::ValuesIn(kPieceLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OtherPieces, Layouts,
                         testing::Combine(testing::ValuesIn(kOtherPieceFamilies),
                                          testing::ValuesIn(kFewPieceLayouts)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Both, Layouts,
                         testing::Combine(testing::ValuesIn(kBothFamilies), testing::ValuesIn(kBothLayouts)),
                         name_of);

}  // namespace
}  // namespace lockstep::run

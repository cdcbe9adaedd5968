// The bits that a change of the code must not change: what tiny runs of every family, number format,
// optimizer and layout end with.
//
// Bits belong to a processor, an instruction set and a LibTorch, so each of those has a column of its own
// below; where there is none the rows are skipped. After a change of the numeric contract that is meant, or
// on another processor, LOCKSTEP_PRINT_GOLDEN=1 run_test --gtest_filter='*Golden*' prints this processor's
// column to paste.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lockstep/run/loop/trainer.h"
#include "lockstep/run/session/record.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

struct Row {
  const char* name;
  int ranks;
  const char* words;  // with blanks between them, upon those of common()
  const char* engine = "shm";
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

constexpr Row kRows[] = {
    // Families.
    {"gpt2", 1, ""},
    {"gpt2_untied", 1, "model.tied=false"},
    {"gpt2_dropout", 1, "model.dropout=0.1"},
    {"gpt2_gelu", 1, "model.activation=gelu"},
    {"gpt2_quick_gelu", 1, "model.activation=quick_gelu"},
    {"gpt2_relu", 1, "model.activation=relu"},
    {"gpt2_relu2", 1, "model.activation=relu2"},
    {"gpt2_odd_sizes", 1, "model.ffn=40 model.context=20 model.vocab=139 model.layers=3"},
    {"gpt2_other_seed", 1, "run.seed=2 model.init_std=0.05 model.norm_epsilon=1e-3 data.grammar_seed=3"},
    {"llama", 1, "model.family=llama"},
    {"llama_untied", 1, "model.family=llama model.tied=false"},
    {"llama_gqa", 1, "model.family=llama model.kv_heads=2"},
    {"llama_biases", 1, "model.family=llama model.attention_bias=true model.mlp_bias=true"},
    {"llama_head_dim", 1, "model.family=llama model.head_dim=12"},
    {"llama_gelu_dropout", 1, "model.family=llama model.activation=gelu model.dropout=0.1"},
    {"llama_theta", 1, "model.family=llama model.rope_theta=500000"},
    {"llama_rope_llama3", 1, "model.family=llama model.rope_scaling=4 model.rope_original_context=16"},
    {"llama_rope_linear", 1, "model.family=llama model.rope_scaling=4 model.rope_type=linear"},
    {"llama_rope_yarn", 1,
     "model.family=llama model.rope_scaling=4 model.rope_type=yarn model.rope_original_context=8"},
    {"llama_rope_dynamic", 1,
     "model.family=llama model.rope_scaling=4 model.rope_type=dynamic model.rope_original_context=8"},
    {"llama_rope_longrope", 1,
     "model.family=llama model.rope_scaling=2 model.rope_type=longrope model.rope_original_context=8 "
     "model.rope_short_factor=1,1,1,1 model.rope_long_factor=1,1.5,2,4"},
    {"mlp", 1, "model.family=mlp"},
    {"mlp_untied_dropout", 1, "model.family=mlp model.tied=false model.dropout=0.1 model.activation=silu"},
    // Number formats.
    {"bf16", 1, "precision.compute=bf16 model.dropout=0.1"},
    {"fp16", 1, "precision.compute=fp16 precision.growth_interval=2"},
    {"fp16_overflow", 1, "precision.compute=fp16 precision.loss_scale=3e6"},
    {"fp8_tensor", 1, "precision.compute=fp8"},
    {"fp8_row", 1, "precision.compute=fp8 precision.fp8_scaling=row precision.fp8_gradients=e4m3"},
    {"fp8_block", 1, "precision.compute=fp8 precision.fp8_scaling=block precision.fp8_head=true"},
    {"llama_bf16", 1, "model.family=llama precision.compute=bf16"},
    {"llama_fp8", 1, "model.family=llama precision.compute=fp8 precision.fp8_skip_first=1 model.tied=false"},
    {"mlp_fp8", 1, "model.family=mlp precision.compute=fp8"},
    // Optimizers and schedules.
    {"adamw_bf16_moments", 1, "optim.moments=bf16 optim.beta1=0.8 optim.beta2=0.99 optim.epsilon=1e-6"},
    {"sgd", 1, "optim.name=sgd optim.lr=0.1"},
    {"sgd_no_momentum", 1, "optim.name=sgd optim.momentum=0 optim.weight_decay=0"},
    {"sgd_bf16_moments", 1, "optim.name=sgd optim.moments=bf16"},
    {"lion", 1, "optim.name=lion optim.lr=1e-3"},
    {"lion_bf16_moments", 1, "optim.name=lion optim.moments=bf16"},
    {"no_clip", 1, "optim.clip=0"},
    {"tight_clip", 1, "optim.clip=0.01 optim.name=sgd"},
    {"decay_all", 1, "optim.decay_all=true optim.weight_decay=0.5 model.family=llama"},
    {"constant", 1, "optim.schedule=constant optim.warmup=2"},
    {"linear", 1, "optim.schedule=linear optim.warmup=2 optim.min_lr=0"},
    {"wsd", 1, "optim.schedule=wsd optim.warmup=1 optim.decay_fraction=0.5"},
    {"inverse_sqrt", 1, "optim.schedule=inverse_sqrt optim.warmup=1"},
    {"cosine_ends_early", 1, "optim.decay_steps=2 optim.lr_scale=sqrt optim.base_batch=32"},
    // Slices, strands, memory. Recomputation changes no bits: the second test below says so.
    {"one_slice", 1, "batch.slices=1 batch.strands=1"},
    {"one_strand", 1, "batch.strands=1"},
    {"eight_strands", 1, "batch.slices=8 batch.strands=8"},
    {"logits_chunk", 1, "memory.logits_chunk=13 model.vocab=139"},
    {"recompute_cheap", 1, "memory.recompute=cheap"},
    {"recompute_full", 1, "memory.recompute=full"},
    {"recompute_named", 1, "memory.recompute=attention,up"},
    // Data ranks.
    {"data_2", 2, ""},
    {"data_2_gloo", 2, "", "gloo"},
    {"data_3_buckets", 3, "parallel.bucket_mib=0"},
    {"zero_1", 2, "parallel.zero=1"},
    {"zero_2", 4, "parallel.zero=2"},
    {"zero_3", 4, "parallel.zero=3"},
    {"zero_3_llama_bf16", 2, "parallel.zero=3 model.family=llama precision.compute=bf16"},
    {"zero_3_fp8", 2, "parallel.zero=3 precision.compute=fp8"},
    {"hsdp_2", 4, "parallel.zero=2 parallel.shard=2"},
    {"hsdp_3_gloo", 4, "parallel.zero=3 parallel.shard=2", "gloo"},
    {"not_exact", 2, "run.exact=false"},
    {"not_exact_bf16_wire", 2, "run.exact=false parallel.wire=bf16 parallel.zero=2"},
    // Ranks that share a layer or a sequence: bits of their own.
    {"tensor", 2, "parallel.tensor=2"},
    {"tensor_gloo", 2, "parallel.tensor=2", "gloo"},
    {"tensor_4_odd_vocabulary", 4, "parallel.tensor=4 model.vocab=139 memory.logits_chunk=13"},
    {"tensor_sequence_dropout", 2, "parallel.tensor=2 parallel.sequence=true model.dropout=0.1"},
    {"tensor_llama_gqa", 2, "parallel.tensor=2 model.family=llama model.kv_heads=2"},
    {"tensor_mlp", 2, "parallel.tensor=2 model.family=mlp"},
    {"context_ring", 2, "parallel.context=2"},
    {"context_ring_4_llama", 4, "parallel.context=4 model.family=llama"},
    {"context_heads", 2, "parallel.context=2 parallel.context_form=heads"},
    {"context_heads_llama_gqa", 2,
     "parallel.context=2 parallel.context_form=heads model.family=llama model.kv_heads=2"},
    // Pipelines.
    {"gpipe", 2, "parallel.pipeline=2 parallel.schedule=gpipe"},
    {"one_f_one_b", 4, "parallel.pipeline=4"},
    {"interleaved", 2, "parallel.pipeline=2 parallel.schedule=interleaved"},
    {"zero_bubble", 2, "parallel.pipeline=2 parallel.schedule=zero-bubble"},
    {"stages_by_hand", 2, "parallel.pipeline=2 parallel.stages=1,1 model.tied=false"},
    {"pipeline_mlp", 2, "parallel.pipeline=2 model.family=mlp"},
    // All together.
    {"pipeline_zero_3", 4, "parallel.pipeline=2 parallel.zero=3 memory.recompute=full"},
    {"tensor_zero_3", 4, "parallel.tensor=2 parallel.zero=3 parallel.sequence=true"},
    {"tensor_pipeline", 4, "parallel.tensor=2 parallel.pipeline=2 model.family=llama"},
    {"context_zero_2", 4, "parallel.context=2 parallel.zero=2"},
    {"context_tensor", 4, "parallel.context=2 parallel.tensor=2"},
    {"context_pipeline", 4, "parallel.context=2 parallel.pipeline=2 parallel.schedule=zero-bubble"},
    // Matrices that are updated whole.
    {"muon", 1, "optim.name=muon"},
    {"muon_zero_2", 2, "optim.name=muon parallel.zero=2"},
    {"muon_tensor", 2, "optim.name=muon parallel.tensor=2"},
    {"muon_tensor_llama_bf16_zero_3", 4,
     "optim.name=muon parallel.tensor=2 parallel.zero=3 model.family=llama precision.compute=bf16"},
    // Fine-tuning.
    {"frozen", 1, "tune.freeze=*wte*,*.h.0.*"},
    {"lora", 1, "tune.method=lora"},
    {"lora_zero_3", 4, "tune.method=lora parallel.zero=3"},
    {"lora_pipeline", 2, "tune.method=lora parallel.pipeline=2 memory.recompute=full"},
    {"lora_tensor", 2, "tune.method=lora parallel.tensor=2"},
    {"lora_llama_dropout", 1, "tune.method=lora model.family=llama tune.dropout=0.1 tune.scaling=sqrt"},
    {"lora_bf16_head", 1, "tune.method=lora precision.compute=bf16 model.tied=false tune.train=lm_head.*"},
    {"qlora_nf4", 1, "tune.method=lora tune.base=nf4"},
    {"qlora_nf4_zero_3", 4, "tune.method=lora tune.base=nf4 parallel.zero=3"},
    {"qlora_nf4_pipeline", 2, "tune.method=lora tune.base=nf4 parallel.pipeline=2 memory.recompute=full"},
    {"qlora_nf4_llama_bf16", 1, "tune.method=lora tune.base=nf4 model.family=llama precision.compute=bf16"},
    {"qlora_fp8", 1, "tune.method=lora tune.base=fp8"},
    {"qlora_fp8_llama_bf16", 1, "tune.method=lora tune.base=fp8 model.family=llama precision.compute=bf16"},
    {"dpo", 1, "tune.loss=dpo"},
    {"dpo_zero_3", 2, "tune.loss=dpo parallel.zero=3"},
    {"dpo_lora_smoothing", 1, "tune.loss=dpo tune.method=lora tune.label_smoothing=0.1 tune.beta=0.3"},
};

// Prompts of five tokens, and for each two answers.
class Preferences final : public data::Dataset {
 public:
  int64_t vocab() const override { return 40; }
  int64_t samples(data::Split split) const override { return split == data::Split::train ? 64 : 32; }
  bool has_pairs() const override { return true; }
  void read(data::Split split, int64_t index, std::span<int32_t> inputs,
            std::span<int32_t> labels) const override {
    const int64_t pair = index / 2 + (split == data::Split::eval ? 100 : 0), answer = index % 2;
    const auto token = [&](int64_t i) {
      return static_cast<int32_t>((13 * pair + 7 * i + (i < 5 ? 0 : answer * 3 * i)) % vocab());
    };
    const int64_t end = 5 + 2 + (pair + answer) % 4;
    for (int64_t i = 0; i < static_cast<int64_t>(inputs.size()); ++i) {
      const auto at = static_cast<size_t>(i);
      inputs[at] = i < end ? token(i) : 0;
      labels[at] = i >= 4 && i + 1 < end ? token(i + 1) : kernels::kIgnoredLabel;
    }
  }
  std::string describe() const override { return "preferences"; }
  uint64_t content_hash() const override { return 17; }
};

struct Golden {
  const char* name;
  const char* params_hash;
  const char* loss;  // of the last step, as printf's %a
  const char* eval_loss;
};

struct Column {
  const char* numerics;  // as numerics() says it
  std::vector<Golden> rows;
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"AMD EPYC, x86-64-v4, 2.11.0+cu130",
       {
           {"gpt2", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"gpt2_untied", "3d58d9625b0fb14cb7c8833a9e4db65e", "0x1.3aac22bp+2", "0x1.34af671p+2"},
           {"gpt2_dropout", "8ba73bcafec56b0460cc3296663ace62", "0x1.37f1468cp+2", "0x1.3159f898p+2"},
           {"gpt2_gelu", "f8f48b3e499b8884eaad98a8107803f1", "0x1.3872defcp+2", "0x1.31e6dbbp+2"},
           {"gpt2_quick_gelu", "020ad40fc5dceb3d0daed7bef61c9e05", "0x1.3880bb0cp+2", "0x1.31e422a8p+2"},
           {"gpt2_relu", "5761217c6a836158674cb2f4693cbabc", "0x1.374854f4p+2", "0x1.31876ec8p+2"},
           {"gpt2_relu2", "62f2b0270ebd21c76430e8223714acda", "0x1.385eb624p+2", "0x1.3237d628p+2"},
           {"gpt2_odd_sizes", "02596d02a7da4ee253b8619ae37c13aa", "0x1.29009c4cp+2", "0x1.2469513cp+2"},
           {"gpt2_other_seed", "607b4ddd2f1c0e6c948795afa9b89667", "0x1.35c33ac2p+2", "0x1.36386f98p+2"},
           {"llama", "3253830e517f6efc3dca6d3a9b34449d", "0x1.37c1b98cp+2", "0x1.31dbc708p+2"},
           {"llama_untied", "ea893fa7043ddfdc09d3b4c76e8d876f", "0x1.3a32e6bcp+2", "0x1.34a4e2d8p+2"},
           {"llama_gqa", "ad23e6a107317a5f6f70e5f295f2eda3", "0x1.386bc3c8p+2", "0x1.3243839p+2"},
           {"llama_biases", "80c4ea7c164c77e043dc270a0389fab6", "0x1.36c4ac8p+2", "0x1.30dbddf8p+2"},
           {"llama_head_dim", "058d5bf1cf311196b9cfd45b5cd286f7", "0x1.36b5bc2p+2", "0x1.2fea4578p+2"},
           {"llama_gelu_dropout", "7913e7c5e7fe68d1eab2621df4afd25f", "0x1.38d4467cp+2", "0x1.31bcf5b8p+2"},
           {"llama_theta", "0e836442bc3aff50777274062c657940", "0x1.37c1339cp+2", "0x1.31d81958p+2"},
           {"llama_rope_llama3", "783818cad9166239a5f03e7154580af2", "0x1.37c56248p+2", "0x1.31db706p+2"},
           {"llama_rope_linear", "16ebccd20d179f6ed3de928fbd2ffe30", "0x1.37c47198p+2", "0x1.31e0005p+2"},
           {"llama_rope_yarn", "47db818361d87aeaf46a07a9e057ee42", "0x1.37eb95c4p+2", "0x1.32090638p+2"},
           {"llama_rope_dynamic", "5d6b6ee028f05e74e7abfad5e3595b41", "0x1.37c11534p+2", "0x1.31d8149p+2"},
           {"llama_rope_longrope", "e74ac9b4f4d8e81276698b853e2444aa", "0x1.37bd1d1p+2", "0x1.31dfc738p+2"},
           {"mlp", "6fa90ec437a6b2ab64df966de1ce6b61", "0x1.398de198p+2", "0x1.32cc853p+2"},
           {"mlp_untied_dropout", "5d450f265ecab767e224b4e607597a0e", "0x1.3d7ef46p+2", "0x1.36448ep+2"},
           {"bf16", "d4407ca355dfd8b045c49913c0e8a421", "0x1.37ee3578p+2", "0x1.3156f848p+2"},
           {"fp16", "92ad489ac2fb5c8e6edc1e0a53af8c28", "0x1.3871e528p+2", "0x1.31ea5398p+2"},
           {"fp16_overflow", "ecc66f788e36d6317c4f3816bb762446", "0x1.425aec6p+2", "0x1.3d8a39bp+2"},
           {"fp8_tensor", "bfc5c27636b4790522ed604f037b77e1", "0x1.383b08a8p+2", "0x1.31fa5fbp+2"},
           {"fp8_row", "8d7d14d6161571e38cbcd44b8abd3696", "0x1.3836133cp+2", "0x1.31dd655p+2"},
           {"fp8_block", "ad30d97d7131778a63279502b30cdcd6", "0x1.38295f2p+2", "0x1.31c29d38p+2"},
           {"llama_bf16", "0da92182f0bbd0ccfd69854175256059", "0x1.37b9195cp+2", "0x1.31e1a0d8p+2"},
           {"llama_fp8", "c212d6c6383a2efe7dbc42c5b9339c1b", "0x1.3a162fa8p+2", "0x1.34858ff8p+2"},
           {"mlp_fp8", "392a034f1ebd7df0df902767bdbaecc4", "0x1.38eb7dccp+2", "0x1.325fd3e8p+2"},
           {"adamw_bf16_moments", "f7944ac9fe506076e378a1b7ff7d3796", "0x1.37e68408p+2", "0x1.3133a518p+2"},
           {"sgd", "3e61226be768d0877472f974cf2558fb", "0x1.45d3f6bcp+2", "0x1.41f96e8p+2"},
           {"sgd_no_momentum", "3f55a9ac270d259a15fe6c93b06ce162", "0x1.500686dcp+2", "0x1.4fcb4018p+2"},
           {"sgd_bf16_moments", "3f26188fcc3c0a4d34322fc674d48d2f", "0x1.4f1c1028p+2", "0x1.4e39f078p+2"},
           {"lion", "000cdd25a34504cdfe6febeaa70cda5e", "0x1.4bb12c6p+2", "0x1.4a17d008p+2"},
           {"lion_bf16_moments", "1bcd33cfb222548f5e01fdb8b75c0171", "0x1.35daa168p+2", "0x1.2ec3c428p+2"},
           {"no_clip", "9d19a00c16ec6a82410b5d1a33d78e4a", "0x1.386f6428p+2", "0x1.31f44e5p+2"},
           {"tight_clip", "0e674fc89a82a01875411c0e3ed53d06", "0x1.516c5074p+2", "0x1.51d94448p+2"},
           {"decay_all", "0bd16eb53d2193072df734ad56f6c85a", "0x1.380ddd8cp+2", "0x1.324629fp+2"},
           {"constant", "2598a3a87b6a3256895baeb87f9747bf", "0x1.36a5c67p+2", "0x1.299253a4p+2"},
           {"linear", "fc3099d02816707e38e6565a54780db8", "0x1.36a5c67p+2", "0x1.2d87a958p+2"},
           {"wsd", "0d105b1aa0bd70436cfe7b5e9861d6b7", "0x1.33bd0d3p+2", "0x1.2a21c93p+2"},
           {"inverse_sqrt", "e306c3dab5ad0be1cd87c6b320fd5c34", "0x1.3620ba18p+2", "0x1.2c57ddep+2"},
           {"cosine_ends_early", "a03b8d052bf318024d22598dfdd295a8", "0x1.461d3ec8p+2", "0x1.42e70cc8p+2"},
           {"one_slice", "9941709a6c32cb69cef6b0c6d35966c9", "0x1.3872d7a8p+2", "0x1.34691b04p+2"},
           {"one_strand", "d2ef541a8e809a4bbae8ea375d88eb98", "0x1.3872d798p+2", "0x1.31e6e898p+2"},
           {"eight_strands", "cee5d03c5c8bc0aa4ea23f1a33c9aa75", "0x1.3872d7bp+2", "0x1.31e20a7p+2"},
           {"logits_chunk", "6aebad4fd58901a835669fbc23650c0f", "0x1.296dffa8p+2", "0x1.2420f724p+2"},
           {"recompute_cheap", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"recompute_full", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"recompute_named", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"data_2", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"data_2_gloo", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"data_3_buckets", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"zero_1", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"zero_2", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"zero_3", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"zero_3_llama_bf16", "0da92182f0bbd0ccfd69854175256059", "0x1.37b9195cp+2", "0x1.31e1a0d8p+2"},
           {"zero_3_fp8", "bfc5c27636b4790522ed604f037b77e1", "0x1.383b08a8p+2", "0x1.31fa5fbp+2"},
           {"hsdp_2", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"hsdp_3_gloo", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"not_exact", "65875094e2e21c4bf97b6aa5ad0e9120", "0x1.3872d7a8p+2", "0x1.31e6e89p+2"},
           {"not_exact_bf16_wire", "81a8d9fe649906b6b3579036680bef7c", "0x1.386f5c4cp+2", "0x1.31e68518p+2"},
           {"tensor", "f910f5106bf7fd360c66bdfdea920c21", "0x1.3872d7ap+2", "0x1.31e6e928p+2"},
           {"tensor_gloo", "f910f5106bf7fd360c66bdfdea920c21", "0x1.3872d7ap+2", "0x1.31e6e928p+2"},
           {"tensor_4_odd_vocabulary", "446d6c0233ce7d1991a9429e3b4e37ce", "0x1.296dff8ap+2",
            "0x1.2420f7p+2"},
           {"tensor_sequence_dropout", "976f6529e1f0840555fb39a0ad6e9ca4", "0x1.37f1468cp+2",
            "0x1.3159f8b8p+2"},
           {"tensor_llama_gqa", "b04fbba8e60fc880cb1cf8efe620121b", "0x1.386bc3dp+2", "0x1.32438388p+2"},
           {"tensor_mlp", "08aa28e1296fdc2427dd4574095e2c32", "0x1.398dded4p+2", "0x1.32cc8cfp+2"},
           {"context_ring", "657cce06d4dacb2956348b51bf284680", "0x1.3872d7ap+2", "0x1.31e6e8cp+2"},
           {"context_ring_4_llama", "39f60a0f36f33862ddb23a69a943b7a1", "0x1.37c1b9ap+2", "0x1.31dbc6ep+2"},
           {"context_heads", "2e6c3f016f9285633e85329d1f5d718a", "0x1.3872d7b8p+2", "0x1.31e6e858p+2"},
           {"context_heads_llama_gqa", "22b0d583381d6307535156833880f88b", "0x1.386bc3fp+2",
            "0x1.3243837p+2"},
           {"gpipe", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"one_f_one_b", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"interleaved", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"zero_bubble", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"stages_by_hand", "3d58d9625b0fb14cb7c8833a9e4db65e", "0x1.3aac22bp+2", "0x1.34af671p+2"},
           {"pipeline_mlp", "6fa90ec437a6b2ab64df966de1ce6b61", "0x1.398de198p+2", "0x1.32cc853p+2"},
           {"pipeline_zero_3", "2127e68730ac740604d242d40f517d61", "0x1.3872d7bp+2", "0x1.31e6e89p+2"},
           {"tensor_zero_3", "f910f5106bf7fd360c66bdfdea920c21", "0x1.3872d7ap+2", "0x1.31e6e928p+2"},
           {"tensor_pipeline", "27033933d1a6033432a75debefa6329b", "0x1.37c1b9dp+2", "0x1.31dbc81p+2"},
           {"context_zero_2", "e6846193c37c2ec6cb8d9374b3cefa3a", "0x1.3872d7acp+2", "0x1.31e6e87p+2"},
           {"context_tensor", "a5af0739c8f13f2e8d2f6457134b37a9", "0x1.3872d7ap+2", "0x1.31e6e898p+2"},
           {"context_pipeline", "657cce06d4dacb2956348b51bf284680", "0x1.3872d7ap+2", "0x1.31e6e8cp+2"},
           {"muon", "6010435014a143d63cef28ed5c1a6d97", "0x1.38530954p+2", "0x1.31ae40fp+2"},
           {"muon_zero_2", "6010435014a143d63cef28ed5c1a6d97", "0x1.38530954p+2", "0x1.31ae40fp+2"},
           {"muon_tensor", "b809edbbdb64b03225d7ba17b094a74a", "0x1.3853093p+2", "0x1.31ae41p+2"},
           {"muon_tensor_llama_bf16_zero_3", "f4c8f790eab8189f15299039e66d0e81", "0x1.465758p+2",
            "0x1.43a2c1ep+2"},
           {"frozen", "808ed70d35102d0d0405e601c5e084d4", "0x1.4b720a54p+2", "0x1.4a48df98p+2"},
           {"lora", "560d1c9a0d541791990396e00d261673", "0x1.4c4f0f44p+2", "0x1.4b1bc738p+2"},
           {"lora_zero_3", "560d1c9a0d541791990396e00d261673", "0x1.4c4f0f44p+2", "0x1.4b1bc738p+2"},
           {"lora_pipeline", "560d1c9a0d541791990396e00d261673", "0x1.4c4f0f44p+2", "0x1.4b1bc738p+2"},
           {"lora_tensor", "64743657dcf30518230c737e636cc45b", "0x1.4c4f0f3p+2", "0x1.4b1bc74p+2"},
           {"lora_llama_dropout", "0ccdf9831c17997736b5b60288cbcc0d", "0x1.4cc47c68p+2", "0x1.4ad8af6p+2"},
           {"lora_bf16_head", "da682f6c61e158306959f862d8139207", "0x1.3ade12f4p+2", "0x1.364bdb08p+2"},
           {"qlora_nf4", "7c0a610e25723562dfea5b8c46a8e7d5", "0x1.4c47017cp+2", "0x1.4b08fbap+2"},
           {"qlora_nf4_zero_3", "7c0a610e25723562dfea5b8c46a8e7d5", "0x1.4c47017cp+2", "0x1.4b08fbap+2"},
           {"qlora_nf4_pipeline", "7c0a610e25723562dfea5b8c46a8e7d5", "0x1.4c47017cp+2", "0x1.4b08fbap+2"},
           {"qlora_nf4_llama_bf16", "6862d8173784b66cdd444307ee898264", "0x1.4d842e9p+2", "0x1.4b7c2798p+2"},
           {"qlora_fp8", "094f52f44ef951bddcea2866af741e8f", "0x1.4c47ef5p+2", "0x1.4b1294c8p+2"},
           {"qlora_fp8_llama_bf16", "caed23203635086c8964f9d28af6ada0", "0x1.4db46218p+2", "0x1.4b8a5d7p+2"},
           {"dpo", "9785eab516db92e391bad76d411bbf55", "0x1.5976d4b8d0069p-1", "0x1.56bfe82ea4a59p-1"},
           {"dpo_zero_3", "9785eab516db92e391bad76d411bbf55", "0x1.5976d4b8d0069p-1", "0x1.56bfe82ea4a59p-1"},
           {"dpo_lora_smoothing", "067a2077e39d106f970cb50cb27918e2", "0x1.4d2a5d805aaep-1",
            "0x1.456107046afe9p-1"},
       }},
  };
  return all;
}

// The part of the numerics record that is the machine's.
std::string numerics() {
  const nlohmann::json record = make_record(make_plan(tiny_recipe(), {}));
  std::string text;
  for (const char* key : {"device", "instruction_set", "libtorch"})
    text += (text.empty() ? "" : ", ") + record.at(key).get<std::string>();
  return text;
}

const Golden* find(const std::string& numerics, const std::string& name) {
  for (const Column& column : columns()) {
    if (column.numerics != numerics) continue;
    for (const Golden& golden : column.rows) {
      if (golden.name == name) return &golden;
    }
  }
  return nullptr;
}

bool has_column(const std::string& numerics) {
  for (const Column& column : columns()) {
    if (column.numerics == numerics) return true;
  }
  return false;
}

std::vector<std::string> recipe_of(const Row& row) {
  std::vector<std::string> words = {"run.steps=4",     "model.hidden=32",    "model.heads=4",
                                    "data.seq_len=16", "log.eval_batches=2", "batch.strands=4"};
  std::istringstream more(row.words);
  for (std::string word; more >> word;) words.push_back(word);
  return words;
}

struct Bits {
  std::string params_hash, loss, eval_loss;
};

Bits train_row(const Row& row) {
  Bits first;
  on_ranks(row.ranks, row.engine, [&](comm::World& world) {
    Ranks ranks(world);
    const bool pairs = std::string(row.words).find("tune.loss=dpo") != std::string::npos;
    Own own;
    if (pairs) own.dataset = std::make_shared<Preferences>();
    Session session(make_plan(tiny_recipe(recipe_of(row)), own, for_this(ranks)), &ranks);
    Observer nobody;
    const Summary summary = train(session, {}, nobody);
    if (world.rank() == 0)
      first = {summary.params_hash, fmt::format("{:a}", summary.last_loss),
               fmt::format("{:a}", summary.eval_loss.value_or(0))};
  });
  return first;
}

class GoldenHashes : public testing::TestWithParam<Row> {};

TEST_P(GoldenHashes, AreUnchanged) {
  LS_NEEDS_HOST_MEMORY();
  const Row& row = GetParam();
  if (std::getenv("LOCKSTEP_PRINT_GOLDEN") != nullptr) {
    const Bits bits = train_row(row);
    std::printf("{\"%s\", \"%s\", \"%s\", \"%s\"},\n", row.name, bits.params_hash.c_str(), bits.loss.c_str(),
                bits.eval_loss.c_str());
    GTEST_SKIP() << "printed, not compared";
  }
  const std::string here = numerics();
  if (!has_column(here)) {
    GTEST_SKIP() << "no column of hashes for \"" << here
                 << "\"; LOCKSTEP_PRINT_GOLDEN=1 prints the rows of one: add them to columns()";
  }
  const Golden* golden = find(here, row.name);
  ASSERT_NE(golden, nullptr) << "no hash of this row; LOCKSTEP_PRINT_GOLDEN=1 prints it";
  const Bits bits = train_row(row);
  EXPECT_EQ(bits.params_hash, golden->params_hash);
  EXPECT_EQ(bits.loss, golden->loss);
  EXPECT_EQ(bits.eval_loss, golden->eval_loss);
}

INSTANTIATE_TEST_SUITE_P(Recipes, GoldenHashes, testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

// Every column names the rows and nothing else, and the promise of equal bits holds inside it.
TEST(GoldenColumns, HoldWhatTheRowsAreAndPromise) {
  for (const Column& column : columns()) {
    SCOPED_TRACE(column.numerics);
    std::set<std::string> names, rows;
    for (const Row& row : kRows) rows.insert(row.name);
    for (const Golden& golden : column.rows) names.insert(golden.name);
    EXPECT_EQ(names, rows);
    const std::string one = find(column.numerics, "gpt2")->params_hash;
    for (const char* same : {"recompute_cheap", "recompute_full", "recompute_named", "data_2", "data_2_gloo",
                             "zero_1", "zero_2", "zero_3", "hsdp_2", "hsdp_3_gloo", "gpipe", "one_f_one_b",
                             "interleaved", "zero_bubble", "pipeline_zero_3"})
      EXPECT_EQ(find(column.numerics, same)->params_hash, one) << same;
    for (const auto& [same, as] : {std::pair{"muon_zero_2", "muon"},
                                   {"lora_zero_3", "lora"},
                                   {"lora_pipeline", "lora"},
                                   {"qlora_nf4_zero_3", "qlora_nf4"},
                                   {"qlora_nf4_pipeline", "qlora_nf4"},
                                   {"dpo_zero_3", "dpo"}})
      EXPECT_EQ(find(column.numerics, same)->params_hash, find(column.numerics, as)->params_hash) << same;
  }
}

}  // namespace
}  // namespace lockstep::run

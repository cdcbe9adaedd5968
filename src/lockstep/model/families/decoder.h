// Layers of decoder-only transformers: the segments of one, from what a family says is particular to it.
//
// What families differ in is a member here; what the sizes are is the recipe's [model] section. A member that
// is left out is absent from the layer:
//
//     decoder_layer({recipe, compute, parts, i},
//                   {.attention_norm = "input_layernorm", .ffn_norm = "post_attention_layernorm",
//                    .qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, ...});
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/model/families/family.h"
#include "lockstep/model/segments/norm_linear.h"
#include "lockstep/model/segments/rope.h"

namespace lockstep::model {

// Names are canonical, without ".weight", behind `prefix`.
struct DecoderLayer {
  std::string prefix;  // "model.layers.3."
  kernels::NormKind norm = kernels::NormKind::rms;
  float norm_offset = 0;                           // added to the weights of every norm
  std::string attention_norm, ffn_norm;            // before the maps; none: they read the residual itself
  std::string attention_post_norm, ffn_post_norm;  // behind them
  std::vector<std::string> qkv;                    // q, k and v apart, or one name for the three side by side
  bool interleaved = false;                        // one name: q, k and v of each head lie together
  bool qkv_bias = false;
  std::string q_norm, k_norm;
  bool whole_qk_norm = false;  // over all heads of a token at once
  std::string out;
  bool out_bias = false;
  std::vector<std::string> up;  // gated: gate and up apart, or one name for both; else the one map
  bool gated = true;
  std::string down;
  bool ffn_bias = false;
  // Attention and the feed-forward part read the same residual, and are added at once. Without ffn_norm they
  // read the same norm of it.
  bool parallel = false;
  kernels::ScoreOptions scores{};
  std::optional<RopeOptions> rope{};  // none: the layer knows no positions
};

// Where a layer stands.
struct LayerPlace {
  const recipe::Recipe& recipe;
  DType compute = DType::f32;
  Parts parts{};
  int64_t number = 0;
};
Block decoder_layer(const LayerPlace& place, const DecoderLayer& layer);

// The norm behind the last layer.
NormOptions last_norm(const recipe::Recipe::Model& model, kernels::NormKind kind, std::string name,
                      float offset = 0);

// ---- keys that several families read

std::vector<std::string> window_keys();  // model.sliding_window, model.layer_types
// Keys of all these lists, for Family::reads.
std::vector<std::string> keys_of(const std::vector<std::vector<std::string>>& lists);
// Whether layer `number` has the sliding window.
bool slides(const recipe::Recipe::Model& model, int64_t number);
// Window, cap and scale of that layer, as the keys say.
kernels::ScoreOptions score_options(const recipe::Recipe::Model& model, int64_t number);

// The usual sizes of a Llama-like config.json, with the defaults that transformers has for this model.
struct UsualSizes {
  int64_t hidden = 4096, heads = 32, layers = 32, ffn = 11008, context = 2048, vocab = 32000;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  double epsilon = 1e-6;
  bool tied = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  const char* epsilon_key = "rms_norm_eps";
};
ConfigSettings read_sizes(const ConfigReader& config, const UsualSizes& usual);
void write_sizes(const recipe::Recipe::Model& model, const UsualSizes& usual, ConfigWriter& config);
// transformers' layer_types ("sliding_attention", "full_attention") as model.layer_types: in turns, as short
// as it gets. Refuses other types.
std::string read_layer_types(const ConfigReader& config, int64_t layers);
std::vector<std::string> written_layer_types(const recipe::Recipe::Model& model);

}  // namespace lockstep::model

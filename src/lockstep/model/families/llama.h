// What the descendants of Llama share with it: the names of their weights, and all of a layer that they leave
// as it is. A family changes the rest:
//
//     return build_llama_like(recipe, compute, parts, [](int64_t, DecoderLayer& layer) {
//       layer.q_norm = "self_attn.q_norm";
//     });
#pragma once

#include <functional>

#include "lockstep/model/families/decoder.h"

namespace lockstep::model {

constexpr const char* kLlamaTokens = "model.embed_tokens";
constexpr const char* kLlamaHead = "lm_head";

struct LlamaLikeOptions {
  float norm_offset = 0;
  double embedding_scale = 1;
};
// `change` gets the number of a layer and what a Llama has there.
Model build_llama_like(const recipe::Recipe& recipe, DType compute, const Parts& parts,
                       const std::function<void(int64_t, DecoderLayer&)>& change,
                       const LlamaLikeOptions& options = {});

HuggingFace llama_like(const char* model_type, const char* architecture,
                       std::function<ConfigSettings(const ConfigReader&)> read,
                       std::function<void(const recipe::Recipe::Model&, ConfigWriter&)> write);

// 8/3 of the width, up to a multiple of 64.
int64_t gated_ffn(const recipe::Recipe::Model& model);

}  // namespace lockstep::model

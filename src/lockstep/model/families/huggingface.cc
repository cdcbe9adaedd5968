#include "lockstep/model/families/huggingface.h"

#include <nlohmann/json.hpp>

#include "lockstep/model/segments/activation.h"
#include "lockstep/model/segments/rope.h"

namespace lockstep::model {

namespace {

nlohmann::json rope_scaling(const recipe::Recipe::Model& m) {
  nlohmann::json r = {{"rope_type", m.rope_type}, {"factor", m.rope_scaling}};
  if (m.rope_type == "linear" || m.rope_type == "dynamic") return r;
  r["original_max_position_embeddings"] = m.rope_original_context;
  if (m.rope_attention > 0 && m.rope_type != "llama3") r["attention_factor"] = m.rope_attention;
  if (m.rope_type == "longrope") {
    r["short_factor"] = rope_factors(m.rope_short_factor);
    r["long_factor"] = rope_factors(m.rope_long_factor);
    return r;
  }
  const bool yarn = m.rope_type == "yarn";
  r[yarn ? "beta_slow" : "low_freq_factor"] = m.rope_low_freq;
  r[yarn ? "beta_fast" : "high_freq_factor"] = m.rope_high_freq;
  return r;
}

// Dynamic scaling begins where transformers reads the model's length, however long the sequences are here.
int64_t positions(const recipe::Recipe::Model& m) {
  return m.rope_scaling > 0 && m.rope_type == "dynamic" ? m.rope_original_context : m.context.value;
}

}  // namespace

std::string huggingface_config(const recipe::Recipe& recipe) {
  const auto& m = recipe.model;
  nlohmann::json c;
  if (m.family == "gpt2") {
    c = {{"architectures", {"GPT2LMHeadModel"}},
         {"model_type", "gpt2"},
         {"activation_function", activation_name(m)},
         {"n_embd", m.hidden},
         {"n_layer", m.layers},
         {"n_head", m.heads},
         {"n_inner", m.ffn.value},
         {"n_positions", m.context.value},
         {"n_ctx", m.context.value},
         {"layer_norm_epsilon", m.norm_epsilon},
         {"embd_pdrop", m.dropout},
         {"resid_pdrop", m.dropout},
         {"attn_pdrop", 0.0}};
  } else if (m.family == "llama") {
    c = {{"architectures", {"LlamaForCausalLM"}},   {"model_type", "llama"},
         {"hidden_act", activation_name(m)},        {"hidden_size", m.hidden},
         {"num_hidden_layers", m.layers},           {"num_attention_heads", m.heads},
         {"num_key_value_heads", m.kv_heads.value}, {"head_dim", m.head_dim.value},
         {"intermediate_size", m.ffn.value},        {"max_position_embeddings", positions(m)},
         {"rms_norm_eps", m.norm_epsilon},          {"rope_theta", m.rope_theta},
         {"attention_bias", m.attention_bias},      {"mlp_bias", m.mlp_bias}};
    if (m.rope_scaling > 0) c["rope_scaling"] = rope_scaling(m);
  } else {
    return "";
  }
  c["vocab_size"] = m.vocab.value;
  c["tie_word_embeddings"] = m.tied;
  c["torch_dtype"] = "float32";
  c["initializer_range"] = m.init_std;
  c["bos_token_id"] = nullptr;
  c["eos_token_id"] = nullptr;
  return c.dump(2) + "\n";
}

std::string embedding_name(const std::string& family) {
  const std::string table = family == "gpt2" ? kGpt2Tokens : family == "llama" ? kLlamaTokens : "";
  return table.empty() ? "" : table + ".weight";
}

}  // namespace lockstep::model

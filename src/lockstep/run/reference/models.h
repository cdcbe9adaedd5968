// GPT-2, Llama and the plain MLP, written out in fp64 over Hugging Face's names. For tests.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/run/reference/random.h"
#include "lockstep/run/reference/tape.h"
#include "lockstep/run/reference/words.h"

namespace lockstep::reference {

using Weights = std::map<std::string, Node>;

// Which slice of which step is computed; training drops, evaluation does not.
struct Pass {
  uint64_t step = 0;
  uint32_t slice = 0;
  bool training = false;
};

class LanguageModel {
 public:
  LanguageModel(const Words& words, Weights& weights) : words_(words), weights_(weights) {}

  // Logits of samples of `seq_len` tokens, one behind the other.
  Node logits(Tape& tape, const std::vector<int32_t>& tokens, size_t seq_len, const Pass& pass) {
    tape_ = &tape, seq_len_ = seq_len, pass_ = pass;
    const std::string family = words_.text("model.family", "gpt2");
    const Node x = family == "gpt2" ? gpt2(tokens) : family == "llama" ? llama(tokens) : mlp(tokens);
    const std::string table = family == "gpt2"    ? "transformer.wte.weight"
                              : family == "llama" ? "model.embed_tokens.weight"
                                                  : "embedding.weight";
    const std::string head = family == "mlp" ? "head.weight" : "lm_head.weight";
    return tape.product(x, w(words_.flag("model.tied", true) ? table : head), Tape::Stored::out_in);
  }

 private:
  const Node& w(const std::string& name) const { return weights_.at(name); }
  size_t layers() const { return words_.count("model.layers", 4); }

  Node norm(const Node& x, const std::string& name) {
    const double epsilon = words_.number("model.norm_epsilon", 1e-5);
    const auto bias = weights_.find(name + ".bias");
    return tape_->norm(x, w(name + ".weight"), bias == weights_.end() ? nullptr : bias->second, epsilon);
  }
  Node conv(const Node& x, const std::string& name) {  // Hugging Face's Conv1D
    return tape_->plus_row(tape_->product(x, w(name + ".weight"), Tape::Stored::in_out), w(name + ".bias"));
  }
  Node linear(const Node& x, const std::string& name) {
    return tape_->product(x, w(name + ".weight"), Tape::Stored::out_in);
  }
  Node dropped(const Node& x, size_t site) {
    const double rate = words_.number("model.dropout", 0);
    if (!pass_.training || rate == 0) return x;
    const Mask mask{.seed = words_.count("run.seed", 1),
                    .step = pass_.step,
                    .slice = pass_.slice,
                    .site = static_cast<uint32_t>(site),
                    .rate = rate};
    std::vector<double> factors(x->value.size());
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = mask.factor(i);
    return tape_->scaled(x, factors);
  }
  Node embedded(const std::string& table, const std::vector<int32_t>& tokens) {
    return tape_->rows_of(w(table), {tokens.begin(), tokens.end()});
  }

  Node gpt2(const std::vector<int32_t>& tokens) {
    std::vector<size_t> positions(tokens.size());
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = i % seq_len_;
    Node x = tape_->plus(embedded("transformer.wte.weight", tokens),
                         tape_->rows_of(w("transformer.wpe.weight"), positions));
    x = dropped(x, 0);
    const size_t hidden = x->columns, heads = words_.count("model.heads", 4);
    for (size_t i = 0; i < layers(); ++i) {
      const std::string name = "transformer.h." + std::to_string(i) + ".";
      const Node qkv = conv(norm(x, name + "ln_1"), name + "attn.c_attn");
      const Node context = tape_->attention(
          tape_->columns_of(qkv, 0, hidden), tape_->columns_of(qkv, hidden, hidden),
          tape_->columns_of(qkv, 2 * hidden, hidden), {seq_len_, heads, heads, hidden / heads});
      x = tape_->plus(x, dropped(conv(context, name + "attn.c_proj"), 1 + 2 * i));
      const Node act = tape_->gelu(conv(norm(x, name + "ln_2"), name + "mlp.c_fc"));
      x = tape_->plus(x, dropped(conv(act, name + "mlp.c_proj"), 2 + 2 * i));
    }
    return norm(x, "transformer.ln_f");
  }

  Node llama(const std::vector<int32_t>& tokens) {
    Node x = dropped(embedded("model.embed_tokens.weight", tokens), 0);
    const size_t heads = words_.count("model.heads", 4), keys = words_.count("model.kv_heads", heads);
    const size_t width = words_.count("model.head_dim", x->columns / heads);
    const double theta = words_.number("model.rope_theta", 10000);
    for (size_t i = 0; i < layers(); ++i) {
      const std::string name = "model.layers." + std::to_string(i) + ".";
      const Node h = norm(x, name + "input_layernorm");
      const Node context =
          tape_->attention(tape_->rotated(linear(h, name + "self_attn.q_proj"), seq_len_, width, theta),
                           tape_->rotated(linear(h, name + "self_attn.k_proj"), seq_len_, width, theta),
                           linear(h, name + "self_attn.v_proj"), {seq_len_, heads, keys, width});
      x = tape_->plus(x, dropped(linear(context, name + "self_attn.o_proj"), 1 + 2 * i));
      const Node m = norm(x, name + "post_attention_layernorm");
      const Node act =
          tape_->times(tape_->silu(linear(m, name + "mlp.gate_proj")), linear(m, name + "mlp.up_proj"));
      x = tape_->plus(x, dropped(linear(act, name + "mlp.down_proj"), 2 + 2 * i));
    }
    return norm(x, "model.norm");
  }

  Node mlp(const std::vector<int32_t>& tokens) {
    Node x = dropped(embedded("embedding.weight", tokens), 0);
    for (size_t i = 0; i < layers(); ++i) {
      const std::string name = "layers." + std::to_string(i) + ".";
      const Node up = tape_->plus_row(linear(norm(x, name + "norm"), name + "up"), w(name + "up.bias"));
      const Node down = tape_->plus_row(linear(tape_->gelu(up), name + "down"), w(name + "down.bias"));
      x = tape_->plus(x, dropped(down, 1 + i));
    }
    return norm(x, "norm");
  }

  const Words& words_;
  Weights& weights_;
  Tape* tape_ = nullptr;
  size_t seq_len_ = 0;
  Pass pass_;
};

}  // namespace lockstep::reference

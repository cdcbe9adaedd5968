#include "lockstep/model/families/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "lockstep/base/text.h"
#include "lockstep/model/families/fp8_recipe.h"
#include "lockstep/model/families/huggingface_config.h"
#include "lockstep/model/segments/parts.h"

namespace lockstep::model {

namespace {

using ModelKeys = recipe::Recipe::Model;

constexpr const char* kFfnNormed = "ffn_normed";

// The segments of one layer, added one after the other.
class LayerBuilder {
 public:
  LayerBuilder(const LayerPlace& place, const DecoderLayer& layer)
      : place_(place),
        l_(layer),
        m_(place.recipe.model),
        fp8_(fp8_of_layer(place.recipe, place.number)),
        std_(static_cast<float>(m_.init_std)) {}

  Block build() {
    if (l_.parallel && l_.ffn_norm.empty()) add_shared_norm();
    add_qkv();
    add_attention(segments_, {place_.compute, m_.heads, m_.kv_heads.value, m_.head_dim.value, rope(),
                              place_.parts, l_.scores, place_.recipe.data.pack});
    add_projection("out", "context", l_.out, q_width(), l_.out_bias, 0);
    add_post_norm("out_norm", l_.attention_post_norm);
    add_up();
    add_projection("down", "act", l_.down, m_.ffn.value, l_.ffn_bias, 1);
    add_post_norm("down_norm", l_.ffn_post_norm);
    return {fmt::format("layer {}", place_.number), std::move(segments_)};
  }

 private:
  int64_t q_width() const { return m_.heads * m_.head_dim.value; }
  int64_t kv_width() const { return m_.kv_heads.value * m_.head_dim.value; }
  bool first_adds() const { return place_.number > 0; }  // the embedding leaves only a residual
  bool norms_heads() const { return !l_.q_norm.empty(); }
  std::optional<RopeOptions> rope() const {
    std::optional<RopeOptions> rope = l_.rope;
    if (rope) rope->documents = place_.recipe.data.pack;
    return rope;
  }

  NormOptions norm(const std::string& name, bool adds) const {
    return {.kind = l_.norm,
            .width = m_.hidden,
            .epsilon = static_cast<float>(m_.norm_epsilon),
            .name = l_.prefix + name,
            .adds = adds,
            .weight_offset = l_.norm_offset};
  }
  LinearMap map(int64_t in, int64_t out, bool bias) const {
    return {.in = in, .out = out, .bias = bias, .type = place_.compute, .fp8 = fp8_};
  }

  // Over strands, gradients of what attention read and of what the feed-forward part read are added up apart.
  void add_shared_norm() {
    NormOptions options = norm(l_.attention_norm, first_adds());
    if (place_.parts.fixes_products()) options.again = kFfnNormed;
    segments_.push_back(make_norm("attention_norm", std::move(options), place_.compute, place_.parts));
    shares_norm_ = true;
  }

  // A map behind a norm, or behind what stands in its place.
  void add_map(NormLinearOptions options, const std::string& norm_name, bool adds) {
    options.init_std = std_;
    options.parts = place_.parts;
    if (!shares_norm_ && norm_name.empty()) {
      segments_.push_back(make_sum(options.segment + "_sum", norm("", adds), place_.compute, place_.parts));
    } else if (!shares_norm_) {
      options.norm = norm(norm_name, adds);
    }
    add_norm_linear(segments_, std::move(options));
  }

  void add_qkv() {
    const int64_t q = q_width(), kv = kv_width();
    NormLinearOptions options{.segment = "qkv",
                              .output = norms_heads() ? "raw" : "qkv",
                              .shares_input = shares_norm_ && !place_.parts.fixes_products(),
                              .map = map(m_.hidden, q + 2 * kv, l_.qkv_bias),
                              .rope = norms_heads() ? std::nullopt : rope(),
                              .columns = {q, kv, kv}};
    if (l_.qkv.size() == 3) {
      const int64_t widths[] = {q, kv, kv};
      for (size_t i = 0; i < 3; ++i) options.weights.push_back({l_.prefix + l_.qkv[i], widths[i]});
    } else if (l_.interleaved) {
      options.weights = {{l_.prefix + l_.qkv[0], 3 * q}};
      options.interleaved = m_.heads;
    } else {
      options.weights = {{l_.prefix + l_.qkv[0], q + 2 * kv, 3, {q, kv, kv}}};
    }
    add_map(std::move(options), l_.attention_norm, first_adds());
    if (!norms_heads()) return;
    add_qk_norm(segments_, {.type = place_.compute,
                            .heads = m_.heads,
                            .kv_heads = m_.kv_heads.value,
                            .head_dim = m_.head_dim.value,
                            .whole = l_.whole_qk_norm,
                            .epsilon = static_cast<float>(m_.norm_epsilon),
                            .weight_offset = l_.norm_offset,
                            .q_name = l_.prefix + l_.q_norm,
                            .k_name = l_.prefix + l_.k_norm,
                            .rope = rope(),
                            .parts = place_.parts});
  }

  void add_up() {
    const int64_t ffn = m_.ffn.value, out = l_.gated ? 2 * ffn : ffn;
    NormLinearOptions options{.segment = "up",
                              .output = "act",
                              .map = map(m_.hidden, out, l_.ffn_bias),
                              .activation = l_.gated ? Activation::gated : Activation::plain};
    options.map.curve = activation_of(m_);
    if (shares_norm_ && place_.parts.fixes_products()) options.input = kFfnNormed;
    if (l_.up.size() == 1) {
      options.weights = {{l_.prefix + l_.up[0], out, l_.gated ? 2 : 1}};
    } else {
      for (const std::string& name : l_.up) options.weights.push_back({l_.prefix + name, ffn});
    }
    add_map(std::move(options), l_.ffn_norm, !l_.parallel);
  }

  // Where both halves of the layer are added at once, the first one's output waits for the second's.
  void add_projection(const std::string& segment, const std::string& input, const std::string& name,
                      int64_t in, bool bias, uint32_t half) {
    ProjectionOptions options{
        .segment = segment,
        .input = input,
        .name = l_.prefix + name,
        .map = map(in, m_.hidden, bias),
        .dropout = {static_cast<float>(m_.dropout), static_cast<uint32_t>(1 + 2 * place_.number) + half},
        .init_std = std_ / std::sqrt(2.0f * static_cast<float>(m_.layers)),
        .parts = place_.parts};
    if (half == 0 && l_.parallel) options.output = "attended";
    if (half == 1 && l_.parallel) options.adds = "attended";
    if (half == 1 && l_.gated) options.takes_amax = true;
    if (half == 1 && !l_.gated) {
      options.curve_of = "linear";
      options.map.curve = activation_of(m_);
    }
    segments_.push_back(make_projection(std::move(options)));
  }

  void add_post_norm(const std::string& segment, const std::string& name) {
    if (!name.empty())
      segments_.push_back(make_post_norm(segment, norm(name, false), place_.compute, place_.parts));
  }

  const LayerPlace& place_;
  const DecoderLayer& l_;
  const ModelKeys& m_;
  std::optional<Fp8Products> fp8_;
  float std_;
  bool shares_norm_ = false;
  std::vector<std::unique_ptr<Segment>> segments_;
};

// "sliding*5,full" as one word a layer of the pattern.
std::vector<bool> sliding_pattern(const std::string& text) {
  std::vector<bool> pattern;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t star = part.find('*');
    const int count = star == std::string::npos ? 1 : std::stoi(part.substr(star + 1));
    pattern.insert(pattern.end(), static_cast<size_t>(count), part.find("sliding") != std::string::npos);
  }
  return pattern;
}

// The shortest pattern that gives these in turns.
std::string pattern_text(const std::vector<bool>& sliding) {
  size_t period = 1;
  const auto repeats = [&] {
    for (size_t i = period; i < sliding.size(); ++i) {
      if (sliding[i] != sliding[i - period]) return false;
    }
    return true;
  };
  while (!repeats()) ++period;
  std::vector<std::string> parts;
  for (size_t i = 0, next = 0; i < period; i = next) {
    for (next = i; next < period && sliding[next] == sliding[i];) ++next;
    const std::string count = next - i > 1 ? fmt::format("*{}", next - i) : "";
    parts.push_back((sliding[i] ? "sliding" : "full") + count);
  }
  return base::join(parts, ",");
}

}  // namespace

Block decoder_layer(const LayerPlace& place, const DecoderLayer& layer) {
  return LayerBuilder(place, layer).build();
}

NormOptions last_norm(const ModelKeys& m, kernels::NormKind kind, std::string name, float offset) {
  return {.kind = kind,
          .width = m.hidden,
          .epsilon = static_cast<float>(m.norm_epsilon),
          .name = std::move(name),
          .adds = m.layers > 0,
          .weight_offset = offset};
}

std::vector<std::string> window_keys() { return {"model.sliding_window", "model.layer_types"}; }

std::vector<std::string> keys_of(const std::vector<std::vector<std::string>>& lists) {
  std::vector<std::string> all;
  for (const auto& some : lists) all.insert(all.end(), some.begin(), some.end());
  return all;
}

bool slides(const ModelKeys& m, int64_t number) {
  if (m.sliding_window == 0) return false;
  const std::vector<bool> pattern = sliding_pattern(m.layer_types);
  return pattern.empty() || pattern[static_cast<size_t>(number) % pattern.size()];
}

kernels::ScoreOptions score_options(const ModelKeys& m, int64_t number) {
  return {.window = slides(m, number) ? m.sliding_window : 0,
          .softcap = static_cast<float>(m.attn_softcap),
          .scale = m.query_scalar > 0 ? static_cast<float>(1 / std::sqrt(m.query_scalar)) : 0.0f};
}

ConfigSettings read_sizes(const ConfigReader& c, const UsualSizes& usual) {
  const int64_t hidden = c.size("hidden_size", usual.hidden),
                heads = c.size("num_attention_heads", usual.heads);
  const int64_t kv_heads = usual.kv_heads > 0 && !c.names("num_key_value_heads") ? usual.kv_heads : heads;
  const int64_t head_dim = usual.head_dim > 0 ? usual.head_dim : hidden / heads;
  return {{"model.layers", toml(c.size("num_hidden_layers", usual.layers))},
          {"model.hidden", toml(hidden)},
          {"model.heads", toml(heads)},
          {"model.kv_heads", toml(c.size("num_key_value_heads", kv_heads))},
          {"model.head_dim", toml(c.size("head_dim", head_dim))},
          {"model.ffn", toml(c.size("intermediate_size", usual.ffn))},
          {"model.context", toml(c.size("max_position_embeddings", usual.context)), true},
          {"model.norm_epsilon", toml(c.number(usual.epsilon_key, usual.epsilon))},
          {"model.tied", toml(c.truth("tie_word_embeddings", usual.tied))},
          {"model.activation", c.activation(usual.activation_key, usual.activation)},
          {"model.vocab", toml(c.size("vocab_size", usual.vocab))}};
}

void write_sizes(const ModelKeys& m, const UsualSizes& usual, ConfigWriter& c) {
  c[usual.activation_key] = activation_name(m);
  c["hidden_size"] = m.hidden;
  c["num_hidden_layers"] = m.layers;
  c["num_attention_heads"] = m.heads;
  c["num_key_value_heads"] = m.kv_heads.value;
  c["intermediate_size"] = m.ffn.value;
  c[usual.epsilon_key] = m.norm_epsilon;
}

std::string read_layer_types(const ConfigReader& c, int64_t layers) {
  std::vector<bool> sliding;
  for (const std::string& type : c.texts("layer_types")) {
    if (type != "sliding_attention" && type != "full_attention") {
      c.refuse(fmt::format("layer_types names {}; there are sliding_attention and full_attention",
                           base::quoted(type)));
    }
    sliding.push_back(type == "sliding_attention");
  }
  if (static_cast<int64_t>(sliding.size()) != layers)
    c.refuse(fmt::format("layer_types names {} layers, and there are {}", sliding.size(), layers));
  return pattern_text(sliding);
}

std::vector<std::string> written_layer_types(const ModelKeys& m) {
  std::vector<std::string> types;
  for (int64_t i = 0; i < m.layers; ++i)
    types.push_back(slides(m, i) ? "sliding_attention" : "full_attention");
  return types;
}

}  // namespace lockstep::model

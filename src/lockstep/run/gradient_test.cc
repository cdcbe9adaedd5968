// Every gradient of every family against differences of the loss, one parameter at a time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/philox.h"
#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

struct Row {
  const char* name;
  std::vector<std::string> overrides;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class Gradients : public testing::TestWithParam<Row> {};

// The gradient of one parameter, summed over slices, strands and tied slots.
std::vector<float> gradient_of(const Session& session, const std::string& name) {
  for (size_t b = 0; b < session.plan.model->blocks.size(); ++b) {
    const model::BlockLayout layout = model::layout_of(session.plan.model->blocks[b]);
    for (const model::PlacedParam& p : layout.params) {
      if (p.spec.name != name || !p.spec.tied_to.empty()) continue;
      const float* flat = gradient_of_block(session, b).as<float>();
      return {flat + p.offset, flat + p.offset + p.spec.shape.numel()};
    }
  }
  return {};
}

TEST_P(Gradients, EqualDifferencesOfTheLoss) {
  LS_NEEDS_HOST_MEMORY();
  // Weights of ordinary size, so that differences stand well above the rounding of the loss.
  std::vector<std::string> words = GetParam().overrides;
  words.push_back("model.init_std=0.3");
  Session session = tiny_session(words);
  for (const Parameters::Named& param : session.parameters->named()) {
    one_step(session, 0, 0);
    const std::vector<float> gradient = gradient_of(session, param.name);
    float* values = param.master.values.as<float>();
    const std::vector<float> before(values, values + param.master.values.numel());
    // Along a random direction of the parameter, so that one difference tests all of it.
    std::vector<float> direction(before.size());
    double slope = 0, length = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      direction[i] = base::unit_float(base::philox(11, i, 0).x) - 0.5f + (gradient[i] > 0 ? 0.5f : -0.5f);
      slope += static_cast<double>(direction[i]) * gradient[i];
      length += static_cast<double>(direction[i]) * direction[i];
    }
    const double step = 0.015 / std::sqrt(length);
    const auto loss_at = [&](double t) {
      for (size_t i = 0; i < before.size(); ++i) values[i] = before[i] + static_cast<float>(t * direction[i]);
      session.parameters->refresh_compute();
      return one_step(session, 0, 0).loss;
    };
    // Richardson's rule: the error falls with the fourth power of the step.
    const double wide = (loss_at(2 * step) - loss_at(-2 * step)) / (4 * step);
    const double narrow = (loss_at(step) - loss_at(-step)) / (2 * step);
    const double difference = (4 * narrow - wide) / 3;
    std::copy(before.begin(), before.end(), values);
    session.parameters->refresh_compute();
    EXPECT_NEAR(slope, difference, 0.01 * std::abs(difference) + 1e-4) << param.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Gradients,
    testing::Values(
        Row{"gpt2", {}}, Row{"gpt2_untied", {"model.tied=false"}}, Row{"gpt2_dropout", {"model.dropout=0.2"}},
        Row{"gpt2_chunked_logits", {"memory.logits_chunk=5"}}, Row{"gpt2_one_slice", {"batch.slices=1"}},
        Row{"gpt2_odd_width", {"model.hidden=15", "model.heads=3"}},
        Row{"gpt2_padded_vocabulary", {"model.vocab=1030", "model.hidden=16"}},
        Row{"gpt2_no_layer_but_one", {"model.layers=1"}},
        Row{"llama", {"model.family=llama", "model.kv_heads=1"}},
        Row{"llama_untied_scaled", {"model.family=llama", "model.tied=false", "model.rope_scaling=8"}},
        Row{"gpt2_gelu_by_erf", {"model.activation=gelu"}},
        Row{"gpt2_quick_gelu", {"model.activation=quick_gelu"}},
        Row{"gpt2_silu_dropout", {"model.activation=silu", "model.dropout=0.2"}},
        Row{"llama_gelu_biases",
            {"model.family=llama", "model.activation=gelu", "model.attention_bias=true",
             "model.mlp_bias=true"}},
        Row{"llama_biases_recompute",
            {"model.family=llama", "model.attention_bias=true", "model.mlp_bias=true",
             "memory.recompute=full"}},
        Row{"llama_relu_squared", {"model.family=llama", "model.activation=relu2"}},
        Row{"llama_dynamic",
            {"model.family=llama", "model.rope_scaling=4", "model.rope_type=dynamic",
             "model.rope_original_context=4"}},
        Row{"llama_recompute", {"model.family=llama", "memory.recompute=full"}},
        Row{"mlp", {"model.family=mlp"}}, Row{"mlp_untied", {"model.family=mlp", "model.tied=false"}}),
    [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace lockstep::run

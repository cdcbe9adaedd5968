// The weights that a model begins with: how large they are, and that they are the same on every device.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/run/testing.h"

namespace lockstep::run {
namespace {

struct Row {
  const char* family;
  std::vector<std::string> residual;  // ends of the names of what is added to the residual stream
  bool scaled;                        // those begin smaller, by the root of twice the layers (GPT-2's paper)
};

double expected_deviation(const Row& row, const std::string& name, double deviation, double layers) {
  for (const std::string& end : row.residual) {
    if (name.ends_with(end) && row.scaled) return deviation / std::sqrt(2 * layers);
  }
  return deviation;
}

void expect_normal(const std::vector<float>& values, double deviation) {
  double mean = 0, square = 0;
  for (const float value : values) mean += value;
  mean /= static_cast<double>(values.size());
  for (const float value : values) square += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  // Five standard errors of either.
  EXPECT_NEAR(mean, 0, 5 * deviation / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(square / count), deviation, 5 * deviation / std::sqrt(2 * count));
}

TEST(FirstWeights, AreAsLargeAsThePapersSay) {
  const Row rows[] = {{"gpt2", {"attn.c_proj.weight", "mlp.c_proj.weight"}, true},
                      {"llama", {"o_proj.weight", "down_proj.weight"}, true},
                      {"mlp", {"down.weight"}, false}};
  for (const Row& row : rows) {
    const double deviation = 0.05, layers = 3;
    const Session session =
        tiny_session({std::string("model.family=") + row.family, "model.layers=3", "model.hidden=48",
                      "model.init_std=0.05", "model.tied=false", "data.seq_len=32"});
    size_t scaled = 0;
    for (const Parameters::Named& param : session.parameters->named()) {
      SCOPED_TRACE(std::string(row.family) + " " + param.name);
      std::vector<float> values(static_cast<size_t>(param.master.values.numel()));
      session.parameters->read(param.master.values, values.data());
      if (param.shape.rank() == 1) {
        const float constant = param.name.ends_with(".bias") ? 0.0f : 1.0f;
        EXPECT_EQ(values, std::vector<float>(values.size(), constant));
        continue;
      }
      const double expected = expected_deviation(row, param.name, deviation, layers);
      scaled += expected < deviation ? 1 : 0;
      expect_normal(values, expected);
    }
    EXPECT_EQ(scaled, row.scaled ? 6u : 0u) << row.family;
  }
}

// Any change to seeds, names, layouts, draws or the hash itself shows here: runs would not begin as they did.
TEST(FirstWeights, HaveTheBitsThatTheyAlwaysHad) {
  EXPECT_EQ(tiny_session().parameters->hash(), "123ac1f1315c1a71f3e51500a75283fd");
  EXPECT_EQ(tiny_session({"model.family=llama", "model.kv_heads=1"}).parameters->hash(),
            "d4e4bed082b7cb17c899975f88d4210c");
  EXPECT_EQ(tiny_session({"model.family=mlp", "run.seed=2"}).parameters->hash(),
            "28355aac746e8477bdcce6e2bf57586f");
}

}  // namespace
}  // namespace lockstep::run

#include "lockstep/run/session/run_price.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/catalogue/place.h"

namespace lockstep::run {
namespace {

HourlyPrice price(const std::string& said, const Whereabouts& here = {}) {
  recipe::Recipe recipe;
  recipe.run.budget = "$50";
  recipe.run.price = said;
  return hourly_price(recipe, here);
}

TEST(RunPrice, IsSaidOrFound) {
  const plan::MachineRow* row = plan::catalogue().find_machine("a3-highgpu-8g");
  const double spot = row->price_in("us-central1")->of(plan::Tariff::spot);
  EXPECT_EQ(price("12.5").usd, 12.5);
  EXPECT_EQ(price("$12.50/h", {.nodes = 4}).usd, 12.5);  // of all machines
  EXPECT_EQ(price("a3-highgpu-8g spot us-central1").usd, spot);
  EXPECT_EQ(price("a3-highgpu-8g spot us-central1", {.nodes = 4}).usd, 4 * spot);
  EXPECT_EQ(price("auto", {.machine = "a3-highgpu-8g spot us-central1"}).usd, spot);
  const HourlyPrice found = price("auto", {.nodes = 2, .product = "p5.48xlarge"});
  EXPECT_EQ(found.usd, 2 * plan::catalogue()
                               .find_machine("p5.48xlarge")
                               ->cheapest(plan::Tariff::on_demand)
                               ->of(plan::Tariff::on_demand));
  EXPECT_NE(found.from.find("2 x p5.48xlarge, on demand in "), std::string::npos) << found.from;
}

TEST(RunPrice, IsRefusedWhereNobodyKnows) {
  for (const char* said :
       {"auto", "0", "a3-highgpu-9g", "a3-highgpu-8g mars", "a3-highgpu-8g spot mars", "", "cheap"})
    EXPECT_THROW(price(said, {.product = "KVM"}), base::ConfigError) << said;
}

}  // namespace
}  // namespace lockstep::run

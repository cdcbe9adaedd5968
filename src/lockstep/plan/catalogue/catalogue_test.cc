#include "lockstep/plan/catalogue/catalogue.h"

#include <gtest/gtest.h>

#include <regex>

#include "lockstep/base/error.h"
#include "lockstep/plan/catalogue/built_in.h"
#include "lockstep/plan/catalogue/place.h"
#include "lockstep/plan/catalogue/profile.h"

namespace lockstep::plan {
namespace {

// Nothing without a source and the day it was compared, or that it was not; prices that can be; devices that
// are described.
TEST(Catalogue, EveryRowIsSourcedAndPlausible) {
  const Catalogue& all = built_in_catalogue();
  EXPECT_GT(all.devices.size(), 15u);
  EXPECT_GT(all.machines.size(), 80u);
  const std::regex day("20[0-9]{2}-[0-9]{2}-[0-9]{2}");
  for (const DeviceRow& row : all.devices) {
    EXPECT_FALSE(row.source.where.empty()) << row.name;
    EXPECT_TRUE(std::regex_match(row.source.checked, day) || row.source.checked == "not yet") << row.name;
    EXPECT_GE(row.model.inside.bytes_per_second, row.model.between.bytes_per_second) << row.name;
  }
  for (const MachineRow& row : all.machines) {
    EXPECT_NE(all.find_device(row.device), nullptr) << row.name;
    EXPECT_TRUE(std::regex_match(row.source.checked, day)) << row.name;
    EXPECT_FALSE(row.prices.empty()) << row.name;
    for (const RegionPrice& price : row.prices) {
      const double whole = price.of(Tariff::on_demand);
      EXPECT_GT(whole, 0.1 * row.devices) << row.name << " " << price.region;
      EXPECT_LT(whole, 25.0 * row.devices) << row.name << " " << price.region;
      for (const Tariff less : {Tariff::spot, Tariff::one_year, Tariff::three_years})
        EXPECT_LE(price.of(less), whole) << row.name << " " << price.region;
    }
  }
}

TEST(Catalogue, WrongRowsAreRefusedByLine) {
  struct Row {
    std::string text, says;
  };
  for (const Row& row : std::vector<Row>{
           {"[machine.x]\ncloud = 3\n", "mine.toml:2: [machine.x]: cloud must be a text"},
           {"[machine.x]\ncloud = \"c\"\n", "mine.toml:1: [machine.x]: device is missing"},
           {"[machine.x]\ncloud=\"c\"\ndevice=\"H100\"\ndevices=0\n", "devices = 0 must be from 1"},
           {"[machine.x]\ncloud=\"c\"\ndevice=\"H100\"\ndevices=1\nnetwork_gb_s=1.0\nsource=\"s\"\n"
            "checked=\"2026-01-01\"\npric = 3\n",
            "pric is not known here"},
           {"[machine.x]\ncloud=\"c\"\ndevice=\"H100\"\ndevices=1\nnetwork_gb_s=1.0\nsource=\"s\"\n"
            "checked=\"2026-01-01\"\nprice.us.monthly = 3.0\n",
            "price.us.monthly must be"},
           {"cloud = 1\n", "stands outside of a row"},
           {"# mine\n[device.x]\nkernels = \"none\"\n",
            "mine.toml:2: [device.x]: there is no [kernels.none]"},
           {"[a.b]\nc = 1\n", "rows are [device.NAME]"},
           {"[machine\n", "mine.toml:1:"}}) {
    try {
      read_catalogue(row.text, "mine.toml");
      ADD_FAILURE() << row.text;
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 570) << row.text;
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
  }
}

TEST(Catalogue, NewerRowsReplaceOlder) {
  Catalogue all = built_in_catalogue();
  const size_t rows = all.machines.size();
  const std::string text =
      "[machine.a3-highgpu-8g]\ncloud=\"gcp\"\ndevice=\"H100\"\ndevices=8\nnetwork_gb_s=100.0\n"
      "source=\"my contract\"\nchecked=\"2026-09-01\"\nprice.us-central1.on_demand = 40.0\n";
  overlay(all, read_catalogue(text, "mine.toml"));
  EXPECT_EQ(all.machines.size(), rows);
  EXPECT_EQ(all.find_machine("a3-highgpu-8g")->cheapest(Tariff::on_demand)->of(Tariff::on_demand), 40);
}

// A file of one's own has a device without repeating what kernels of its generation reach, or says that anew.
TEST(Catalogue, OwnDevicesMayUseKernelsThatAreThere) {
  const std::string device =
      "[device.our]\ntitle=\"ours\"\nmaker=\"nvidia\"\nkernels=\"hopper\"\nbf16_tflops=900.0\nfp32_tflops=60."
      "0\n"
      "gib=80.0\nmemory_gb_s=3000.0\nwatts=700.0\nper_node=8\ninside_gb_s=400.0\ninside_us=3.0\n"
      "between_gb_s=45.0\nbetween_us=10.0\nhost_gb_s=50.0\nsource=\"s\"\nchecked=\"2026-01-01\"\n";
  EXPECT_THROW(read_catalogue(device, "mine.toml"), base::ConfigError);
  Catalogue all = built_in_catalogue();
  overlay(all, read_catalogue(device, "mine.toml", &all));
  ASSERT_NE(all.find_device("our"), nullptr);
  EXPECT_EQ(all.find_device("our")->model.reached, all.find_device("H100")->model.reached);
  Catalogue newer;
  newer.kernels = {{"hopper", Machine{}}};
  overlay(all, newer);
  EXPECT_EQ(all.find_kernels("hopper")->reached, Machine{}.reached);
}

TEST(Place, IsReadFromAFewWords) {
  struct Row {
    const char *words, *name;
    int ranks, nodes;
  };
  for (const Row& row : std::vector<Row>{{"8xH100", "H100", 8, 1},
                                         {"h200", "H200", 1, 1},
                                         {"20 x H100", "H100", 20, 3},
                                         {"a3-highgpu-8g x 32", "a3-highgpu-8g", 256, 32},
                                         {"p5.48xlarge", "p5.48xlarge", 8, 1},
                                         {"4xp5.48xlarge", "p5.48xlarge", 32, 4},
                                         {"p5.48xlarge x 4", "p5.48xlarge", 32, 4},
                                         {"H100x8", "H100", 8, 1}}) {
    const Place place = parse_place(row.words);
    EXPECT_EQ(place.row != nullptr ? place.row->name : place.device->name, row.name) << row.words;
    EXPECT_EQ(place.ranks, row.ranks) << row.words;
    EXPECT_EQ(place.nodes, row.nodes) << row.words;
  }
  for (const char* wrong : {"", "8xH900", "0xH100", "-1 x H100", "9999999xH100", "x", "8x", "H100 x 1.5"}) {
    try {
      parse_place(wrong);
      ADD_FAILURE() << wrong;
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 571) << wrong;
    }
  }
  try {
    parse_place("8xH10");
    FAIL();
  } catch (const base::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean H100"), std::string::npos) << error.what();
  }
}

TEST(Place, HasTheMachinesNetworkAndPrices) {
  const Place two = parse_place("2 x a3-highgpu-8g");
  EXPECT_NEAR(two.model.between.bytes_per_second, 0.92 * 100e9 / 8, 1);
  const auto price = two.price(Tariff::on_demand, "");
  ASSERT_TRUE(price);
  EXPECT_NEAR(price->usd_per_hour, 2 * two.row->cheapest(Tariff::on_demand)->of(Tariff::on_demand), 1e-9);
  EXPECT_FALSE(two.price(Tariff::on_demand, "mars"));
  EXPECT_FALSE(parse_place("8xH100").price(Tariff::on_demand, ""));
}

TEST(Machine, OfThisDeviceIsLikeTheCatalogues) {
  EXPECT_THROW(machine_named("H900"), base::ConfigError);
  const device::Properties card{.name = "NVIDIA L4", .free_bytes = 5};
  EXPECT_EQ(this_machine(device::Kind::cuda, card, 1).memory_bytes_per_second,
            machine_named("L4").memory_bytes_per_second);
  EXPECT_EQ(
      this_machine(device::Kind::cuda, {.name = "NVIDIA H100 80GB HBM3", .free_bytes = 7}, 1).memory_bytes,
      7);
  const Machine half = this_machine(device::Kind::cpu, {.name = "cpu", .free_bytes = 100}, 2);
  EXPECT_EQ(half.memory_bytes, 50);
}

// What a ring of these ranks would take for a sum to its owners and back gives its link again.
TEST(Profile, LinksExplainAllReduces) {
  for (const int ranks : {2, 3, 8}) {
    const Link link{.bytes_per_second = 8e9, .latency_seconds = 20e-6};
    const auto reduced = [&](double bytes) {
      const double once =
          bytes * (ranks - 1) / ranks / link.bytes_per_second + (ranks - 1) * link.latency_seconds;
      return AllReduced{bytes, 2 * once};
    };
    const Link found = link_of(reduced(4), reduced(1 << 22), ranks);
    EXPECT_NEAR(found.bytes_per_second / link.bytes_per_second, 1, 1e-4) << ranks;
    EXPECT_NEAR(found.latency_seconds / link.latency_seconds, 1, 1e-4) << ranks;
  }
  const Link odd =
      link_of({4, 1e-3}, {1 << 22, 1e-4}, 2);  // beside other work, more bytes may take less time
  EXPECT_GT(odd.bytes_per_second, 0);
}

}  // namespace
}  // namespace lockstep::plan

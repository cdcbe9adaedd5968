// Where a run would be: "8xH100", "a3-highgpu-8g x 32", "4 x p5.48xlarge".
//
// A device's name means nodes of their usual size; a machine's name means that machine, with its network and
// its prices.
#pragma once

#include <optional>
#include <string>

#include "lockstep/plan/catalogue/catalogue.h"

namespace lockstep::plan {

struct Place {
  std::string words;  // "32 x a3-highgpu-8g"
  const DeviceRow* device = nullptr;
  const MachineRow* row = nullptr;  // null: devices, of nobody in particular
  Machine model;
  int nodes = 1, ranks = 1;

  // Dollars an hour for all of it; nothing where nobody has said. An empty region: the cheapest.
  struct Price {
    double usd_per_hour = 0;
    std::string region;
  };
  std::optional<Price> price(Tariff tariff, const std::string& region) const;
};

// ConfigError 571 for what is neither a device nor a machine, with the nearest name.
Place parse_place(const std::string& words);
// The same machine, other numbers of it.
Place with_ranks(const Place& place, int ranks);

}  // namespace lockstep::plan

// The catalogue: what devices can do, which machines can be rented with them, and for how much.
//
// Rows are TOML (catalogue/ in the repository), each with its source and the day it was compared with it, if
// it was; they travel inside the program. `lockstep prices --update FILE` keeps a file of the same form for
// this user, whose rows replace the built-in ones of the same names.
//
//     const plan::Catalogue& catalogue = plan::catalogue();
//     const plan::MachineRow* row = catalogue.find_machine("a3-highgpu-8g");
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/machine.h"

namespace lockstep::plan {

// Where a row's figures are from.
struct Source {
  std::string where, checked;  // an address or a document, and the day, or "not yet": "2026-08-20"
};

struct DeviceRow {
  std::string name, title;  // "H100", "NVIDIA H100 SXM 80 GB"
  std::string maker;        // "nvidia", "google", "amd", "cpu"
  double capability = 0;    // NVIDIA's: 9.0
  Machine model;            // in a node of its usual size
  std::string note;         // "refused by CUDA 13"
  std::string build;        // that measured it (lockstep bench machine); empty: none did
  Source source;
  bool is_of_another_build() const;
  bool trains() const { return note.find("not run by Lockstep") == std::string::npos; }
};

enum class Tariff : uint8_t { on_demand, spot, one_year, three_years };
const char* name_of(Tariff tariff);  // "on demand", "spot", "1 year", "3 years"
std::optional<Tariff> parse_tariff(std::string_view word);

// Dollars an hour for the whole machine; 0: not offered, or nobody has said.
struct RegionPrice {
  std::string region;
  double usd[4] = {};
  double of(Tariff tariff) const { return usd[static_cast<int>(tariff)]; }
};

struct MachineRow {
  std::string name, cloud;  // "a3-highgpu-8g", "gcp"
  std::string device;       // a DeviceRow's
  int devices = 1;
  int vcpus = 0;
  double host_gib = 0;
  double network_gb_s = 0;  // of the whole machine, to others like it
  int most = 0;             // that reach each other over that network; 0: any number
  std::vector<RegionPrice> prices;
  std::string note;
  Source source;
  const RegionPrice* price_in(const std::string& region) const;  // null: not offered there
  // The cheapest region of a tariff; null: none has it.
  const RegionPrice* cheapest(Tariff tariff) const;
};

// Which of a cloud's limits machines count against (plan/quota/).
struct QuotaRow {
  std::string name, cloud;
  std::string machines;  // how their names begin
  std::string device;    // only those with it; empty: all
  bool counts_vcpus = false;
  std::string on_demand, spot;  // the limits, as the cloud names them
  std::string family;           // Google's name of a newer GPU; empty: it has a limit of its own
  Source source;
};

// The rates that kernels of a generation reach, or of other software on it; the peaks stay.
void take_rates(Machine& machine, const Machine& kernels);

struct Catalogue {
  std::vector<std::pair<std::string, Machine>> kernels;  // only their rates
  std::vector<DeviceRow> devices;
  std::vector<MachineRow> machines;
  std::vector<QuotaRow> quotas;
  const DeviceRow* find_device(const std::string& name) const;    // any case
  const MachineRow* find_machine(const std::string& name) const;  // any case
  const Machine* find_kernels(const std::string& name) const;
  const QuotaRow* find_quota(const MachineRow& machine) const;  // null: nobody has said
  // As one of its ranks sees it: the device, with this machine's network.
  Machine model_of(const MachineRow& row) const;
};

// Reads rows; a device may name kernels of `older`, too. ConfigError 570 names the file, line and what was
// expected.
Catalogue read_catalogue(std::string_view text, const std::string& name, const Catalogue* older = nullptr);
// `newer`'s rows in the place of those of the same names.
void overlay(Catalogue& catalogue, const Catalogue& newer);

const Catalogue& built_in_catalogue();
// The built-in one, this machine's profile (plan/catalogue/profile.h) and the user's file, where there are
// any.
const Catalogue& catalogue();
std::string catalogue_path();  // "~/.config/lockstep/catalogue.toml" or where LOCKSTEP_CATALOGUE says

}  // namespace lockstep::plan

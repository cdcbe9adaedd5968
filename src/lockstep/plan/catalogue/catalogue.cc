#include "lockstep/plan/catalogue/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/plan/catalogue/built_in.h"
#include "lockstep/plan/catalogue/profile.h"
#include "lockstep/plan/catalogue/rows.h"

namespace lockstep::plan {

namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6, kGib = 1 << 30;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

template <class T>
const T* find_by_name(const std::vector<T>& rows, const std::string& name) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const T& row) { return lower(row.name) == lower(name); });
  return found == rows.end() ? nullptr : &*found;
}

Source source_of(Row& row) { return {row.text("source"), row.text("checked")}; }

// What kernels of a generation reach; the rest is the device's.
Machine read_kernels(Row& row) {
  const auto share = [&](const char* key) { return row.number(key, 0.01, 1); };
  Machine m;
  m.reached = share("bf16");
  m.reached_fp8 = row.number_or("fp8", m.reached, 0.01, 1);
  m.reached_fp32 = share("fp32");
  m.reached_tf32 = row.number_or("tf32", m.reached, 0.01, 1);
  m.attention_fp32_forward = row.number_or("attention_fp32_forward", 0, 0, 1);
  m.attention_fp32_backward = row.number_or("attention_fp32_backward", m.attention_fp32_forward, 0, 1);
  m.memory_reached = share("memory");
  m.ramp_seconds = row.number("ramp_us", 0, 1000) * kMicro;
  m.spill = row.number("spill", 0, 4);
  m.launch_seconds = row.number("launch_us", 0, 1000) * kMicro;
  const auto attention = [&](const std::string& pass) {
    return AttentionRate{.reached_64 = share(("attention_" + pass + "_64").c_str()),
                         .reached_128 = share(("attention_" + pass + "_128").c_str()),
                         .half_length = row.number("attention_" + pass + "_length", 0, 1e6)};
  };
  m.attention_forward = attention("forward");
  m.attention_backward = attention("backward");
  m.measured = row.yes_or_no("measured");
  m.error = row.number("error", 0.001, 1);
  static_cast<void>(source_of(row));
  return m;
}

DeviceRow read_device(Row& row, const Machine& kernels) {
  DeviceRow device{.name = row.name(), .title = row.text("title"), .maker = row.text("maker")};
  device.capability = row.number_or("capability", 0, 0, 20);
  Machine& m = device.model = kernels;
  m.name = row.name();
  const double sustained = row.number_or("sustained", 1, 0.1, 1);  // at a lower power limit than the kernels'
  m.flops_half = row.number("bf16_tflops", 0.001, 1e6) * kTera;
  m.flops_fp8 = row.number_or("fp8_tflops", 0, 0, 1e6) * kTera;
  m.flops_fp32 = row.number("fp32_tflops", 0.001, 1e6) * kTera;
  m.flops_tf32 = row.number_or("tf32_tflops", 0, 0, 1e6) * kTera;
  for (double* reached :
       {&m.reached, &m.reached_fp8, &m.reached_fp32, &m.reached_tf32, &m.attention_forward.reached_64,
        &m.attention_forward.reached_128, &m.attention_backward.reached_64, &m.attention_backward.reached_128,
        &m.attention_fp32_forward, &m.attention_fp32_backward})
    *reached *= sustained;
  m.memory_bytes = static_cast<int64_t>(row.number("gib", 0.1, 1e5) * kGib);
  m.memory_bytes_per_second = row.number("memory_gb_s", 1, 1e6) * kGiga;
  m.units = static_cast<int>(row.number_or("units", 0, 0, 1e5));
  m.watts = row.number("watts", 1, 1e5);
  m.ranks_per_node = static_cast<int>(row.number("per_node", 1, 1e5));
  m.inside = {row.number("inside_gb_s", 0.001, 1e5) * kGiga, row.number("inside_us", 0, 1e4) * kMicro};
  m.between = {row.number("between_gb_s", 0.001, 1e5) * kGiga, row.number("between_us", 0, 1e4) * kMicro};
  m.host_bytes_per_second = row.number("host_gb_s", 0.001, 1e5) * kGiga;
  device.note = row.text_or("note", "");
  device.build = row.text_or("build", "");
  device.source = source_of(row);
  return device;
}

// Keys "price.us-central1.on_demand".
std::vector<RegionPrice> read_prices(Row& row) {
  std::vector<RegionPrice> prices;
  for (const auto& [key, usd] : row.numbers_under("price")) {
    const size_t dot = key.rfind('.');
    const std::string region = key.substr(0, dot == std::string::npos ? 0 : dot);
    const std::optional<Tariff> tariff = parse_tariff(dot == std::string::npos ? key : key.substr(dot + 1));
    if (!tariff || region.empty())
      row.refuse(0,
                 fmt::format("price.{} must be price.REGION.on_demand, spot, one_year or three_years", key));
    if (prices.empty() || prices.back().region != region) prices.push_back({.region = region});
    prices.back().usd[static_cast<int>(*tariff)] = usd;
  }
  return prices;
}

MachineRow read_machine(Row& row) {
  MachineRow machine{.name = row.text_or("name", row.name()), .cloud = row.text("cloud")};
  machine.device = row.text("device");
  machine.devices = static_cast<int>(row.number("devices", 1, 1e5));
  machine.vcpus = static_cast<int>(row.number_or("vcpus", 0, 0, 1e5));
  machine.host_gib = row.number_or("host_gib", 0, 0, 1e6);
  machine.network_gb_s = row.number("network_gb_s", 0.001, 1e5);
  machine.most = static_cast<int>(row.number_or("most", 0, 0, 1e6));
  machine.prices = read_prices(row);
  machine.note = row.text_or("note", "");
  machine.source = source_of(row);
  return machine;
}

QuotaRow read_quota_row(Row& row) {
  QuotaRow quota{.name = row.name(), .cloud = row.text("cloud"), .machines = row.text("machines")};
  quota.device = row.text_or("device", "");
  const std::string counts = row.text("counts");
  if (counts != "devices" && counts != "vcpus") row.refuse(0, "counts must be devices or vcpus");
  quota.counts_vcpus = counts == "vcpus";
  quota.on_demand = row.text("on_demand"), quota.spot = row.text("spot");
  quota.family = row.text_or("family", "");
  quota.source = source_of(row);
  return quota;
}

}  // namespace

const char* name_of(Tariff tariff) {
  constexpr const char* kNames[] = {"on demand", "spot", "1 year", "3 years"};
  return kNames[static_cast<int>(tariff)];
}

std::optional<Tariff> parse_tariff(std::string_view word) {
  if (word == "on_demand" || word == "on-demand") return Tariff::on_demand;
  if (word == "spot") return Tariff::spot;
  if (word == "one_year" || word == "1y") return Tariff::one_year;
  if (word == "three_years" || word == "3y") return Tariff::three_years;
  return std::nullopt;
}

bool DeviceRow::is_of_another_build() const { return !build.empty() && build != base::kVersion; }

const RegionPrice* MachineRow::price_in(const std::string& region) const {
  const auto found =
      std::find_if(prices.begin(), prices.end(), [&](const RegionPrice& p) { return p.region == region; });
  return found == prices.end() ? nullptr : &*found;
}

const RegionPrice* MachineRow::cheapest(Tariff tariff) const {
  const RegionPrice* best = nullptr;
  for (const RegionPrice& price : prices) {
    if (price.of(tariff) > 0 && (best == nullptr || price.of(tariff) < best->of(tariff))) best = &price;
  }
  return best;
}

const DeviceRow* Catalogue::find_device(const std::string& name) const { return find_by_name(devices, name); }
const MachineRow* Catalogue::find_machine(const std::string& name) const {
  return find_by_name(machines, name);
}

const Machine* Catalogue::find_kernels(const std::string& name) const {
  const auto found =
      std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k.first == name; });
  return found == kernels.end() ? nullptr : &found->second;
}

const QuotaRow* Catalogue::find_quota(const MachineRow& machine) const {
  for (const QuotaRow& row : quotas) {
    const bool device = row.device.empty() || row.device == machine.device;
    if (device && row.cloud == machine.cloud && machine.name.starts_with(row.machines)) return &row;
  }
  return nullptr;
}

void take_rates(Machine& machine, const Machine& kernels) {
  Machine taken = kernels;
  taken.name = machine.name;
  taken.flops_fp32 = machine.flops_fp32, taken.flops_half = machine.flops_half,
  taken.flops_fp8 = machine.flops_fp8, taken.flops_tf32 = machine.flops_tf32, taken.tf32 = machine.tf32;
  taken.memory_bytes_per_second = machine.memory_bytes_per_second, taken.memory_bytes = machine.memory_bytes;
  taken.units = machine.units, taken.ranks_per_node = machine.ranks_per_node;
  taken.inside = machine.inside, taken.between = machine.between;
  taken.watts = machine.watts, taken.host_bytes_per_second = machine.host_bytes_per_second;
  taken.disk_bytes_per_second = machine.disk_bytes_per_second;
  machine = taken;
}

Machine Catalogue::model_of(const MachineRow& row) const {
  const DeviceRow* device = find_device(row.device);
  LS_ASSERT(device != nullptr, row.device);
  Machine model = device->model;
  model.name = row.name;
  model.ranks_per_node = row.devices;
  // A device's share of the network; protocols and retransmissions take about a tenth.
  model.between.bytes_per_second = 0.92 * row.network_gb_s * kGiga / row.devices;
  return model;
}

Catalogue read_catalogue(std::string_view text, const std::string& name, const Catalogue* older) {
  Catalogue read;
  std::vector<Row> rows = read_rows(text, name);
  for (Row& row : rows) {
    if (row.kind() == "kernels") read.kernels.emplace_back(row.name(), read_kernels(row));
  }
  for (Row& row : rows) {
    if (row.kind() == "device") {
      const std::string wanted = row.text("kernels");
      const Machine* rates = read.find_kernels(wanted);
      if (rates == nullptr && older != nullptr) rates = older->find_kernels(wanted);
      if (rates == nullptr) row.refuse(0, fmt::format("there is no [kernels.{}]", wanted));
      read.devices.push_back(read_device(row, *rates));
    } else if (row.kind() == "machine") {
      read.machines.push_back(read_machine(row));
    } else if (row.kind() == "quota") {
      read.quotas.push_back(read_quota_row(row));
    } else if (row.kind() != "kernels") {
      row.refuse(0, "rows are [device.NAME], [kernels.NAME], [machine.NAME] and [quota.NAME]");
    }
    row.refuse_others();
  }
  return read;
}

void overlay(Catalogue& catalogue, const Catalogue& newer) {
  const auto put = [](auto& rows, const auto& from) {
    for (const auto& row : from) {
      const auto old =
          std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == row.name; });
      old == rows.end() ? rows.push_back(row) : void(*old = row);
    }
  };
  catalogue.kernels.insert(catalogue.kernels.begin(), newer.kernels.begin(),
                           newer.kernels.end());  // first found
  put(catalogue.devices, newer.devices);
  put(catalogue.machines, newer.machines);
  put(catalogue.quotas, newer.quotas);
}

const Catalogue& built_in_catalogue() {
  static const Catalogue all = [] {
    Catalogue devices = read_catalogue(built_in_devices(), "catalogue/devices.toml");
    overlay(devices, read_catalogue(built_in_machines(), "catalogue/machines.toml"));
    overlay(devices, read_catalogue(built_in_quotas(), "catalogue/quotas.toml"));
    return devices;
  }();
  return all;
}

std::string catalogue_path() {
  if (const auto path = base::environment("LOCKSTEP_CATALOGUE")) return *path;
  const std::string home = base::environment("HOME").value_or("");
  return base::environment("XDG_CONFIG_HOME").value_or(home + "/.config") + "/lockstep/catalogue.toml";
}

const Catalogue& catalogue() {
  static const Catalogue all = [] {
    Catalogue both = built_in_catalogue();
    const std::string path = catalogue_path();
    for (const std::string& own : {profile_path(), path}) {
      std::error_code error;
      if (std::filesystem::exists(own, error))
        overlay(both, read_catalogue(base::read_file(own), own, &both));
    }
    for (const MachineRow& row : both.machines) {
      if (both.find_device(row.device) == nullptr)
        throw base::ConfigError(570, fmt::format("{}: machine {} has device {}, which no row describes", path,
                                                 row.name, base::quoted(row.device)));
    }
    return both;
  }();
  return all;
}

}  // namespace lockstep::plan

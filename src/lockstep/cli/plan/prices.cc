// lockstep prices: the catalogue's machines and what they cost; a file of one's own beside it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/plan/report.h"
#include "lockstep/cli/print.h"
#include "lockstep/cli/report_json.h"
#include "lockstep/plan/catalogue/catalogue.h"
#include "lockstep/terminal/table.h"

namespace lockstep::cli {

namespace {

using plan::Catalogue;
using plan::MachineRow;
using plan::RegionPrice;
using plan::Tariff;

constexpr Tariff kTariffs[] = {Tariff::on_demand, Tariff::spot, Tariff::one_year, Tariff::three_years};

// Checked before it takes the place of what was there.
void update(const std::string& file) {
  constexpr int64_t kMostBytes = 16 << 20;
  const base::ReadResult given = base::try_read_file(file, kMostBytes);
  if (!given.problem.empty())
    throw base::ConfigError(570,
                            fmt::format("--update {} cannot be read: {}", base::quoted(file), given.problem));
  const std::string& text = given.text;
  Catalogue all = plan::built_in_catalogue();
  const Catalogue read = plan::read_catalogue(text, file, &all);
  plan::overlay(all, read);
  for (const MachineRow& row : read.machines) {
    if (all.find_device(row.device) == nullptr)
      throw base::ConfigError(570, fmt::format("{}: [machine.{}]: no [device.{}] describes its device", file,
                                               row.name, row.device));
  }
  const std::string path = plan::catalogue_path();
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  base::write_file_durable(path, text);
  print("{}: {} machines and {} devices replace or join the built-in ones\n", path, read.machines.size(),
        read.devices.size());
}

bool wanted(const MachineRow& row, const std::string& word, const std::string& region) {
  const bool named = word.empty() || row.name.find(word) != std::string::npos || row.cloud == word ||
                     row.device.find(word) != std::string::npos;
  return named && (region.empty() || row.price_in(region) != nullptr);
}

std::string cell(const MachineRow& row, Tariff tariff, const std::string& region) {
  const RegionPrice* price = region.empty() ? row.cheapest(tariff) : row.price_in(region);
  return price == nullptr || price->of(tariff) <= 0 ? "-" : money(price->of(tariff));
}

void print_table(const std::vector<const MachineRow*>& rows, const std::string& region) {
  terminal::Table table({"machine", "cloud", "devices", "on demand", "spot", "1 year", "3 years", "checked"});
  for (const size_t column : {3, 4, 5, 6}) table.align_right(column);
  for (const MachineRow* row : rows) {
    std::vector<std::string> cells{row->name, row->cloud, fmt::format("{} x {}", row->devices, row->device)};
    for (const Tariff tariff : kTariffs) cells.push_back(cell(*row, tariff, region));
    cells.push_back(row->source.checked);
    table.add(cells);
  }
  print("{}\nUS dollars an hour for the whole machine, {}\n",
        table.to_text(terminal::terminal_of(STDOUT_FILENO)),
        region.empty() ? "in the cheapest region of each column" : "in " + region);
}

void print_json(const std::vector<const MachineRow*>& rows) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const MachineRow* row : rows) {
    nlohmann::ordered_json prices = nlohmann::ordered_json::object();
    for (const RegionPrice& price : row->prices) {
      for (const Tariff tariff : kTariffs) {
        if (price.of(tariff) > 0) prices[price.region][name_of(tariff)] = price.of(tariff);
      }
    }
    out.push_back({{"machine", row->name},
                   {"cloud", row->cloud},
                   {"device", row->device},
                   {"devices", row->devices},
                   {"network_gb_s", row->network_gb_s},
                   {"usd_per_hour", prices},
                   {"note", row->note},
                   {"source", row->source.where},
                   {"checked", row->source.checked}});
  }
  report_json(out);
}

}  // namespace

int prices_command(Arguments& arguments) {
  std::string word, region, file;
  bool json = false;
  arguments.positional("WORD", word, "only machines whose name, cloud or device has it: H100, gcp, a3");
  arguments.option("--region", region, "prices of this region; default: the cheapest");
  arguments.option("--update", file, "keep this file of rows for yourself; they replace built-in ones");
  arguments.flag("--json", json, "print the rows as JSON, with every region and source");
  arguments.example("lockstep prices H100", "everything with an H100");
  arguments.example("lockstep prices gcp --region europe-west4", "one cloud's machines in one region");
  arguments.example("lockstep prices --update our-contract.toml", "rows as in catalogue/machines.toml");
  if (!arguments.parse()) return 0;
  if (!file.empty()) {
    update(file);
    return 0;
  }
  std::vector<const MachineRow*> rows;
  for (const MachineRow& row : plan::catalogue().machines) {
    if (wanted(row, word, region)) rows.push_back(&row);
  }
  if (rows.empty()) {
    throw base::ConfigError(
        572, fmt::format("no machine of the catalogue matches {}{}; `lockstep prices` lists all",
                         word.empty() ? "that" : base::quoted(word), region.empty() ? "" : " in " + region));
  }
  json ? print_json(rows) : print_table(rows, region);
  return 0;
}

}  // namespace lockstep::cli

// lockstep bench machine: measures this machine once, for plans and receipts.
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/plan/measured_links.h"
#include "lockstep/cli/print.h"
#include "lockstep/device/device.h"
#include "lockstep/plan/catalogue/profile.h"
#include "lockstep/run/executor/machine_rates.h"
#include "lockstep/terminal/live_line.h"

namespace lockstep::cli {

namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

}  // namespace

int bench_machine(const std::vector<std::string>& words) {
  Arguments arguments("bench machine", "Measure this machine's kernels and links, for plans and receipts.",
                      words);
  std::string device = "auto", out = plan::profile_path();
  bool json = false;
  arguments.option("--device", device, "auto, cpu, cuda or cuda:N");
  arguments.option("--out", out, "where to write the profile; - prints it");
  arguments.flag("--json", json, "print the rates as JSON");
  arguments.example("lockstep bench machine",
                    "once, on an idle machine; then: lockstep plan first.toml --on this");
  arguments.example("lockstep bench machine --out ours.toml", "a profile to send to a colleague");
  if (!arguments.parse()) return 0;
  const std::unique_ptr<device::Device> opened = device::open(device::resolve(device));
  terminal::LiveLine line(stderr, terminal::terminal_of(STDERR_FILENO));
  plan::Machine machine =
      run::measure_machine(*opened, [&](const std::string& what) { line.update("measuring " + what); });
  line.update("measuring links between ranks");
  const std::optional<plan::Link> links = measured_links(opened->id().kind);
  line.finish();
  if (links) machine.inside = *links;
  const bool cpu = opened->id().kind == device::Kind::cpu;
  const std::string text = plan::profile_text({.machine = machine,
                                               .device = opened->properties().name,
                                               .maker = cpu ? "cpu" : "nvidia",
                                               .checked = today(),
                                               .build = base::kVersion});
  if (json) {
    print("{}\n", nlohmann::ordered_json{{"device", opened->properties().name},
                                         {"fp32_tflops", machine.flops_fp32 / 1e12},
                                         {"half_tflops", machine.flops_half / 1e12},
                                         {"memory_gb_s", machine.memory_bytes_per_second / 1e9},
                                         {"ramp_us", machine.ramp_seconds * 1e6},
                                         {"launch_us", machine.launch_seconds * 1e6},
                                         {"links_measured", links.has_value()},
                                         {"inside_gb_s", machine.inside.bytes_per_second / 1e9},
                                         {"inside_us", machine.inside.latency_seconds * 1e6}}
                      .dump());
  }
  if (out == "-") {
    if (!json) print("{}", text);
    return 0;
  }
  const std::string folder = std::filesystem::path(out).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  base::write_file_durable(out, text);
  if (json) return 0;
  print("{}: {:.2f} TFLOP/s fp32, {:.2f} in half precision, {:.1f} GB/s of copies{}\nwritten to {}\n",
        opened->properties().name, machine.flops_fp32 / 1e12, machine.flops_half / 1e12,
        machine.memory_bytes_per_second / 1e9,
        links ? fmt::format(", {:.1f} GB/s between ranks", links->bytes_per_second / 1e9) : "", out);
  return 0;
}

}  // namespace lockstep::cli

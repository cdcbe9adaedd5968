#include "lockstep/cli/plan/measured_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "lockstep/cli/print.h"
#include "lockstep/device/cuda_facts.h"
#include "lockstep/jobs/client.h"
#include "lockstep/plan/catalogue/profile.h"

namespace lockstep::cli {

namespace {

constexpr int kMostRanks = 8;  // of one node
constexpr int kMostSeconds = 60;

// Bytes and seconds of each all-reduce.
std::map<double, double> all_reduces(const std::string& rows, const std::string& engine) {
  std::map<double, double> times;
  for (const std::string& line : base::split_lines(rows)) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("engines") || !row["engines"].contains(engine)) continue;
    times[row.value("bytes", 0.0)] = row["engines"][engine].value("time_us", 0.0) / 1e6;
  }
  return times;
}

}  // namespace

std::optional<plan::Link> measured_links(device::Kind kind) {
  const bool cpu = kind == device::Kind::cpu;
  int ranks = 2;
  if (!cpu) {
    const device::CudaFacts facts = device::read_cuda_facts();
    ranks = std::min(kMostRanks,
                     static_cast<int>(device::visible_gpus(facts.gpus, facts.visible_devices).size()));
  }
  if (ranks < 2) return std::nullopt;
  const std::string engine = cpu ? "shm" : "nccl";
  const std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                          "bench",
                                          "collectives",
                                          fmt::format("--nproc={}", ranks),
                                          "--engine=" + engine,
                                          "--op=all_reduce",
                                          cpu ? "--sizes=4K:4M:1K" : "--sizes=4K:128M:32K",
                                          "--json"};
  const jobs::Command command{.words = words, .patience_s = kMostSeconds};
  const jobs::Answer answer = jobs::ProcessClient().run(command);
  const std::map<double, double> times = all_reduces(answer.output, engine);
  if (!answer.ok() || times.size() < 2) {
    remark("warning: links between ranks were not measured, the catalogue's count: {}\n",
           answer.complaint(command));
    return std::nullopt;
  }
  const auto& [few, few_seconds] = *times.begin();
  const auto& [many, many_seconds] = *times.rbegin();
  return plan::link_of({few, few_seconds}, {many, many_seconds}, ranks);
}

}  // namespace lockstep::cli

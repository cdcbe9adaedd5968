// How much of a cloud an account may rent, and whether machines fit into it.
//
//     const plan::Quota quota = plan::read_quota(base::read_file("quota.json"), "quota.json");
//     for (const plan::QuotaVerdict& v : plan::verdicts(quota, {.row = row, .machines = 2}))
//       v.region, v.fits(), v.request()
//
// A file is what a cloud's own command prints (plan/quota/read.cc lists the forms) or plain lines, "REGION
// WHAT LIMIT [USED] [spot]". Which limit a machine counts against is a row of catalogue/quotas.toml.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/catalogue/catalogue.h"

namespace lockstep::plan {

struct QuotaLimit {
  std::string cloud;   // empty: a plain line, of any cloud
  std::string region;  // "*": all
  std::string name;  // the cloud's: "NVIDIA_H100_GPUS", "L-417A185B"; in plain lines also a device or machine
  bool spot = false;           // of a plain line: for spot alone
  double limit = 0, used = 0;  // used: 0 where the listing does not say
  double free() const { return limit > used ? limit - used : 0; }
};

struct Quota {
  std::vector<QuotaLimit> limits;
  std::vector<std::string> files;  // for messages
  void add(const Quota& other);
  std::vector<std::string> clouds() const;  // those that it knows; "" stands for plain lines
};

// ConfigError 574: none of the forms, or a value that cannot be.
Quota read_quota(std::string_view text, const std::string& file);

struct QuotaQuestion {
  const MachineRow* row = nullptr;
  int machines = 1;
  Tariff tariff = Tariff::on_demand;
  std::string region = {};   // empty: all
  std::string purpose = {};  // for the draft of a request: "to train llama-8b for 64 hours"
};

// One region's answer: the limit that stands most in the way.
constexpr double kNoLimit = 1e12;  // what a cloud says where it sets none

struct QuotaVerdict {
  std::string cloud, region, name;
  std::string counts;  // "GPUs", "vCPUs", "machines"
  double needed = 0, limit = 0, used = 0;
  std::string ask;  // how to ask for more, to be pasted; empty where it fits
  bool fits() const { return needed <= limit - used; }
};

// Regions of which the quota says something about this machine, those that fit first. Empty: it says nothing.
std::vector<QuotaVerdict> verdicts(const Quota& quota, const QuotaQuestion& question);

// ConfigError 575: files that say nothing about this machine's cloud, with what to ask that cloud.
void check_cloud(const Quota& quota, const MachineRow& row);

}  // namespace lockstep::plan

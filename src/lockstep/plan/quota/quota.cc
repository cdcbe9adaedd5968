#include "lockstep/plan/quota/quota.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::plan {

namespace {

// What every GPU of a Google project counts against besides its own limit; spot machines do not.
constexpr const char* kAllRegions = "GPUS_ALL_REGIONS";

// How a cloud is asked for its limits, and for more of them.
struct Cloud {
  const char* name;
  const char* title;
  const char* listing;
};
constexpr Cloud kClouds[] = {
    {"gcp", "Google Cloud", "gcloud compute regions describe REGION --format=json"},
    {"aws", "AWS", "aws service-quotas list-service-quotas --service-code ec2 --region REGION"},
};

std::string title_of(const std::string& cloud) {
  for (const Cloud& one : kClouds) {
    if (cloud == one.name) return one.title;
  }
  return cloud;
}

// What a question takes of a limit; nothing: the limit is not about it.
struct Share {
  double needed = 0;
  std::string counts;
};

std::optional<Share> share_of(const QuotaLimit& limit, const QuotaQuestion& q, const QuotaRow* rule) {
  const double machines = q.machines, devices = machines * q.row->devices;
  const bool spot = q.tariff == Tariff::spot;
  if (limit.cloud.empty()) {
    if (limit.spot && !spot) return std::nullopt;
    if (limit.name == q.row->name) return Share{machines, "machines"};
    if (limit.name == q.row->device) return Share{devices, "GPUs"};
  } else if (limit.cloud != q.row->cloud) {
    return std::nullopt;
  }
  if (limit.name == kAllRegions && q.row->cloud == "gcp" && !spot) return Share{devices, "GPUs"};
  if (rule == nullptr || limit.name != (spot ? rule->spot : rule->on_demand)) return std::nullopt;
  if (rule->counts_vcpus) return Share{machines * q.row->vcpus, "vCPUs"};
  return Share{devices, "GPUs"};
}

std::string google_request(const QuotaVerdict& v, const QuotaRow* rule, bool spot) {
  std::string id = v.name, dimensions = "region=" + v.region;
  std::replace(id.begin(), id.end(), '_', '-');
  id += "-per-project-region";
  if (v.name == kAllRegions) {
    id = "GPUS-ALL-REGIONS-per-project", dimensions.clear();
  } else if (rule != nullptr && !rule->family.empty() && !spot) {
    id = "GPUS-PER-GPU-FAMILY-per-project-region";
    dimensions = fmt::format("gpu_family={},region={}", rule->family, v.region);
  }
  return fmt::format(
      "gcloud beta quotas preferences create --service=compute.googleapis.com --project=\"$(gcloud config "
      "get-value project)\" --quota-id={}{} --preferred-value={:.0f}",
      id, dimensions.empty() ? "" : " --dimensions=" + dimensions, v.used + v.needed);
}

std::string request_of(const QuotaVerdict& v, const QuotaQuestion& q, const QuotaRow* rule) {
  const std::string why =
      fmt::format("{} x {}{}{}", q.machines, q.row->name, q.tariff == Tariff::spot ? " (spot)" : "",
                  q.purpose.empty() ? "" : " " + q.purpose);
  if (v.cloud == "gcp")
    return google_request(v, rule, q.tariff == Tariff::spot) + fmt::format(" --justification='{}'", why);
  if (v.cloud == "aws") {
    return fmt::format(
        "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {} --region {} "
        "--desired-value {:.0f}",
        v.name, v.region, v.used + v.needed);
  }
  return fmt::format("ask {} for {:.0f} {} of {} in {}, {:.0f} more than now: {}", title_of(q.row->cloud),
                     v.used + v.needed, v.counts, v.name, v.region, v.used + v.needed - v.limit, why);
}

// The tighter of two limits of a region.
bool tighter(const QuotaVerdict& a, const QuotaVerdict& b) {
  return a.limit - a.used - a.needed < b.limit - b.used - b.needed;
}

std::set<std::string> regions_of(const Quota& quota, const QuotaQuestion& q, const QuotaRow* rule) {
  std::set<std::string> regions;
  for (const QuotaLimit& limit : quota.limits) {
    if (limit.region != "*" && share_of(limit, q, rule)) regions.insert(limit.region);
    // Of a plain limit for all regions: those that have a price.
    if (limit.region == "*" && limit.name != kAllRegions && share_of(limit, q, rule)) {
      for (const RegionPrice& price : q.row->prices) regions.insert(price.region);
    }
  }
  return regions;
}

// A plain line for spot alone stands in the place of one for both.
bool is_replaced(const Quota& quota, const QuotaLimit& limit, const QuotaQuestion& q) {
  if (q.tariff != Tariff::spot || !limit.cloud.empty() || limit.spot) return false;
  return std::any_of(quota.limits.begin(), quota.limits.end(), [&](const QuotaLimit& other) {
    return other.cloud.empty() && other.spot && other.region == limit.region && other.name == limit.name;
  });
}

}  // namespace

void Quota::add(const Quota& other) {
  limits.insert(limits.end(), other.limits.begin(), other.limits.end());
  files.insert(files.end(), other.files.begin(), other.files.end());
}

std::vector<std::string> Quota::clouds() const {
  std::set<std::string> seen;
  for (const QuotaLimit& limit : limits) seen.insert(limit.cloud);
  return {seen.begin(), seen.end()};
}

std::vector<QuotaVerdict> verdicts(const Quota& quota, const QuotaQuestion& q) {
  const QuotaRow* rule = catalogue().find_quota(*q.row);
  std::vector<QuotaVerdict> all;
  for (const std::string& region : regions_of(quota, q, rule)) {
    if (!q.region.empty() && region != q.region) continue;
    std::optional<QuotaVerdict> tightest;
    for (const QuotaLimit& limit : quota.limits) {
      if (limit.region != region && limit.region != "*") continue;
      const std::optional<Share> share = share_of(limit, q, rule);
      if (!share || is_replaced(quota, limit, q)) continue;
      QuotaVerdict one{.cloud = limit.cloud, .region = region, .name = limit.name, .counts = share->counts};
      one.needed = share->needed, one.limit = limit.limit, one.used = limit.used;
      if (!tightest || tighter(one, *tightest)) tightest = one;
    }
    if (!tightest) continue;
    if (!tightest->fits()) tightest->ask = request_of(*tightest, q, rule);
    all.push_back(*tightest);
  }
  std::stable_sort(all.begin(), all.end(), [](const QuotaVerdict& a, const QuotaVerdict& b) {
    return a.fits() != b.fits() ? a.fits() : false;
  });
  return all;
}

void check_cloud(const Quota& quota, const MachineRow& row) {
  std::vector<std::string> known;
  for (const std::string& cloud : quota.clouds()) {
    if (cloud.empty() || cloud == row.cloud) return;
    known.push_back(title_of(cloud));
  }
  std::string remedy = "write lines of REGION WHAT LIMIT into a file, such as us-east H100 8";
  for (const Cloud& one : kClouds) {
    if (row.cloud == one.name) remedy = fmt::format("give the output of `{}`", one.listing);
  }
  throw base::ConfigError(
      575, fmt::format("{} has the limits of {}, but {} is rented from {}; {}", base::join(quota.files, ", "),
                       base::join(known, " and "), row.name, title_of(row.cloud), remedy));
}

}  // namespace lockstep::plan

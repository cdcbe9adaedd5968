// The forms that a quota file may have, told apart by what is in it:
//
//     gcloud compute regions describe REGION --format=json    an object with "quotas"; `regions list`:
//     several gcloud compute project-info describe --format=json      the same, of kind compute#project: all
//     regions gcloud beta quotas info list --service=compute.googleapis.com --format=json    rows with
//     "dimensionsInfos" aws service-quotas list-service-quotas --service-code ec2    an object with "Quotas",
//     in vCPUs us-central1 H100 16 8 spot                              plain lines: REGION WHAT LIMIT [USED]
//     [spot]
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/number.h"
#include "lockstep/base/text.h"
#include "lockstep/plan/quota/quota.h"

namespace lockstep::plan {

namespace {

using nlohmann::json;

constexpr double kMost = kNoLimit;

class Reader {
 public:
  explicit Reader(std::string file) { read_.files = {std::move(file)}; }

  Quota take() {
    if (read_.limits.empty()) refuse("it has no limit in it");
    return std::move(read_);
  }

  void read_json(const json& value) {
    if (value.is_array()) {
      for (const json& one : value) read_object(one);
    } else {
      read_object(value);
    }
  }

  void read_plain(std::string_view text) {
    int line = 0;
    for (const std::string& one : base::split_lines(text)) {
      ++line;
      const std::string words = one.substr(0, one.find('#'));
      if (!base::trimmed(words).empty()) read_line(words, line);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw base::ConfigError(
        574,
        fmt::format("{}: {}; expected what `gcloud compute regions describe REGION --format=json` or `aws "
                    "service-quotas list-service-quotas --service-code ec2` prints, or lines of REGION "
                    "WHAT LIMIT [USED] [spot], such as us-central1 H100 16",
                    read_.files[0], why));
  }

  void read_object(const json& value) {
    if (!value.is_object()) refuse("a value is no object");
    if (value.contains("quotas")) return read_google(value);
    if (value.contains("Quotas")) return read_aws(value);
    if (value.contains("quotaId")) return read_google_info(value);
    refuse("it is JSON of no known form");
  }

  std::string text(const json& value, const char* key) const {
    const auto found = value.find(key);
    if (found == value.end() || !found->is_string() || found->get<std::string>().empty())
      refuse(fmt::format("{} must be a text", base::quoted(key)));
    return found->get<std::string>();
  }

  // -1 is how Google says "no limit".
  double number(const json& value, const char* key, bool needed) const {
    const auto found = value.find(key);
    if (found == value.end() && !needed) return 0;
    double number = std::nan("");
    if (found != value.end() && found->is_number()) number = found->get<double>();
    if (found != value.end() && found->is_string())
      number = base::parse_number<double>(found->get<std::string>()).value_or(number);
    if (!(number >= -1 && number <= 1e19)) refuse(fmt::format("{} must be a number", base::quoted(key)));
    return number < 0 ? kMost : std::min(number, kMost);
  }

  const json& list(const json& value, const char* key) const {
    const json& found = value.at(key);
    if (!found.is_array()) refuse(fmt::format("{} must be a list", base::quoted(key)));
    for (const json& one : found) {
      if (!one.is_object()) refuse(fmt::format("{} must be a list of objects", base::quoted(key)));
    }
    return found;
  }

  void read_google(const json& value) {
    const bool project = value.value("kind", json()) == "compute#project";
    const std::string region = project ? "*" : text(value, "name");
    for (const json& one : list(value, "quotas")) {
      read_.limits.push_back({.cloud = "gcp",
                              .region = region,
                              .name = text(one, "metric"),
                              .limit = number(one, "limit", true),
                              .used = number(one, "usage", false)});
    }
  }

  // Limits by family of GPU, which the older listing leaves out.
  void read_google_info(const json& value) {
    if (!value.contains("dimensionsInfos")) return;
    for (const json& one : list(value, "dimensionsInfos")) {
      const json dimensions = one.value("dimensions", json::object());
      const json details = one.value("details", json::object());
      const json places = one.value("applicableLocations", json::array());
      if (!dimensions.is_object() || !details.is_object() || !places.is_array())
        refuse("\"dimensionsInfos\" is of no known form");
      const json family = dimensions.value("gpu_family", json());
      if (!family.is_string() || !details.contains("value")) continue;
      for (const json& place : places) {
        if (!place.is_string()) refuse("\"applicableLocations\" must be a list of texts");
        read_.limits.push_back({.cloud = "gcp",
                                .region = place.get<std::string>(),
                                .name = family.get<std::string>() + "_GPUS",
                                .limit = number(details, "value", true)});
      }
    }
  }

  // The region is the fourth part of a limit's name: arn:aws:servicequotas:us-east-1:...
  void read_aws(const json& value) {
    for (const json& one : list(value, "Quotas")) {
      std::istringstream parts(text(one, "QuotaArn"));
      std::string region;
      for (int k = 0; k < 4; ++k) std::getline(parts, region, ':');
      read_.limits.push_back({.cloud = "aws",
                              .region = region.empty() ? "*" : region,
                              .name = text(one, "QuotaCode"),
                              .limit = number(one, "Value", true)});
    }
  }

  void read_line(std::string words, int line) {
    for (char& c : words) c = c == ',' ? ' ' : c;
    std::istringstream in(words);
    std::vector<std::string> all;
    for (std::string word; in >> word;) all.push_back(word);
    QuotaLimit limit;
    if (all.back() == "spot") limit.spot = true, all.pop_back();
    const auto value = [&](size_t k) {
      const auto number = base::parse_number<double>(all[k]);
      if (!number || !(*number >= 0 && *number <= kMost))
        refuse(fmt::format("line {}: {} must be a number, 0 or more", line, base::quoted(all[k])));
      return *number;
    };
    if (all.size() < 3 || all.size() > 4) refuse(fmt::format("line {}: {} words", line, all.size()));
    limit.region = all[0], limit.limit = value(2), limit.used = all.size() > 3 ? value(3) : 0;
    limit.name = known_name(all[1], line);
    read_.limits.push_back(limit);
  }

  // A device or machine as the catalogue spells it, or a cloud's own name for a limit.
  std::string known_name(const std::string& word, int line) const {
    const Catalogue& all = catalogue();
    if (const MachineRow* row = all.find_machine(word)) return row->name;
    if (const DeviceRow* row = all.find_device(word)) return row->name;
    std::vector<std::string> names;
    for (const QuotaRow& row : all.quotas) {
      if (word == row.on_demand || word == row.spot) return word;
      names.push_back(row.on_demand), names.push_back(row.spot);
    }
    for (const MachineRow& row : all.machines) names.push_back(row.name);
    for (const DeviceRow& row : all.devices) names.push_back(row.name);
    const std::string near = base::nearest_word(word, names);
    refuse(fmt::format("line {}: {} is no device, machine or limit{}", line, base::quoted(word),
                       near.empty() ? "" : "; did you mean " + near + "?"));
  }

  Quota read_;
};

}  // namespace

Quota read_quota(std::string_view text, const std::string& file) {
  Reader reader(file);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a mark that some editors put first
  const std::string_view begins = base::trimmed(text);
  if (begins.starts_with('{') || begins.starts_with('[')) {
    const json value = json::parse(text, nullptr, false);
    if (value.is_discarded())
      throw base::ConfigError(574, fmt::format("{} is not complete JSON; write it again", file));
    reader.read_json(value);
  } else {
    reader.read_plain(text);
  }
  return reader.take();
}

}  // namespace lockstep::plan

#include "lockstep/plan/quota/quota.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

constexpr const char* kRegion = R"({"kind": "compute#region", "name": "us-central1", "quotas": [
  {"metric": "CPUS", "limit": 72.0, "usage": 4.0},
  {"metric": "NVIDIA_A100_80GB_GPUS", "limit": 16.0, "usage": 8.0},
  {"metric": "PREEMPTIBLE_NVIDIA_A100_80GB_GPUS", "limit": 64.0, "usage": 0.0}]})";
constexpr const char* kAws = R"({"Quotas": [
  {"ServiceCode": "ec2", "QuotaArn": "arn:aws:servicequotas:us-east-1:1:ec2/L-417A185B", "QuotaCode": "L-417A185B",
   "QuotaName": "Running On-Demand P instances", "Value": 192.0}]})";
constexpr const char* kInfo = R"([{"quotaId": "GPUS-PER-GPU-FAMILY-per-project-region", "dimensionsInfos": [
  {"dimensions": {"gpu_family": "NVIDIA_H100"}, "details": {"value": "8"}, "applicableLocations": ["us-east4", "us-west1"]},
  {"dimensions": {"gpu_family": "NVIDIA_H200"}, "details": {"value": "-1"}, "applicableLocations": ["us-east4"]},
  {"details": {"value": "0"}, "applicableLocations": ["us-east4"]}]}])";

QuotaQuestion asks(const char* machine, int machines, Tariff tariff = Tariff::on_demand) {
  return {.row = catalogue().find_machine(machine), .machines = machines, .tariff = tariff};
}

// Region, fits or not, free, needed: "us-central1 yes 8 of 8".
std::string answer(const std::string& text, const QuotaQuestion& question) {
  std::string words;
  for (const QuotaVerdict& v : verdicts(read_quota(text, "q"), question)) {
    words += v.region + (v.fits() ? " yes " : " no ") + std::to_string(static_cast<int64_t>(v.needed)) +
             " of " + std::to_string(static_cast<int64_t>(v.limit - v.used)) + " " + v.counts + "; ";
  }
  return words;
}

TEST(Quota, FormsAndTariffs) {
  struct Row {
    const char* text;
    QuotaQuestion question;
    const char* expected;
  };
  for (const Row& row : {
           Row{kRegion, asks("a2-ultragpu-8g", 1), "us-central1 yes 8 of 8 GPUs; "},
           Row{kRegion, asks("a2-ultragpu-8g", 2), "us-central1 no 16 of 8 GPUs; "},
           Row{kRegion, asks("a2-ultragpu-8g", 2, Tariff::spot), "us-central1 yes 16 of 64 GPUs; "},
           Row{kRegion, asks("a2-highgpu-8g", 1), ""},  // the file does not say
           Row{kAws, asks("p5.48xlarge", 1), "us-east-1 yes 192 of 192 vCPUs; "},
           Row{kAws, asks("p5.48xlarge", 2), "us-east-1 no 384 of 192 vCPUs; "},
           Row{kAws, asks("p5.48xlarge", 1, Tariff::spot), ""},
           Row{kInfo, asks("a3-highgpu-8g", 1), "us-east4 yes 8 of 8 GPUs; us-west1 yes 8 of 8 GPUs; "},
           Row{kInfo, asks("a3-ultragpu-8g", 9), "us-east4 yes 72 of 1000000000000 GPUs; "},
           Row{"us-east H100 16 8\n", asks("gpu_8x_h100_sxm5", 1), "us-east yes 8 of 8 GPUs; "},
           Row{"us-east H100 16 8 # ours\n", asks("gpu_8x_h100_sxm5", 2), "us-east no 16 of 8 GPUs; "},
           Row{"us-east4,a3-megagpu-8g,2\n", asks("a3-megagpu-8g", 2), "us-east4 yes 2 of 2 machines; "},
           Row{"x H100 16\nx H100 4 spot\n", asks("a3-highgpu-8g", 1, Tariff::spot), "x no 8 of 4 GPUs; "},
           Row{"\xef\xbb\xbfus-east H100 16\r\n", asks("gpu_8x_h100_sxm5", 1), "us-east yes 8 of 16 GPUs; "},
           Row{"x NVIDIA_H100_GPUS 8\n", asks("a3-highgpu-8g", 1), "x yes 8 of 8 GPUs; "},
       }) {
    EXPECT_EQ(answer(row.text, row.question), row.expected) << row.text;
  }
}

TEST(Quota, AllRegionsTogether) {
  const std::string project =
      R"({"kind": "compute#project", "name": "p", "quotas": [{"metric": "GPUS_ALL_REGIONS", "limit": 4, "usage": 0}]})";
  Quota both = read_quota(kRegion, "region");
  both.add(read_quota(project, "project"));
  const std::vector<QuotaVerdict> found = verdicts(both, asks("a2-ultragpu-8g", 1));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].fits());
  EXPECT_NE(found[0].ask.find("GPUS-ALL-REGIONS-per-project"), std::string::npos) << found[0].ask;
  EXPECT_TRUE(verdicts(both, asks("a2-ultragpu-8g", 1, Tariff::spot))[0].fits());
}

TEST(Quota, DraftsTheRequestForMore) {
  const auto ask = [](const char* text, QuotaQuestion question) {
    question.purpose = "to train x";
    const std::vector<QuotaVerdict> all = verdicts(read_quota(text, "q"), question);
    return all.empty() ? "" : all[0].ask;
  };
  const std::string older = ask(kRegion, asks("a2-ultragpu-8g", 2));
  EXPECT_NE(older.find("--quota-id=NVIDIA-A100-80GB-GPUS-per-project-region --dimensions=region=us-central1"),
            std::string::npos)
      << older;
  EXPECT_NE(older.find("--preferred-value=24"), std::string::npos) << older;  // 8 are in use
  EXPECT_NE(older.find("2 x a2-ultragpu-8g to train x"), std::string::npos) << older;
  EXPECT_NE(ask(kInfo, asks("a3-highgpu-8g", 2)).find("--dimensions=gpu_family=NVIDIA_H100,region=us-east4"),
            std::string::npos);
  EXPECT_NE(ask(kAws, asks("p5.48xlarge", 2))
                .find("--quota-code L-417A185B --region us-east-1 --desired-value 384"),
            std::string::npos);
  EXPECT_NE(ask("us-east H100 8", asks("gpu_8x_h100_sxm5", 2)).find("8 more than now"), std::string::npos);
}

TEST(Quota, WrongFilesAreRefused) {
  for (const char* text :
       {"", "{", "[]", "{}", "[1]", "{\"quotas\": 1, \"name\": \"x\"}", "{\"quotas\": [1], \"name\": \"x\"}",
        "{\"quotas\": [{\"metric\": \"A\", \"limit\": \"many\"}], \"name\": \"x\"}",
        "{\"quotas\": [{\"metric\": \"A\", \"limit\": 1}]}",
        "{\"Quotas\": [{\"QuotaCode\": \"L\", \"Value\": 1}]}",
        "[{\"quotaId\": \"q\", \"dimensionsInfos\": [{\"dimensions\": 1}]}]", "us H100", "us H100 many",
        "us H100 -1", "us H10 8", "us H100 1 2 3", "spot"}) {
    EXPECT_THROW(read_quota(text, "q"), base::ConfigError) << text;
  }
  EXPECT_THROW(check_cloud(read_quota(kRegion, "q"), *catalogue().find_machine("p5.48xlarge")),
               base::ConfigError);
  EXPECT_NO_THROW(check_cloud(read_quota(kRegion, "q"), *catalogue().find_machine("a3-highgpu-8g")));
}

// Every GPU machine of Google and AWS has a rule, so that no listing is silently without an answer.
TEST(Quota, EveryMachineOfTheseCloudsHasARule) {
  for (const MachineRow& row : built_in_catalogue().machines) {
    const bool ours = (row.cloud == "gcp" || row.cloud == "aws") && !row.device.starts_with("TPU");
    if (ours) EXPECT_NE(built_in_catalogue().find_quota(row), nullptr) << row.name;
    if (row.cloud == "aws") EXPECT_GT(row.vcpus, 0) << row.name;
  }
}

}  // namespace
}  // namespace lockstep::plan

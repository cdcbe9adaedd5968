// SageMaker training jobs of AWS, through the aws command. Arguments of a container are short there, so the
// script travels through the bucket; the run folder is the checkpoint folder, which SageMaker copies to the
// bucket and brings back after an interruption.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/jobs/target.h"

namespace lockstep::jobs {
namespace {

using json = nlohmann::ordered_json;
constexpr const char* kLabel = "SageMaker training job";
constexpr const char* kFolder = "/opt/ml/checkpoints";
constexpr int64_t kDay = 86400;

std::vector<std::string> aws(const Place& place, std::vector<std::string> words) {
  words.insert(words.begin(), "aws");
  if (!place.region.empty()) words.insert(words.end(), {"--region", place.region});
  if (!place.profile.empty()) words.insert(words.end(), {"--profile", place.profile});
  words.insert(words.end(), place.options.begin(), place.options.end());
  return words;
}

std::string folder_of(const Job& job) {
  return job.place.bucket + (job.place.bucket.ends_with('/') ? "" : "/") + job.id;
}

Place checked(const Place& place) {
  require_settings(place, {"image", "machine", "role", "bucket"});
  if (!place.bucket.starts_with("s3://") || place.bucket.size() < 8)
    throw base::ConfigError(721,
                            fmt::format("bucket is s3://BUCKET/PREFIX for a target of kind sagemaker, not {}",
                                        base::quoted(place.bucket)));
  if (!place.machine.starts_with("ml."))
    throw base::ConfigError(
        721, fmt::format("machine types of SageMaker begin with ml., as in ml.p4d.24xlarge, not {}",
                         base::quoted(place.machine)));
  require_shared_secret(place, "Secrets Manager and add --secret LOCKSTEP_SECRET=aws:NAME");
  return place;
}

// Managed spot training waits for machines, all of which counts against the longest wait.
json stopping(const Place& place) {
  const int64_t time = place.time.count ? place.time.count : kDay;
  json condition{{"MaxRuntimeInSeconds", time}};
  if (place.spot)
    condition["MaxWaitTimeInSeconds"] = time + (place.max_wait.count ? place.max_wait.count : kDay);
  return condition;
}

// Machines with disks of their own have those and no others, and more than they hold is refused: the
// smallest, ml.g4dn.xlarge, has 125 GB.
int64_t disk_of(const Place& place) {
  constexpr const char* kOwnDisks[] = {"ml.g4dn.", "ml.g5.", "ml.g6", "ml.p3dn.", "ml.p4d", "ml.p5"};
  if (place.disk_gib > 0) return place.disk_gib;
  for (const char* family : kOwnDisks) {
    if (place.machine.starts_with(family)) return 100;
  }
  return 200;
}

json request(const Job& job) {
  const Place& place = job.place;
  const json channel{{"ChannelName", "lockstep"},
                     {"DataSource",
                      {{"S3DataSource",
                        {{"S3DataType", "S3Prefix"},
                         {"S3Uri", folder_of(job) + "/job/"},
                         {"S3DataDistributionType", "FullyReplicated"}}}}}};
  json all{
      {"TrainingJobName", job.id},
      {"AlgorithmSpecification",
       {{"TrainingImage", place.image},
        {"TrainingInputMode", "File"},
        {"ContainerEntrypoint", {"sh", "/opt/ml/input/data/lockstep/run.sh"}}}},
      {"RoleArn", place.role},
      {"InputDataConfig", json::array({channel})},
      {"OutputDataConfig", {{"S3OutputPath", folder_of(job) + "/output"}}},
      {"CheckpointConfig", {{"S3Uri", folder_of(job) + "/runs"}, {"LocalPath", kFolder}}},
      {"ResourceConfig",
       {{"InstanceType", place.machine}, {"InstanceCount", place.nodes}, {"VolumeSizeInGB", disk_of(place)}}},
      {"StoppingCondition", stopping(place)},
      {"EnableManagedSpotTraining", place.spot},
      {"Tags", json::array({{{"Key", "lockstep-job"}, {"Value", job.id}}})}};
  return all;
}

Plan plan(const Job& asked) {
  Job job = asked;
  job.place = checked(asked.place);
  if (job.place.folder.empty()) job.place.folder = kFolder;
  const Place& place = job.place;
  Plan plan;
  // The launcher reads SageMaker's list of hosts by itself.
  plan.files = {{"run.sh", place.spot ? returning_script(job, "", 150) : self_contained_script(job)},
                {"job.json", request(job).dump(2) + "\n"}};
  const std::string script = folder_of(job) + "/job/run.sh";
  plan.steps.push_back(
      {.command = {.words = aws(place, {"s3", "cp", job.state_folder + "/run.sh", script}),
                   .patience_s = 300},
       .makes = {
           {.job = job.id,
            .label = "script in the bucket",
            .find = {"sh", "-c",  // 1 without a word: there is no such object
                     fmt::format(
                         "said=$({} 2>&1); code=$?; [ \"$code$said\" = 1 ] && exit 0; [ \"$code\" = 0 ] || "
                         "{{ echo \"$said\" >&2; exit \"$code\"; }}; echo {}",
                         shell_line(aws(place, {"s3", "ls", script})), shell_word(script))},
            .remove = aws(place, {"s3", "rm", script}),
            .costs = false,
            .id = script}}});
  // A job that has ended stays in SageMaker's list for ever, and costs nothing.
  const std::string list = shell_line(
      aws(place, {"sagemaker", "list-training-jobs", "--name-contains", job.id, "--output", "text", "--query",
                  "TrainingJobSummaries[?TrainingJobStatus=='InProgress'||TrainingJobStatus=='Stopping']."
                  "TrainingJobName"}));
  plan.steps.push_back(
      {.command = {.words = aws(place, {"sagemaker", "create-training-job", "--cli-input-json",
                                        "file://" + job.state_folder + "/job.json"}),
                   .patience_s = 300},
       .makes = {
           {.job = job.id,
            .label = kLabel,
            .find = {"sh", "-c", fmt::format("said=$({}) || exit 1; echo \"$said\" | sed '/^None$/d'", list)},
            .remove = aws(place, {"sagemaker", "stop-training-job", "--training-job-name", job.id}),
            .id = job.id}}});
  return plan;
}

Status status(const Submitted& job, Client& client) {
  const Command command{
      aws(job.place, {"sagemaker", "describe-training-job", "--training-job-name", job.id, "--output", "json",
                      "--query", "[TrainingJobStatus,SecondaryStatus,FailureReason]"})};
  const Answer answer = client.run(command);
  if (!answer.ok()) return {State::unknown, "", answer.complaint(command)};
  const nlohmann::json said = nlohmann::json::parse(answer.output, nullptr, false);
  const auto part = [&](size_t k) {
    return said.is_array() && k < said.size() && said[k].is_string() ? said[k].get<std::string>()
                                                                     : std::string();
  };
  const std::string state = part(0), phase = part(1), reason = part(2);
  if (state == "Completed") return {State::done, job.place.region, ""};
  if (state == "Stopped") return {State::stopped, "", phase};
  if (state == "Stopping") return {State::ending, "", phase};
  if (state == "Failed" && reason.find("exit code: 75") != std::string::npos)
    return {State::saved, "", "preempted and saved; submit it again to resume"};
  if (state == "Failed") return {State::failed, "", reason};
  if (state == "InProgress" && (phase == "Training" || phase == "Uploading"))
    return {State::running, job.place.region, phase};
  return {State::queued, "", phase.empty() ? state : phase};
}

Logs logs(const Submitted& job, const LogsOptions& options) {
  std::vector<std::string> words = {"logs",
                                    "tail",
                                    "/aws/sagemaker/TrainingJobs",
                                    "--log-stream-name-prefix",
                                    fmt::format("{}/algo-{}", job.id, options.node + 1),
                                    "--since",
                                    "7d",
                                    "--format",
                                    "short"};
  if (options.follow) words.push_back("--follow");
  return {.command = {aws(job.place, words)}};
}

std::vector<std::string> why(const Submitted&, const Status& status, Client&) {
  static const std::vector<Reason> reasons = {
      {"CapacityError",
       "AWS has no such machines free; try another region, or spot = true with a long max_wait"},
      {"ResourceLimitExceeded",
       "the account's quota does not suffice; ask for more at Service Quotas, SageMaker"},
      {"AccessDenied", "the role may not do that; give it the permission that the message names"},
      {"Starting", "its machines are being provisioned"},
      {"Pending", "it waits for machines"},
      {"Interrupted", "its machines were taken away; SageMaker starts it again from its checkpoint"},
      {"MaxRuntimeExceeded", "its time is over; submit it again with a longer --time to resume"},
      {"MaxWaitTimeExceeded", "no machines were free for so long; submit it again with a longer max_wait"},
      {"exit code: 2", "the run was rejected; `lockstep logs` says why"},
  };
  if (status.reason.empty()) return {};
  const std::string meaning = meaning_of(reasons, status.reason);
  return {base::quoted(status.reason, 600) + (meaning.empty() ? "" : ": " + meaning)};
}

Command shell(const Submitted&, int64_t) { return {}; }

std::vector<Check> checks(const Place& place) {
  checked(place);
  const auto any = [](const Place&, const Answer&) { return std::string(); };
  return {{"login", {aws(place, {"sts", "get-caller-identity", "--output", "text", "--query", "Arn"})}},
          {"permissions", {aws(place, {"sagemaker", "list-training-jobs", "--max-results", "1"})}, any},
          {"bucket", {aws(place, {"s3", "ls", place.bucket})}, any}};
}

}  // namespace

Target sagemaker_target() {
  return {.kind = "sagemaker",
          .summary = "SageMaker training jobs of AWS",
          .client = "aws",
          .example =
              "lockstep submit first.toml --to sagemaker --image IMAGE --gpus 8 --set "
              "machine=ml.p4d.24xlarge --set "
              "role=arn:aws:iam::123456789012:role/trainer --set bucket=s3://my-bucket/runs --set spot=true",
          .shares_files = false,
          .time_limit = TimeLimit::ends_the_job,
          .disk_gib = 200,
          .plan = plan,
          .status = status,
          .logs = logs,
          .why = why,
          .shell = shell,
          .checks = checks};
}

}  // namespace lockstep::jobs

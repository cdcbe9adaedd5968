// What every target makes of its client's answers: states, quotas, what exists, and what a client that fails
// says nothing about.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/temporary_folder.h"
#include "lockstep/jobs/testing.h"

namespace lockstep::jobs {
namespace {

// What each client says, and what state that is.
TEST(Targets, StatesFromTheClientsAnswers) {
  struct Row {
    const char* kind;
    const char* question;  // in the command
    const char* answer;
    State state;
    const char* why;  // in the first sentence of `why`
  };
  const Row rows[] = {
      {"lsf", "bjobs", "RUN|n1:n2|-\n", State::running, ""},
      {"lsf", "bjobs", "PEND|-|Job's requirements for reserving resource (ngpus) not satisfied\n",
       State::queued, "not enough"},
      {"lsf", "bjobs", "EXIT|n1|-\n", State::failed, ""},
      {"lsf", "bjobs", "DONE|n1|-\n", State::done, ""},
      {"tpu", "describe", "WAITING_FOR_RESOURCES\n", State::queued, "waits until the machines are free"},
      {"tpu", "describe", "SUSPENDED\n", State::saved, "taken away"},
      {"ray", "status", "Status for job 'first-abc123': RUNNING\n", State::running, ""},
      {"ray", "status", "Job 'first-abc123' succeeded\n", State::done, ""},
      {"ray", "status",
       "Job 'first-abc123' failed\nStatus message: Job entrypoint command failed with exit code 75\n",
       State::saved, ""},
      {"sagemaker", "describe", "[\"InProgress\", \"Starting\", null]\n", State::queued, "being provisioned"},
      {"sagemaker", "describe", "[\"InProgress\", \"Training\", null]\n", State::running, ""},
      {"sagemaker", "describe", "[\"Failed\", \"Failed\", \"AlgorithmError: , exit code: 75\"]\n",
       State::saved, ""},
      {"sagemaker", "describe", "[\"Failed\", \"Failed\", \"CapacityError: none\"]\n", State::failed,
       "no such machines free"},
      {"sagemaker", "describe", "not json", State::queued, ""},
      {"azureml", "show", "Queued\n", State::queued, "not free"},
      {"azureml", "show", "Canceled\n", State::stopped, ""},
      {"gce", "instances list", "first-abc123-0 RUNNING\nfirst-abc123-1 STAGING\n", State::queued,
       "being made"},
      {"gce", "instances list", "first-abc123-0\tTERMINATED\n", State::saved, "resumes the run"},
      {"gce", "instances list", "first-abc123-0 RUNNING\n", State::running, ""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.kind) + ": " + row.answer);
    FakeClient client([&](const Command& command) {
      const bool asked = shell_line(command.words).find(row.question) != std::string::npos;
      return Answer{.output = asked ? row.answer : ""};
    });
    Submitted job;
    job.id = "first-abc123", job.state_folder = "/nowhere", job.place = job_for(row.kind).place;
    const Target& target = find_target(row.kind);
    const Status status = target.status(job, client);
    EXPECT_EQ(name_of(status.state), std::string(name_of(row.state))) << status.reason;
    const std::vector<std::string> why = target.why(job, status, client);
    EXPECT_TRUE(!*row.why || (!why.empty() && why.at(0).find(row.why) != std::string::npos))
        << (why.empty() ? "" : why.at(0));
  }
}

TEST(Targets, ChecksSeeAQuotaThatIsUsedUp) {
  struct Row {
    const char *kind, *answer, *says;
  };
  const Row rows[] = {
      {"gce", R"({"quotas": [{"metric": "NVIDIA_A100_GPUS", "limit": 16, "usage": 12}]})",
       "has 4 of 16 left"},
      {"gce", R"({"quotas": [{"metric": "NVIDIA_A100_GPUS", "limit": 16, "usage": 8}]})", ""},
      {"gce", R"({"quotas": []})", "no quota NVIDIA_A100_GPUS"},
      {"kubernetes",
       R"({"items": [{"metadata": {"name": "team"}, "status": {"hard": {"requests.nvidia.com/gpu": "8"}, "used": {"requests.nvidia.com/gpu": "2"}}}]})",
       "\"team\" has 6 of 8 left"},
      {"kubernetes", R"({"items": []})", ""},
      {"ssh", "2\n", "nvidia-smi lists 2"},
      {"ssh", "4\n", ""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.kind) + row.answer);
    const Place place = job_for(row.kind).place;
    std::string problem;
    for (const Check& check : find_target(row.kind).checks(place)) {
      if (check.problem) problem = check.problem(place, {.output = row.answer});
    }
    EXPECT_TRUE(*row.says ? problem.find(row.says) != std::string::npos : problem.empty()) << problem;
  }
}

// What finds a job finds no other of the same run, and nothing that was there before.
TEST(Targets, FindOnlyWhatIsTheirOwn) {
  Job one = job_for("pbs"), other = one;
  one.id = "a-run-with-a-long-name-aaaaaa", other.id = "a-run-with-a-long-name-bbbbbb";
  const auto find = [](const Job& job, const char* label) {
    for (const Step& step : find_target(job.place.kind).plan(job).steps) {
      for (const Resource& resource : step.makes) {
        if (resource.label == label) return shell_line(resource.find);
      }
    }
    return std::string();
  };
  EXPECT_NE(find(one, "PBS job"), find(other, "PBS job"));
  EXPECT_NE(find(one, "PBS job").find("name=a-run-wi-aaaaaa "), std::string::npos);

  Job cluster = job_for("kubernetes");
  cluster.place.machine = "a2-highgpu-4g", cluster.place.zone = "us-central1-a";
  cluster.place.cluster = "ml", cluster.place.new_cluster = true;
  EXPECT_NE(
      find(cluster, "GKE cluster").find("--filter=name=ml AND resourceLabels.lockstep-job=first-abc123"),
      std::string::npos);
}

// A client that fails says nothing about what exists; a job that is gone does.
TEST(Targets, AClientThatFailsHasForgottenNothing) {
  struct Row {
    const char *kind, *label, *client, *script;  // of the stand-in
    int code;                                    // of `find`
    const char* output;
  };
  const Row rows[] = {
      {"pbs", "PBS job", "qstat", "exit 111", 1, ""},
      {"pbs", "PBS job", "qstat", "true", 0, ""},
      {"pbs", "PBS job", "qstat", "printf 'Job Id: 7.h\\n  Job_Name = first-abc123\\n'", 0, "7.h\n"},
      {"lsf", "LSF job", "bjobs", "echo Cannot connect to LSF. >&2; exit 255", 1, ""},
      {"lsf", "LSF job", "bjobs", "echo 'Job <first-abc123> is not found' >&2; exit 255", 0, ""},
      {"lsf", "LSF job", "bjobs", "echo 4711", 0, "4711\n"},
      {"sagemaker", "SageMaker training job", "aws", "echo 403 >&2; exit 254", 1, ""},
      {"sagemaker", "SageMaker training job", "aws", "echo None", 0, ""},
      {"sagemaker", "script in the bucket", "aws", "echo AccessDenied >&2; exit 254", 254, ""},
      {"sagemaker", "script in the bucket", "aws", "exit 1", 0, ""},
      {"sagemaker", "script in the bucket", "aws", "echo 2026-01-01 run.sh", 0,
       "s3://bucket/runs/first-abc123/job/run.sh\n"},
      {"terraform", "Terraform module", "terraform", "echo No state file was found! >&2; exit 1", 0, ""},
  };
  ProcessClient client;
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.kind) + ": " + row.script);
    base::TemporaryFolder folder;
    const std::string path = folder.write(row.client, fmt::format("#!/bin/sh\n{}\n", row.script));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    for (const Step& step : find_target(row.kind).plan(job_for(row.kind)).steps) {
      for (const Resource& resource : step.makes) {
        if (resource.label != row.label) continue;
        Command command = find_command(resource);
        command.words.insert(command.words.begin(), {"env", "PATH=" + folder.path() + ":/usr/bin:/bin"});
        const Answer answer = client.run(command);
        EXPECT_EQ(answer.code, row.code) << answer.error;
        EXPECT_EQ(answer.output, row.output);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::jobs

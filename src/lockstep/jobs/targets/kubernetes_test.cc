// The objects that are made in Kubernetes, and what its events mean.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/jobs/submit.h"
#include "lockstep/jobs/testing.h"

namespace lockstep::jobs {
namespace {

TEST(Kubernetes, EveryFormHasItsBudgets) {
  struct Row {
    const char* form;
    std::vector<const char*> says;
  };
  const Row rows[] = {
      {"job",
       {"kind: Job\n", "completionMode: Indexed", "backoffLimit: 6", "- 75", "action: Ignore",
        "subdomain: first-abc123", "--rdzv-endpoint first-abc123-0.first-abc123:29400", "clusterIP: None"}},
      {"jobset",
       {"kind: JobSet\n", "maxRestarts: 3", "RestartJobSetAndIgnoreMaxRestarts",
        "--rdzv-endpoint first-abc123-node-0-0.first-abc123:29400"}},
      {"pytorchjob", {"kind: PyTorchJob\n", "Master:", "Worker:", "nprocPerNode: \"4\"", "backoffLimit: 23"}},
      {"trainjob", {"kind: TrainJob\n", "name: torch-distributed", "numNodes: 2"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.form);
    Job job = job_for("kubernetes");
    job.place.form = row.form;
    job.place.gpu_type = "";
    const std::string text = all_text(find_target("kubernetes").plan(job));
    for (const char* line : row.says) EXPECT_NE(text.find(line), std::string::npos) << line << text;
    EXPECT_NE(text.find("nvidia.com/gpu: \"4\""), std::string::npos);
    EXPECT_NE(text.find("--from-file=secret=/dev/stdin"), std::string::npos);
  }
}

// The kubelet replaces $(NAME) and $$ in commands and in values of variables; doubled, they arrive.
TEST(Kubernetes, EveryDollarArrivesAsItWas) {
  for (const char* form : {"job", "jobset", "pytorchjob", "trainjob"}) {
    Job job = job_for("kubernetes");
    job.place.form = form, job.place.gpu_type = "";
    job.place.environment = {"PRICE=$$5 $(HOME) $HOME$"};
    job.overrides = {"run.note=a$$b$(HOME)"};
    const std::string text = all_text(find_target("kubernetes").plan(job));
    for (const char* words :
         {"value: \"$$$5 $$(HOME) $HOME$\"", "'run.note=a$$$b$$(HOME)'", "HF_TOKEN=$$(cat /home/me/.token)"})
      EXPECT_NE(text.find(words), std::string::npos) << words << text;
  }
}

// Whoever may create nothing may not look or delete either; nothing was made, and the ledger knows it.
TEST(Kubernetes, WhatWasRefusedWasNotMade) {
  struct Row {
    const char* says;
    bool left;
  };
  const Row rows[] = {
      {"error: failed to create secret secrets is forbidden: User \"n\" cannot create resource \"secrets\"",
       false},
      {"The Job \"a\" is invalid: spec.template.labels: Invalid value", false},
      {"Error from server (AlreadyExists): secrets \"a\" already exists", true},
      {"Unable to connect to the server: EOF", true},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.says);
    const base::TemporaryFolder folder;
    Ledger ledger(folder.path() + "/jobs");
    Job job = job_for("kubernetes");
    job.state_folder = folder.path();
    FakeClient client([&](const Command&) -> Answer { return {.code = 1, .output = {}, .error = row.says}; });
    try {
      submit(job, find_target("kubernetes").plan(job), ledger, client, [](const std::string&) {});
      FAIL();
    } catch (const base::IoError& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find("nothing of it is left") == std::string::npos, row.left) << text;
    }
    ASSERT_EQ(ledger.jobs().size(), 1u);
    for (const Resource& resource : ledger.jobs()[0].resources)
      EXPECT_EQ(resource.state != Resource::State::gone, row.left);
  }
}

// The conditions of a Job whose pod ended with a code that its policy does not take, while another pod ends
// and after.
TEST(Kubernetes, AJobThatWillFailIsEnding) {
  const std::string target = R"({"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy"})",
                    failed = R"({"type": "Failed", "status": "True", "reason": "PodFailurePolicy"})";
  for (const auto& [conditions, state] :
       {std::pair{target, State::ending}, std::pair{target + ", " + failed, State::failed}}) {
    FakeClient client([&](const Command& command) -> Answer {
      if (shell_line(command.words).find("get pods") != std::string::npos)
        return {.output = R"({"items": [{"status": {"phase": "Running"}}]})"};
      return {.output = R"({"status": {"conditions": [)" + conditions + "]}}"};
    });
    Submitted job;
    job.id = "first-abc123";
    const Status status = find_target("kubernetes").status(job, client);
    EXPECT_EQ(status.state, state);
    EXPECT_NE(status.reason.find("PodFailurePolicy"), std::string::npos);
  }
}

TEST(Kubernetes, WhyTellsRefusedPodsApart) {
  struct Row {
    const char *event, *remedy;
  };
  const Row rows[] = {
      {"pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
       "choose a namespace whose level is baseline"},
      {"pods \"a\" is forbidden: error looking up service account default/me: serviceaccount \"me\" not "
       "found",
       "correct service_account"},
      {"pods \"a\" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi", "LimitRange"},
      {"pods \"a\" is forbidden: exceeded quota: few", "quota is used up"},
      {"pods is forbidden: User \"n\" cannot list resource", "ask for the role"},
  };
  for (const Row& row : rows) {
    FakeClient client([](const Command&) -> Answer { return {.output = "{}"}; });
    Submitted job;
    job.id = "first-abc123";
    std::string all;
    for (const std::string& line : find_target("kubernetes").why(job, {State::queued, "", row.event}, client))
      all += line + "\n";
    EXPECT_NE(all.find(row.remedy), std::string::npos) << all;
  }
}

TEST(Kubernetes, WhyQuotesTheEventAndNamesTheRemedy) {
  FakeClient client([](const Command& command) -> Answer {
    const std::string what = shell_line(command.words);
    if (what.find("get pods") != std::string::npos)
      return {.output = R"({"items": [{"status": {"phase": "Pending"}}]})"};
    if (what.find("get events") != std::string::npos)
      return {
          .output =
              R"({"items": [{"involvedObject": {"name": "first-abc123-0-x"}, "reason": "FailedScheduling", "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}, {"involvedObject": {"name": "other"}, "reason": "OOMKilled", "message": ""}]})"};
    return {.output = R"({"status": {}})"};
  });
  Submitted job;
  job.id = "first-abc123";
  const Target& target = find_target("kubernetes");
  const Status status = target.status(job, client);
  EXPECT_EQ(status.state, State::queued);
  std::string all;
  for (const std::string& line : target.why(job, status, client)) all += line + "\n";
  EXPECT_NE(all.find("3 Insufficient nvidia.com/gpu.\": no node has so many free GPUs"), std::string::npos)
      << all;
  EXPECT_EQ(all.find("OOMKilled"), std::string::npos) << "another job's event";
  // Once the pod has a node, it is of no interest that there was none.
  FakeClient later([&](const Command& command) -> Answer {
    if (shell_line(command.words).find("get pods") == std::string::npos) return client.run(command);
    return {
        .output =
            R"({"items": [{"metadata": {"name": "first-abc123-0-x"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}]})"};
  });
  const Status runs = target.status(job, later);
  EXPECT_EQ(runs.state, State::running);
  EXPECT_TRUE(target.why(job, runs, later).empty());
}

}  // namespace
}  // namespace lockstep::jobs

// The objects that are made in Kubernetes, and what its events mean.
#include <gtest/gtest.h>

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
}

}  // namespace
}  // namespace lockstep::jobs

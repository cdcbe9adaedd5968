// A place that is not there: what its client is asked, and what it answers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/jobs/submit.h"

namespace lockstep::jobs {

class FakeClient : public Client {
 public:
  using Respond = std::function<Answer(const Command& command)>;
  explicit FakeClient(Respond respond) : respond_(std::move(respond)) {}
  Answer run(const Command& command) override {
    asked.push_back(shell_line(command.words));
    return respond_(command);
  }
  int attach(const Command& command) override { return run(command).code; }
  std::vector<std::string> asked;

 private:
  Respond respond_;
};

inline Job small_job(const std::string& kind, const std::string& state_folder) {
  Job job;
  job.id = "first-abc123";
  job.name = "first";
  job.recipe = "[run]\nname = \"first\"\n";
  job.overrides = {"optim.lr=1e-3"};
  job.state_folder = state_folder;
  job.place.name = job.place.kind = kind;
  job.place.folder = "/scratch/me";
  return job;
}

// All that a plan writes and runs, to look for words in.
inline std::string all_text(const Plan& plan) {
  std::string text;
  for (const File& file : plan.files) text += file.text;
  for (const Step& step : plan.steps) text += shell_line(step.command.words) + "\n";
  return text;
}

// As much of a job as every kind of place takes.
inline Job job_for(const std::string& kind,
                   const std::string& state_folder = "/home/me/.local/state/lockstep/jobs/first-abc123") {
  Job job = small_job(kind, state_folder);
  job.place.nodes = 2;
  job.place.gpus = 4;
  const bool bare = kind == "pbs" || kind == "lsf" || kind == "ssh" || kind == "ray" || kind == "tpu";
  job.place.image = bare ? "" : "registry/lockstep:1";
  job.place.hosts = {"gpu1", "me@gpu2:2222"};
  job.place.machine = "a2-highgpu-4g";
  job.place.gpu_type = "nvidia-tesla-a100";
  job.place.region = "us-central1";
  job.place.zone = "us-central1-a";
  job.place.time = {3600};
  if (kind == "tpu") {
    job.place.nodes = 1, job.place.gpus = 0, job.place.ranks = 4, job.place.machine = "v5litepod-8";
    job.launch = {"train.py", "optim.lr=1e-3"}, job.recipe.clear();
  }
  if (kind == "kubernetes") job.place.machine.clear(), job.place.zone.clear();
  if (kind == "sagemaker") {
    job.place.machine = "ml.p4d.24xlarge", job.place.bucket = "s3://bucket/runs";
    job.place.role = "arn:aws:iam::123456789012:role/trainer";
  }
  if (kind == "azureml") {
    job.place.machine.clear(), job.place.compute = "gpus";
    job.place.workspace = "ml", job.place.resource_group = "research";
  }
  job.place.environment = {"GREETING=it's $HOME"};
  job.place.secrets = {"HF_TOKEN=file:/home/me/.token", "LOCKSTEP_SECRET=file:/home/me/.secret"};
  return job;
}

}  // namespace lockstep::jobs

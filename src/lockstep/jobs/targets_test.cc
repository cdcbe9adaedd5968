// What every target writes: scripts that a shell reads, the words that matter, no secret; and what it makes
// of its client's answers.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/jobs/testing.h"
#include "lockstep/jobs/yaml.h"

namespace lockstep::jobs {
namespace {

Job job_for(const std::string& kind) {
  Job job = small_job(kind, "/home/me/.local/state/lockstep/jobs/first-abc123");
  job.place.nodes = 2;
  job.place.gpus = 4;
  job.place.image = kind == "pbs" || kind == "ssh" ? "" : "registry/lockstep:1";
  job.place.hosts = {"gpu1", "me@gpu2:2222"};
  job.place.machine = "a2-highgpu-4g";
  job.place.gpu_type = "nvidia-tesla-a100";
  job.place.region = "us-central1";
  job.place.zone = "us-central1-a";
  job.place.time = {3600};
  job.place.environment = {"GREETING=it's $HOME"};
  job.place.secrets = {"HF_TOKEN=file:/home/me/.token", "LOCKSTEP_SECRET=file:/home/me/.secret"};
  return job;
}

std::string all_text(const Plan& plan) {
  std::string text;
  for (const File& file : plan.files) text += file.text;
  for (const Step& step : plan.steps) text += shell_line(step.command.words) + "\n";
  return text;
}

TEST(Targets, EveryRowPlansWithoutClientOrLogin) {
  for (const Target& target : target_table()) {
    SCOPED_TRACE(target.kind);
    const Plan plan = target.plan(job_for(target.kind));
    const std::string text = all_text(plan);
    EXPECT_FALSE(plan.steps.empty());
    EXPECT_NE(text.find("lockstep train"), std::string::npos);
    EXPECT_NE(text.find("optim.lr=1e-3"), std::string::npos);
    EXPECT_NE(text.find("--nproc 4"), std::string::npos);
    EXPECT_NE(text.find("/home/me/.token"), std::string::npos);
    size_t made = 0;
    for (const Step& step : plan.steps) {
      EXPECT_EQ(text.find(step.command.input.size() == 64 ? step.command.input : "\1"), std::string::npos)
          << "a secret is seen";
      for (const Resource& resource : step.makes) {
        ++made;
        EXPECT_EQ(resource.job, "first-abc123");
        EXPECT_FALSE(resource.find.empty());
        EXPECT_FALSE(resource.remove.empty());
        EXPECT_TRUE(step.id_in || !resource.id.empty());
      }
    }
    EXPECT_GE(made, 1u);
    EXPECT_NE(std::string(target.example).find(target.kind), std::string::npos);
  }
}

// The scripts are a shell's, whatever the values hold.
TEST(Targets, ScriptsParseAndQuoteWhatTheyAreGiven) {
  base::TemporaryFolder folder;
  ProcessClient client;
  for (const Target& target : target_table()) {
    SCOPED_TRACE(target.kind);
    Job job = job_for(target.kind);
    job.overrides = {"data.path=a b'; rm -rf \"$HOME\"; '"};
    job.recipe = "# END_OF_FILE\n# $(reboot) `reboot`\n[run]\nname = \"first\"";
    for (const File& file : target.plan(job).files) {
      if (!file.name.ends_with(".sh")) continue;
      const std::string path = folder.write(file.name, file.text);
      const Answer answer = client.run({{"bash", "-n", path}});
      EXPECT_EQ(answer.code, 0) << answer.error << file.text;
    }
  }
}

TEST(Targets, HereDocumentsKeepEveryByte) {
  base::TemporaryFolder folder;
  ProcessClient client;
  const std::string text = "END_OF_FILE\n$HOME `id` \\ 'x'\nEND_OF_FILE_\n";
  const Answer answer = client.run({{"sh", "-c", here_document(folder.path() + "/out", text)}});
  EXPECT_EQ(answer.code, 0) << answer.error;
  EXPECT_EQ(base::read_file(folder.path() + "/out"), text);
}

TEST(Slurm, HeaderSaysWhatWasAsked) {
  Job job = job_for("slurm");
  job.place.partition = "gpu";
  job.place.options = {"--exclusive"};
  job.after = "17";
  const std::string text = all_text(find_target("slurm").plan(job));
  for (const char* line :
       {"#SBATCH --nodes=2\n", "#SBATCH --gpus-per-node=nvidia-tesla-a100:4\n", "#SBATCH --time=60\n",
        "#SBATCH --signal=B:TERM@120\n", "#SBATCH --requeue\n", "#SBATCH --partition=gpu\n",
        "#SBATCH --exclusive\n", "#SBATCH --dependency=afterok:17\n", "#SBATCH --chdir=/scratch/me\n",
        "apptainer exec --nv", "-lt 20 ]]"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  job.place.container = "pyxis";
  EXPECT_NE(all_text(find_target("slurm").plan(job)).find("--container-image=registry/lockstep:1"),
            std::string::npos);
}

TEST(Slurm, StatesAndReasons) {
  struct Row {
    const char *squeue, *sacct;
    State state;
    const char* why;
  };
  const Row rows[] = {
      {"17|RUNNING|None|n[1-2]\n", "", State::running, ""},
      {"17|PENDING|Resources|\n", "", State::queued, "waits until enough nodes are free"},
      {"17|PENDING|QOSMaxGRESPerUser|\n", "", State::queued, "quality of service"},
      {"17|COMPLETING|None|n1\n", "", State::ending, ""},
      {"", "COMPLETED|0:0|n1\n", State::done, ""},
      {"", "FAILED|2:0|n1\n", State::failed, ""},
      {"", "FAILED|75:0|n1\n", State::saved, ""},
      {"", "CANCELLED by 0|0:15|n1\n", State::stopped, ""},
      {"", "", State::unknown, ""},
      {"|||||\n\n", "", State::unknown, ""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.squeue) + row.sacct);
    FakeClient client([&](const Command& command) {
      return Answer{.output = command.words[0] == "squeue" ? row.squeue : row.sacct};
    });
    Submitted job;
    job.id = "first-abc123";
    job.state_folder = "/nowhere";
    const Target& target = find_target("slurm");
    const Status status = target.status(job, client);
    EXPECT_EQ(name_of(status.state), std::string(name_of(row.state)));
    const std::vector<std::string> why = target.why(job, status, client);
    EXPECT_TRUE(!*row.why || why.at(0).find(row.why) != std::string::npos);
  }
}

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

TEST(Vertex, PoolZeroHasOneReplica) {
  Job job = job_for("vertex");
  job.place.nodes = 4;
  job.place.spot = true;
  const std::string text = all_text(find_target("vertex").plan(job));
  for (const char* line : {"replicaCount: 1\n", "replicaCount: 3\n", "strategy: SPOT", "timeout: \"3600s\"",
                           "acceleratorType: NVIDIA_TESLA_A100", "restartJobOnWorkerRestart: true"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  job.place.secrets.clear();
  EXPECT_THROW(find_target("vertex").plan(job), base::ConfigError);
}

TEST(Ssh, HostsThatAreNoneAreRefused) {
  for (const char* host : {"-oProxyCommand=reboot", "a b", "a:port", "", "a;b", "me@"}) {
    Job job = job_for("ssh");
    job.place.hosts = {host};
    job.place.nodes = 1;
    EXPECT_THROW(find_target("ssh").plan(job), base::ConfigError) << host;
  }
}

TEST(Yaml, ReadsBackAsWhatItWas) {
  const nlohmann::ordered_json document{
      {"text", "yes"},
      {"lines", "a\n  b\n\nc\n"},
      {"list", {1, "x y", {{"k", "v"}, {"m", nlohmann::ordered_json::array()}}}},
      {"empty", nlohmann::ordered_json::object()}};
  EXPECT_EQ(to_yaml(document),
            "text: \"yes\"\nlines: |\n  a\n    b\n\n  c\nlist:\n  - 1\n  - \"x y\"\n  - k: v\n    m: "
            "[]\nempty: {}\n");
}

}  // namespace
}  // namespace lockstep::jobs

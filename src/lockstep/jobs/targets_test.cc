// What every target writes: scripts that a shell reads, the words that matter, no secret; and what it makes
// of its client's answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/jobs/targets/google.h"
#include "lockstep/jobs/testing.h"
#include "lockstep/jobs/yaml.h"

namespace lockstep::jobs {
namespace {

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
    EXPECT_NE(text.find(std::string(target.kind) == "tpu" ? "lockstep launch" : "lockstep train"),
              std::string::npos);
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

// $code of each start is a word of $codes; how often it started, and the code at the end.
TEST(Targets, TheReturnLoopComesBackAfter75Only) {
  struct Row {
    const char *codes, *before, *says;
  };
  const Row rows[] = {
      {"75 75 0", "", "3 0"},
      {"1 0", "", "1 1"},
      {"2 0", "", "1 2"},
      {"75 75 75 75 0", "", "3 75"},  // the budget is two
      {"75 0", "stop=here; touch here", "1 75"},
      {"75 0", "stop=elsewhere", "2 0"},
  };
  ProcessClient client;
  Place place;
  place.preemptions = 2;
  for (const Row& row : rows) {
    base::TemporaryFolder folder;
    const std::string script = fmt::format(
        "cd {}; echo 0 >starts; {}\ntrain() {{ n=$(($(cat starts) + 1)); echo $n >starts; set -- {}; shift "
        "$((n - 1)); exit "
        "$1; }}\n{}echo $(cat starts) $code\n",
        folder.path(), row.before, row.codes, return_loop(place, 0));
    const Answer answer = client.run({{"sh", "-c", script}});
    EXPECT_TRUE(answer.output.ends_with(std::string(row.says) + "\n")) << answer.output;
  }
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
        "apptainer exec --nv", "-lt 20 ]]", "first=$(scontrol --oneliner show node \"$SLURMD_NODENAME\"",
        "${first:+--rdzv-endpoint \"$first:auto\" --rdzv-id \"$SLURM_JOB_ID\"}"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  job.place.fewest_nodes = 1;
  EXPECT_NE(all_text(find_target("slurm").plan(job)).find("#SBATCH --nodes=1-2\n"), std::string::npos);
  job.place.fewest_nodes = 3;
  EXPECT_THROW(find_target("slurm").plan(job), base::ConfigError);
  job.place.fewest_nodes = 0;
  job.place.container = "pyxis";
  EXPECT_NE(all_text(find_target("slurm").plan(job)).find("--container-image=registry/lockstep:1"),
            std::string::npos);
}

TEST(Slurm, ComponentsOfAHeterogeneousJob) {
  Job job = job_for("slurm");
  job.place.image.clear();
  job.place.options = {"--exclusive"};
  job.place.components = {"nodes=3 gpus=2 partition=old"};
  const std::string text = all_text(find_target("slurm").plan(job));
  const size_t border = text.find("#SBATCH hetjob\n");
  ASSERT_NE(border, std::string::npos) << text;
  struct Row {
    const char* words;
    int first, second;  // how often before and after the border
  };
  for (const Row& row :
       {Row{"#SBATCH --nodes=2\n", 1, 0}, Row{"#SBATCH --nodes=3\n", 0, 1},
        Row{"#SBATCH --gpus-per-node=nvidia-tesla-a100:4\n", 1, 0}, Row{"#SBATCH --gpus-per-node=2\n", 0, 1},
        Row{"#SBATCH --time=60\n", 1, 1}, Row{"#SBATCH --partition=old\n", 0, 1},
        Row{"#SBATCH --exclusive\n", 1, 1}, Row{"#SBATCH --job-name=first-abc123\n", 1, 0},
        Row{"--het-group=0 ", 0, 1}, Row{"--nproc 4 --max-restarts 3", 0, 1},
        Row{" : --ntasks-per-node=1", 0, 1}, Row{"--nproc 2 --max-restarts 3", 0, 1}}) {
    const auto count = [&](const std::string& part) {
      int found = 0;
      for (size_t at = part.find(row.words); at != std::string::npos; at = part.find(row.words, at + 1))
        ++found;
      return found;
    };
    EXPECT_EQ(count(text.substr(0, border)), row.first) << row.words << text;
    EXPECT_EQ(count(text.substr(border)), row.second) << row.words << text;
  }
  for (const char* wrong : {"nodes", "time=3h", "nodes=0", "gpus=many"}) {
    job.place.components = {wrong};
    EXPECT_THROW(find_target("slurm").plan(job), base::ConfigError) << wrong;
  }
  job.place.components = {"nodes=1"};
  job.sweep = {.key = "optim.lr", .values = {"1e-3", "1e-4"}};
  EXPECT_THROW(find_target("slurm").plan(job), base::ConfigError);
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

// What a kind makes of a place: what it says, and what it must not say.
struct Emitted {
  const char* what;
  const char* kind;
  void (*change)(Job& job);
  std::vector<const char*> says;
  std::vector<const char*> says_not = {};
};

TEST(Targets, EmitWhatWasAsked) {
  const Emitted rows[] = {
      {"instances",
       "gce",
       [](Job&) {},
       {"gcloud compute instances create first-abc123-0 first-abc123-1", "--machine-type=a2-highgpu-4g",
        "--accelerator=type=nvidia-tesla-a100,count=4", "--maintenance-policy=TERMINATE",
        "--max-run-duration=3600s", "--rdzv-endpoint \"$FIRST\":29400", "nvidia-ctk runtime configure",
        "install-driver.sh", "docker run", "NCCL_SOCKET_IFNAME='^docker,veth,lo'"},
       {"SPOT", "mdadm", "instance-templates"}},
      {"spot",
       "gce",
       [](Job& job) { job.place.spot = true; },
       {"--provisioning-model=SPOT", "--instance-termination-action=STOP"},
       {"instance-groups"}},
      {"a group brings spot machines back",
       "gce",
       [](Job& job) { job.place.spot = job.place.managed = true; },
       {"instance-templates create first-abc123 ",
        "instance-groups managed create first-abc123 --template=first-abc123 --size=0",
        "--default-action-on-vm-failure=repair", "create-instance first-abc123 --instance=first-abc123-1"},
       {"resize-requests"}},
      {"flex-start",
       "gce",
       [](Job& job) { job.place.strategy = "FLEX_START"; },
       {"--reservation-affinity=none",
        "resize-requests create first-abc123 --resize-request=first-abc123 --resize-by=2 "
        "--requested-run-duration=3600s",
        "list-instances first-abc123", "--default-action-on-vm-failure=do-nothing"},
       {"create-instance"}},
      {"A3's networks, disks, placement",
       "gce",
       [](Job& job) {
         job.place.machine = "a3-highgpu-8g", job.place.gpus = 0, job.place.gpu_type.clear();
         job.place.networks = {"g0", "g1/s1"}, job.place.local_ssd = 2, job.place.placement = "compact";
       },
       {"--accelerator=type=nvidia-h100-80gb,count=8", "--network-interface=nic-type=GVNIC,network=default",
        "--network-interface=nic-type=GVNIC,network=g1,subnet=s1",
        "--local-ssd=interface=NVME --local-ssd=interface=NVME",
        "resource-policies create group-placement first-abc123 --vm-count=2 --collocation=collocated "
        "--region=us-central1",
        "--resource-policies=first-abc123", "--nproc 8", "mdadm", "LOCKSTEP_OBJECT_CACHE=/mnt/ssd/objects"}},
      {"without an image, no Docker",
       "gce",
       [](Job& job) { job.place.image.clear(); },
       {"bash /var/lib/lockstep/run.sh"},
       {"docker run"}},
      {"a module",
       "terraform",
       [](Job& job) { job.place.spot = true, job.place.placement = "compact"; },
       {"guest_accelerator {\n    type  = \"nvidia-tesla-a100\"\n    count = 4\n",
        "on_host_maintenance         = \"TERMINATE\"", "name         = \"first-abc123-${count.index}\"",
        "provisioning_model          = \"SPOT\"", "seconds = 3600", "google_compute_resource_policy",
        "terraform -chdir=/home/me/.local/state/lockstep/jobs/first-abc123 apply"}},
      {"a queued TPU",
       "tpu",
       [](Job& job) { job.place.spot = true, job.place.max_wait = {7200}; },
       {"queued-resources create first-abc123 --node-id=first-abc123 --accelerator-type=v5litepod-8",
        "--runtime-version=tpu-ubuntu2204-base", "--spot", "--valid-until-duration=7200s",
        "TPU_WORKER_HOSTNAMES", "lockstep launch --nproc 4 --max-restarts 3 train.py optim.lr=1e-3"}},
      {"LSF",
       "lsf",
       [](Job& job) { job.place.cpus = 8, job.place.partition = "gpu"; },
       {"#BSUB -n \"16\"", "#BSUB -R \"span[ptile=8]\"", "#BSUB -gpu \"num=4/host:gmodel=nvidia-tesla-a100\"",
        "#BSUB -W \"60\"", "#BSUB -wa \"TERM\"", "#BSUB -wt \"2\"", "#BSUB -Q \"75\"", "#BSUB -q \"gpu\"",
        "blaunch -z", "--rdzv-endpoint \"$first\":auto --rdzv-id first-abc123",
        "--rdzv-secret-file /home/me/.local/state/lockstep/jobs/first-abc123/secret"}},
      {"Ray",
       "ray",
       [](Job& job) { job.place.address = "http://head:8265"; },
       {"ray job submit --address http://head:8265 --submission-id first-abc123 --no-wait", "\"gpus\": 4",
        "STRICT_SPREAD", "--node-rank \\\"$NODE\\\" --rdzv-endpoint \\\"$FIRST\\\":auto"}},
      {"SageMaker on spot machines",
       "sagemaker",
       [](Job& job) { job.place.spot = true; },
       {"\"EnableManagedSpotTraining\": true", "\"MaxWaitTimeInSeconds\": 90000", "\"InstanceCount\": 2",
        "\"S3Uri\": \"s3://bucket/runs/first-abc123/runs\"", "aws s3 cp ", "create-training-job"}},
      {"Azure ML",
       "azureml",
       [](Job&) {},
       {"process_count_per_instance: 1", "compute: \"azureml:gpus\"", "timeout: 3600",
        "unset RANK LOCAL_RANK", "--node-rank \"$NODE_RANK\" --rdzv-endpoint \"$MASTER_ADDR\":29400",
        "az ml job create"}},
      {"a spot job of Vertex AI waits after 75",
       "vertex",
       [](Job& job) { job.place.spot = true; },
       {"preempted and saved; running again", "sleep 60", "restartJobOnWorkerRestart: true"}},
      {"another ends",
       "vertex",
       [](Job&) {},
       {"exec lockstep train"},
       {"running again", "restartJobOnWorkerRestart"}},
      {"Vertex AI on TPUs",
       "vertex",
       [](Job& job) {
         job.place.machine = "ct5lp-hightpu-4t", job.place.topology = "2x2", job.place.gpus = 0,
         job.place.gpu_type.clear();
         job.launch = {"train.py"}, job.place.nodes = 1;
       },
       {"tpuTopology: \"2x2\"", "lockstep launch"},
       {"acceleratorType"}},
      {"a GKE node pool of its own",
       "kubernetes",
       [](Job& job) {
         job.place.machine = "a2-highgpu-4g", job.place.zone = "us-central1-a";
         job.place.cluster = "ml", job.place.strategy = "FLEX_START", job.place.new_cluster = true;
         job.place.placement = "compact", job.place.local_ssd = 1;
       },
       {"gcloud container clusters create ml ",
        "node-pools create first-abc123 --cluster=ml --machine-type=a2-highgpu-4g "
        "--num-nodes=0 --enable-autoscaling --min-nodes=0 --max-nodes=2",
        "--accelerator=type=nvidia-tesla-a100,count=4,gpu-driver-version=default",
        "--enable-queued-provisioning", "--placement-type=COMPACT", "--ephemeral-storage-local-ssd=count=1",
        "kind: ProvisioningRequest", "provisioningClassName: queued-provisioning.gke.io",
        "consume-provisioning-request: first-abc123", "lockstep-job: first-abc123", "get-credentials ml",
        "--kubeconfig="}},
      {"a script of the user's",
       "kubernetes",
       [](Job& job) {
         job.launch = {"train.py", "--epochs", "10"}, job.recipe.clear();
       },
       {"lockstep launch --nproc 4 --max-restarts 3 --nnodes 2",
        "--rdzv-id first-abc123 train.py --epochs 10"}},
  };
  for (const Emitted& row : rows) {
    SCOPED_TRACE(row.what);
    Job job = job_for(row.kind);
    row.change(job);
    const std::string text = all_text(find_target(row.kind).plan(job));
    for (const char* words : row.says)
      EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
    for (const char* words : row.says_not)
      EXPECT_EQ(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST(Targets, RefuseWhatThePlaceWouldRefuse) {
  struct Row {
    const char* kind;
    void (*change)(Job& job);
    const char* says;
  };
  const Row rows[] = {
      {"gce", [](Job& job) { job.place.gpus = 8; }, "a2-highgpu-4g has 4 GPUs"},
      {"gce", [](Job& job) { job.place.machine = "n1-standard-4", job.place.gpu_type.clear(); },
       "no GPUs of its own"},
      {"gce", [](Job& job) { job.place.strategy = "FLEX_START", job.place.time = {}; }, "needs a time"},
      {"gce", [](Job& job) { job.place.spot = true, job.place.strategy = "FLEX_START"; }, "contradict"},
      {"gce", [](Job& job) { job.place.placement = "compact", job.place.nodes = 1; }, "several machines"},
      {"gce", [](Job& job) { job.place.networks = {"a"}; }, "takes 0 more networks"},
      {"gce", [](Job& job) { job.place.boot_image = "ubuntu"; }, "FAMILY@PROJECT"},
      {"gce", [](Job& job) { job.place.secrets.clear(); }, "google:NAME"},
      {"tpu", [](Job& job) { job.launch.clear(); }, "no kernels for TPUs"},
      {"tpu", [](Job& job) { job.place.runtime = "2.14.0"; }, "TPU Node"},
      {"tpu", [](Job& job) { job.place.machine = "v4-32", job.place.secrets.clear(); }, "share a secret"},
      {"vertex", [](Job& job) { job.place.machine = "cloud-tpu"; }, "ct5lp-hightpu-4t"},
      {"vertex", [](Job& job) { job.place.machine = "ct5lp-hightpu-4t"; }, "topology"},
      {"sagemaker", [](Job& job) { job.place.bucket = "gs://b/x"; }, "s3://"},
      {"sagemaker", [](Job& job) { job.place.machine = "p4d.24xlarge"; }, "ml."},
      {"sagemaker", [](Job& job) { job.place.secrets.clear(); }, "aws:NAME"},
      {"azureml", [](Job& job) { job.place.machine = "Standard_ND96asr_v4"; }, "either compute"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.kind) + ": " + row.says);
    Job job = job_for(row.kind);
    row.change(job);
    try {
      find_target(row.kind).plan(job);
      ADD_FAILURE() << "it was planned";
    } catch (const base::ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
  }
}

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

TEST(Gce, GooglesRegistriesAreLoggedInTo) {
  Job job = job_for("gce");
  EXPECT_EQ(all_text(find_target("gce").plan(job)).find("configure-docker"), std::string::npos);
  job.place.image = "us-docker.pkg.dev/p/r/lockstep:1";
  EXPECT_NE(
      all_text(find_target("gce").plan(job)).find("gcloud auth configure-docker us-docker.pkg.dev --quiet"),
      std::string::npos);
}

TEST(Google, MachineTypesBringTheirGpus) {
  const std::tuple<const char*, const char*, int64_t> rows[] = {{"a2-highgpu-1g", "nvidia-tesla-a100", 1},
                                                                {"a2-ultragpu-8g", "nvidia-a100-80gb", 8},
                                                                {"a3-highgpu-8g", "nvidia-h100-80gb", 8},
                                                                {"g2-standard-48", "nvidia-l4", 4},
                                                                {"n1-standard-4", "", 0},
                                                                {"a2-highgpu-g", "", 0},
                                                                {"a2-highgpu-99g", "", 0},
                                                                {"", "", 0}};
  for (const auto& [machine, type, count] : rows) {
    const std::optional<MachineGpus> found = gpus_of_machine(machine);
    EXPECT_EQ(found ? found->type : "", type) << machine;
    EXPECT_EQ(found ? found->count : 0, count) << machine;
  }
}

TEST(Client, SplitsAProgramAsAShellDoes) {
  EXPECT_EQ(split_shell_words(" train.py --name 'a b' \"c \\\" d\" e\\ f "),
            (std::vector<std::string>{"train.py", "--name", "a b", "c \" d", "e f"}));
  for (const char* bad : {"", "  ", "'a", "''"})
    EXPECT_THROW(split_shell_words(bad), base::ConfigError) << bad;
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

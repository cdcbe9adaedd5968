// What every target writes: scripts that a shell reads, the words that matter, no secret.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/temporary_folder.h"
#include "lockstep/jobs/testing.h"

namespace lockstep::jobs {
namespace {

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
      {"SageMaker on a machine whose own disk is small",
       "sagemaker",
       [](Job& job) { job.place.machine = "ml.g4dn.xlarge"; },
       {"\"VolumeSizeInGB\": 100"}},
      {"SageMaker on one without",
       "sagemaker",
       [](Job& job) { job.place.machine = "ml.p3.2xlarge"; },
       {"\"VolumeSizeInGB\": 200"}},
      {"Azure ML",
       "azureml",
       [](Job&) {},
       {"process_count_per_instance: 1", "compute: \"azureml:gpus\"", "timeout: 3600",
        "unset RANK LOCAL_RANK", "--node-rank \"$NODE_RANK\" --rdzv-endpoint \"$MASTER_ADDR\":29400",
        "az ml job create"}},
      {"Azure ML, with a port of its own",
       "azureml",
       [](Job& job) { job.place.port = 4711; },
       {"--rdzv-endpoint \"$MASTER_ADDR\":4711"}},
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

// ssh resolves no name in brackets; rsync and the rendezvous tell address and port apart by them.
TEST(Ssh, Ipv6Addresses) {
  Job job = job_for("ssh");
  job.place.hosts = {"me@[fe80::1]:2222", "[fe80::2]"}, job.place.bundle = "/opt/lockstep";
  const std::string text = all_text(find_target("ssh").plan(job));
  for (const char* words :
       {" -p 2222 me@fe80::1 'cd && ", " fe80::2 'cd && ",
        "/opt/lockstep/ 'me@[fe80::1]:.lockstep/bundles/lockstep/'", "--rdzv-endpoint [fe80::1]:auto"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  Submitted submitted;
  submitted.place = job.place;
  EXPECT_EQ(shell_line(find_target("ssh").shell(submitted, 1).words), "ssh fe80::2");
}

TEST(Ssh, HostsThatAreNoneAreRefused) {
  for (const char* host :
       {"-oProxyCommand=reboot", "a b", "a:port", "", "a;b", "me@", "fe80::1", "me@::1", "[::1"}) {
    Job job = job_for("ssh");
    job.place.hosts = {host};
    job.place.nodes = 1;
    EXPECT_THROW(find_target("ssh").plan(job), base::ConfigError) << host;
  }
}

}  // namespace
}  // namespace lockstep::jobs

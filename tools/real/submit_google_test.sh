#!/usr/bin/env bash
# submit_google_test.sh BUILD: `lockstep submit` to Google Cloud's places with the real gcloud, against an API of our own
# (google_peer.py) that records every request. Exit 77: skipped.
# shellcheck disable=SC2015,SC2016,SC2086  # a || b after a chain is what rows mean; texts for other shells; words
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
command -v gcloud >/dev/null || skip "gcloud is not here; it comes with the Google Cloud CLI"

export CLOUDSDK_AUTH_DISABLE_CREDENTIALS=True CLOUDSDK_CORE_PROJECT=p1 CLOUDSDK_CORE_DISABLE_PROMPTS=1
export CLOUDSDK_CORE_CHECK_GCE_METADATA=false CLOUDSDK_CORE_DISABLE_USAGE_REPORTING=true CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK=true
CLOUDSDK_PYTHON=$(command -v python3)  # else each start of gcloud tries one after the other
export CLOUDSDK_PYTHON

# with_api COMMAND...: with an API and a configuration of gcloud of its own, so that rows run side by side.
with_api() {
  local port service peer code=0
  api=$PWD/api
  mkdir "$api"
  python3 -B "$here/google_peer.py" 0 "$api" 2>api.log &
  peer=$!
  until_true 30 test -s "$api/port" || { cat api.log; return 1; }
  port=$(cat "$api/port")
  export CLOUDSDK_CONFIG=$PWD/gcloud CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE=http://127.0.0.1:$port/compute/v1/
  for service in AIPLATFORM CONTAINER TPU LOGGING CLOUDQUOTAS SERVICEUSAGE; do export "CLOUDSDK_API_ENDPOINT_OVERRIDES_$service=http://127.0.0.1:$port/"; done
  "$@" || code=$?
  kill "$peer"
  return "$code"
}
answers() { gcloud compute instances list >"$work/why" 2>&1; }
(cd "$work" && with_api answers) || skip "gcloud does not reach its API here: $(tail -n 1 "$work/why")"
google_row() {
  local title=$1
  shift
  row_beside "$title" with_api "$@"
}

# ---- what rows are made of ----------------------------------------------------------------------------

two="--nodes 2 --secret LOCKSTEP_SECRET=google:s"
a100="--image IMAGE --set machine=a2-highgpu-4g --set zone=us-central1-a"

# submit WORD...: each row has a ledger and a list of requests of its own.
submit() {
  export XDG_STATE_HOME=$PWD/state
  "$program" submit "$@" --json >submitted 2>errors || { cat submitted errors >says; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
fresh() { rm -f "$api/requests" "$api/fail" "$api/values.json"; }
# asked WORD...: what was asked of the API, in this order.
asked() {
  python3 - "$api/requests" "$@" <<'END_OF_PYTHON'
import json, sys
found = [f"{one['method']} {one['path'].split('/')[-1] if one['method'] == 'POST' else one['path'].split('/')[-2]}" for one in map(json.loads, open(sys.argv[1]))]
sys.exit(0 if found == sys.argv[2:] else f"asked: {found}")
END_OF_PYTHON
}
requested() { grep -qF -- "$1" "$api/requests" || { echo "no request has $1"; cat "$api/requests"; return 1; }; }
stopped() { ends 0 "$program" stop "$id" && says "nothing of it is left" && ends 0 "$program" stop "$id" && ends 0 "$program" jobs --orphans && says "nothing is left behind"; }

instances() {
  fresh && submit --to gce $a100 $two --set spot=true || return 1
  requested '"provisioningModel": "SPOT"' && requested '"instanceTerminationAction": "STOP"' && requested '"acceleratorCount": 4' || return 1
  ends 0 "$program" jobs && says "2 of 2 instances" && stopped && asked "POST instances" "POST instances" "DELETE instances" "DELETE instances"
}

group() {
  fresh && submit --to gce $a100 $two --set spot=true --set managed=true --set placement=compact || return 1
  ends 0 "$program" jobs && says "2 of 2 instances" && stopped || return 1
  asked "POST resourcePolicies" "POST instanceTemplates" "POST instanceGroupManagers" "POST createInstances" "POST createInstances" \
    "DELETE instanceGroupManagers" "DELETE instanceTemplates" "DELETE resourcePolicies"
}

# A cluster that is there already has the name, and not our label. One that we made goes when the next step fails.
somebody_elses_cluster() {
  local gke="--to kubernetes --image IMAGE --set machine=a2-highgpu-4g --set zone=us-central1-a --set cluster=ml --set new_cluster=true --set project=p1"
  fresh
  python3 - >"$api/values.json" <<'END_OF_PYTHON'
import json
cluster = {"name": "ml", "status": "RUNNING", "zone": "us-central1-a", "location": "us-central1-a", "resourceLabels": {"team": "a"}}
print(json.dumps({f"v1/projects/p1/{kind}/us-central1-a/clusters/ml": cluster for kind in ("zones", "locations")}))
END_OF_PYTHON
  ! submit $gke && says LS0726 && says "nothing of it is left" || { cat says; return 1; }
  ! grep -q '"method": "DELETE"' "$api/requests" || { cat "$api/requests"; return 1; }
}
a_cluster_of_our_own() {
  local gke="--to kubernetes --image IMAGE --set machine=a2-highgpu-4g --set zone=us-central1-a --set cluster=ml --set new_cluster=true --set project=p1"
  fresh && echo "403 POST nodePools" >"$api/fail"
  ! submit $gke && says LS0726 && says "nothing of it is left" || { cat says; return 1; }
  requested '"resourceLabels": {"lockstep-job": ' && requested '"method": "DELETE"'
}

flex() {
  fresh && submit --to gce $a100 $two --set strategy=FLEX_START --time 24h || return 1
  requested '"resizeBy": 2' && requested '"seconds": "86400"' && ends 0 "$program" jobs && says "not made yet" && stopped
}

vertex() {
  fresh && submit --to vertex --image IMAGE --gpus 1 --set machine=n1-standard-4 --set gpu_type=nvidia-tesla-t4 --set region=us-central1 \
    --nodes 4 --secret LOCKSTEP_SECRET=google:s --set spot=true --time 24h || return 1
  requested '"strategy": "SPOT"' && requested '"timeout": "86400s"' && requested '"replicaCount": "3"' && requested '"restartJobOnWorkerRestart": true' || return 1
  ends 0 "$program" why "$id" && says "being provisioned" && stopped && asked "POST customJobs" "POST 77:cancel"
}

tpu() {
  fresh && submit --launch "train.py --epochs 10" --to tpu --set machine=v5litepod-8 --set zone=us-west4-a --set spot=true --set max_wait=2h || return 1
  requested '"acceleratorType": "v5litepod-8"' && requested '"spot": {}' && requested '"validUntilDuration": "7200s"' || return 1
  ends 0 "$program" jobs && says ACCEPTED && stopped
}

# fails STATUS: the second thing that is made is refused; the first is gone again. (Other failures, of every target and at every call:
# src/lockstep/jobs/faults_test.cc.)
fails() {
  fresh
  echo "$1 POST instanceTemplates" >"$api/fail"
  ! submit --to gce $a100 $two --set managed=true --set placement=compact && says LS0726 && says "nothing of it is left" || return 1
  rm "$api/fail"
  ends 0 "$program" jobs --orphans && says "nothing is left behind" && grep -q '"DELETE", "path": ".*resourcePolicies' "$api/requests"
}

# The client is killed in the middle: the ledger knows what may exist, and `stop` removes it.
killed() {
  fresh
  mkdir bin
  printf '#!/bin/bash\n%s "$@"\n[[ $* == *instance-templates\\ create* ]] && kill -KILL $PPID\nexit 0\n' "$(command -v gcloud)" >bin/gcloud
  chmod +x bin/gcloud
  export XDG_STATE_HOME=$PWD/state
  PATH=$PWD/bin:$PATH "$program" submit --to gce $a100 $two --set managed=true --set placement=compact >says 2>&1 && return 1
  ends 0 "$program" jobs && says interrupted && ends 0 "$program" jobs --orphans && says "instance template" && says "placement policy" || return 1
  id=first && stopped
}

# ---- the examples of the documents: their command, ours, and where the requests differ ------------------------------------

# compare WORD < the differences that docs/clusters.md explains
compare() {
  python3 -B "$here/google_compare.py" "$api/requests" "$1" |
    sed "s/$id/ID/g; s/\(maxRunDuration.seconds: - ->\) [0-9][0-9]*00\$/\1 HOURS/" >differences
  diff - differences
}

example_vm() {
  fresh
  gcloud compute instances create gpu-training-vm --zone=us-central1-a --machine-type=a2-highgpu-4g --accelerator=type=nvidia-tesla-a100,count=4 \
    --image-family=pytorch-latest-gpu --image-project=deeplearning-platform-release --boot-disk-size=200GB --maintenance-policy=TERMINATE \
    --metadata="install-nvidia-driver=True" >says 2>&1 || { cat says; return 1; }
  submit --to gce $a100 --set boot_image=pytorch-latest-gpu@deeplearning-platform-release && compare instances <<'END_OF_LIST'
labels.lockstep-job: - -> ID
metadata.items.enable-guest-attributes: - -> TRUE
metadata.items.startup-script: - -> #!/bin/bash
# Runs a...
name: gpu-training-vm -> ID-0
scheduling.instanceTerminationAction: - -> STOP
scheduling.maxRunDuration.seconds: - -> HOURS
serviceAccounts[0].scopes[0]: https://www.googleapis.com/auth/devstorage.read_only -> https://www.googleapis.com/auth/cloud-platform
serviceAccounts[0].scopes[1]: https://www.googleapis.com/auth/logging.write -> -
serviceAccounts[0].scopes[2]: https://www.googleapis.com/auth/monitoring.write -> -
serviceAccounts[0].scopes[3]: https://www.googleapis.com/auth/pubsub -> -
serviceAccounts[0].scopes[4]: https://www.googleapis.com/auth/service.management.readonly -> -
serviceAccounts[0].scopes[5]: https://www.googleapis.com/auth/servicecontrol -> -
serviceAccounts[0].scopes[6]: https://www.googleapis.com/auth/trace.append -> -
END_OF_LIST
}

example_pool() {
  fresh
  gcloud container node-pools create gpu-pool --cluster=ml-cluster --zone=us-central1-a --machine-type=a2-highgpu-4g \
    --accelerator=type=nvidia-tesla-a100,count=4 --num-nodes=2 --enable-autoscaling --min-nodes=0 --max-nodes=4 >says 2>&1 || { cat says; return 1; }
  # Our API has no cluster to log in to: the submission ends there, and its node pool is gone again.
  ! submit --to kubernetes $a100 --nodes 4 --set cluster=ml-cluster --set project=p1 && says "nothing of it is left" || return 1
  id=$(grep -o 'first-[0-9a-z]*' "$api/requests" | head -n 1)
  compare nodePools <<'END_OF_LIST'
nodePool.config.accelerators[0].gpuDriverInstallationConfig.gpuDriverVersion: - -> DEFAULT
nodePool.config.labels.lockstep-job: - -> ID
nodePool.initialNodeCount: 2 -> 0
nodePool.name: gpu-pool -> ID
END_OF_LIST
}

example_vertex() {
  fresh
  gcloud ai custom-jobs create --region=us-central1 --display-name=my-training-job \
    --worker-pool-spec=machine-type=n1-standard-4,accelerator-type=NVIDIA_TESLA_T4,accelerator-count=1,replica-count=4,container-image-uri=IMAGE >says 2>&1 || { cat says; return 1; }
  submit --to vertex --image IMAGE --gpus 1 --set machine=n1-standard-4 --set gpu_type=nvidia-tesla-t4 --set region=us-central1 --nodes 4 \
    --secret LOCKSTEP_SECRET=google:s || return 1
  python3 -B "$here/google_compare.py" "$api/requests" customJobs >differences
  grep -qxF 'jobSpec.workerPoolSpecs[0].replicaCount: 4 -> 1' differences && grep -qxF 'jobSpec.workerPoolSpecs[1].replicaCount: - -> 3' differences &&
    grep -qxF 'jobSpec.workerPoolSpecs[1].machineSpec.acceleratorType: - -> NVIDIA_TESLA_T4' differences && ! grep -q 'workerPoolSpecs\[0\].machineSpec' differences ||
    { cat differences; return 1; }
}

# ---- a spot machine: made by gcloud, booted here in a mount namespace of its own, taken away, started again -----------------

# boot: what Compute Engine does with an instance: its startup script, on its own disk. The stand-ins for curl and shutdown
# are its metadata server and its power switch.
boot() {
  python3 - "$api/requests" >startup.sh <<'END_OF_PYTHON'
import json, sys
body = [one["body"] for one in map(json.loads, open(sys.argv[1])) if one["path"].endswith("/instances")][-1]
print(next(item["value"] for item in body["metadata"]["items"] if item["key"] == "startup-script"))
END_OF_PYTHON
  mkdir -p disk bin
  printf '#!/bin/sh\necho %s-0\n' "$id" >bin/hostname
  printf '#!/bin/sh\ntouch %s/off\n' "$PWD" >bin/shutdown
  printf '#!/bin/sh\nwhile [ "$1" != --data ]; do shift; done\necho "$2" >>%s/told\n' "$PWD" >bin/curl
  chmod +x bin/*
  rm -f off
  PATH=$PWD/bin:$PATH unshare --mount sh -c "mount --bind $PWD/disk /var/lib && exec bash startup.sh" >>serial 2>&1 &
  machine=$!
}
is_off() { [[ -e off ]]; }
saved() { grep -q "preempted and saved" serial; }

spot() {
  fresh && submit "$recipe" --to gce --set machine=e2-standard-2 --set zone=us-central1-a --set spot=true --program "$program" --folder "$PWD" \
    "run.steps=$faulty_steps" run.name=here "${small[@]}" --train=--json || return 1
  boot && until_true 60 step_reached 20 || { cat serial; return 1; }
  kill -TERM "$(ours lockstep | head -n 1)"
  until_true 60 saved || { cat serial; return 1; }
  for pid in $(ours '' "HOME=/root"); do kill -KILL "$pid" 2>/dev/null; done
  kill -KILL "$machine" 2>/dev/null
  gcloud compute instances stop "$id-0" --zone=us-central1-a >says 2>&1 && ends 0 "$program" jobs && says "switched off" || return 1
  gcloud compute instances start "$id-0" --zone=us-central1-a >says 2>&1 && boot && until_true 90 is_off || { cat serial; return 1; }
  cp serial says
  says "resuming from step" && has_bits "$faulty_steps" && [[ $(tail -n 1 told) == 0 ]] || return 1
  # A third boot: it has ended, and nothing runs again.
  boot
  wait "$machine" && ! is_off
}

# ---- quota: what gcloud prints is read, and what is drafted is what gcloud takes ----------------------------------

planned() { "$program" plan "${small[@]}" batch.slices=8 batch.strands=8 --quick --quota quota.json --on "$@" >says 2>&1; }
quota() {
  fresh && gcloud compute regions describe us-central1 --format=json >quota.json || return 1
  planned a2-highgpu-4g && says "fits" || return 1
  planned a2-highgpu-8g && return 1
  says "does not fit" && says "NVIDIA_A100_GPUS" || return 1
  sed -n 's/^  \(gcloud beta quotas .*\)/\1/p' says >ask.sh
  bash ask.sh >asked 2>&1 || { cat ask.sh asked; return 1; }
  requested '"quotaId": "NVIDIA-A100-GPUS-per-project-region"' && requested '"preferredValue": "20"' && requested '"region": "us-central1"' || return 1
  ends 2 "$program" plan --on p5.48xlarge --quick --quota quota.json && says "LS0575"
}

shopped() {
  gcloud compute regions describe us-central1 --format=json >quota.json || return 1
  ends 0 "$program" shop "${small[@]}" --only a2-highgpu --machines 1 --quota quota.json && says "a2-highgpu-4g" && says "quota 4 of 8 GPUs"
}

# The alert's command has no endpoint to override: in a network of its own gcloud takes its words and then finds nobody.
budget() {
  "$program" budget --gcp --amount '$50' --account 000000-000000-000000 --project p1 >alert.sh || return 1
  unshare --net timeout 60 bash alert.sh >said 2>&1
  grep -qiE 'unrecognized|invalid|usage' said && { cat said; return 1; }
  return 0
}

row_limit=800  # some start gcloud ten times, beside others on a busy machine
if unshare --net true 2>/dev/null; then google_row "GKE: a cluster that was there before is not deleted" somebody_elses_cluster
google_row "GKE: a cluster that was made goes when the submission fails" a_cluster_of_our_own
google_row "gcloud takes the words of the alert" budget; fi
if unshare --mount true 2>/dev/null; then google_row "a spot machine is taken away and started again: same bits" spot; fi
google_row "instances: made, watched, stopped twice" instances
google_row "quota: fits, does not fit, and the request for more" quota
google_row "shop within a quota" shopped
google_row "a managed group with compact placement" group
google_row "flex-start: a resize request" flex
google_row "Vertex AI: pool 0 has one replica, spot, a time limit" vertex
google_row "a TPU as a queued resource" tpu
google_row "forbidden: what was made before is gone" fails 403
google_row "the service fails: what was made before is gone" fails 500
google_row "killed in the middle: the ledger knows all of it" killed
google_row "the documents' VM with four A100" example_vm
google_row "the documents' GKE node pool" example_pool
google_row "the documents' replica-count=4" example_vertex
finish

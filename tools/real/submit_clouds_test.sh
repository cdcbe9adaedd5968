#!/usr/bin/env bash
# submit_clouds_test.sh BUILD: `lockstep submit --to sagemaker` with the real aws command against moto, and the Terraform module
# formatted by terraform and held against the schema of Google's provider. Exit 77: skipped.
# shellcheck disable=SC2015,SC2086  # a || b after a chain is what rows mean; words
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
need_python awscli
# Extras of packages are not modules: they are added by name.
need_extra 'moto[server]' python-hcl2
"$python" -c 'import moto.server, hcl2' 2>"$work/why" || skip "$python has no moto or hcl2: $(tail -n 1 "$work/why")"
PATH=$(dirname "$python"):$PATH

port=$(free_port 1)
export AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_DEFAULT_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true
moto_server --host 127.0.0.1 --port "$port" >"$work/moto.log" 2>&1 &
peer=$!
stop() { kill "$peer" 2>/dev/null; }
answers() { aws s3 mb s3://bucket >"$work/why" 2>&1 || grep -q BucketAlready "$work/why"; }
until_true 30 answers || skip "moto does not answer here: $(tail -n 1 "$work/moto.log")"

place="--image IMAGE --gpus 8 --set machine=ml.p4d.24xlarge --set role=arn:aws:iam::123456789012:role/trainer --set bucket=s3://bucket/runs"
submit() {
  export XDG_STATE_HOME=$PWD/state
  "$program" submit --to sagemaker $place "$@" --json >submitted 2>errors || { cat submitted errors >says; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}

watched() {
  submit --nodes 2 --time 24h --set spot=true --secret LOCKSTEP_SECRET=aws:lockstep || { cat says; return 1; }
  aws sagemaker describe-training-job --training-job-name "$id" >job || return 1
  grep -q '"InstanceCount": 2' job && grep -q '"MaxWaitTimeInSeconds": 172800' job && grep -q '"EnableManagedSpotTraining": true' job || { cat job; return 1; }
  aws s3 cp "s3://bucket/runs/$id/job/run.sh" run.sh >/dev/null && grep -q 'aws secretsmanager get-secret-value' run.sh && bash -n run.sh || return 1
  ends 0 "$program" jobs && says "$id" && ends 0 "$program" stop "$id" && ends 0 "$program" stop "$id" && says "nothing of it is left"
}

# The role is none: SageMaker's own rules, as the client knows them.
refused() {
  export XDG_STATE_HOME=$PWD/state
  ends 1 "$program" submit --to sagemaker $place --set role=x --set bucket=s3://bucket/other && says LS0726 && says "nothing of it is left" || return 1
  ! aws s3 ls s3://bucket/other/ --recursive | grep -q run.sh
}

module() {
  export XDG_STATE_HOME=$PWD/state
  "$program" submit --to terraform --image IMAGE --nodes 2 --set machine=a3-highgpu-8g --set zone=us-central1-a --set networks=g0,g1/s1 \
    --set local_ssd=2 --set placement=compact --set spot=true --time 24h --secret LOCKSTEP_SECRET=google:s --dry-run --json >plan || return 1
  "$python" - plan <<'END' || return 1
import json, sys
for file in json.load(open(sys.argv[1]))["files"]:
    open(file["path"].rsplit("/", 1)[1], "w").write(file["text"])
END
  terraform fmt -check -diff main.tf
}

# Microsoft's own reader, as `az ml job create` has it, validates what is written and makes the service's request of it.
azure_reads() {
  export XDG_STATE_HOME=$PWD/state
  local words
  for words in "--set compute=gpus --nodes 2 --time 24h --env A=b --secret LOCKSTEP_SECRET=azure:vault/s" \
    "--set machine=Standard_ND96asr_v4 --gpus 8 --set spot=true" "--set compute=gpus --env A=yes --env B=1e3"; do
    "$program" submit "$recipe" --to azureml --image registry/lockstep:1 --set workspace=w --set resource_group=g $words --dry-run --json >plan || return 1
    "$python" - plan "$words" 2>warnings <<'END' || { tail -n 5 warnings; return 1; }
import json, sys
from azure.ai.ml import load_job
words = sys.argv[2]
open("job.yml", "w").write(json.load(open(sys.argv[1]))["files"][0]["text"])
job = load_job("job.yml")
result = job._validate()
assert result.passed, result.error_messages
assert job.command.rstrip().splitlines()[-1].startswith("exec lockstep train"), job.command
assert job.environment.image == "registry/lockstep:1" and job.tags["lockstep-job"] == job.name
nodes = 2 if "--nodes 2" in words else 1
assert job.resources.instance_count == nodes and (job.distribution is not None) == (nodes > 1)
if nodes > 1: assert job.distribution.process_count_per_instance == 1 and job.limits.timeout == 86400 and job.environment_variables["A"] == "b"
if "spot" in words: assert job.queue_settings.job_tier.lower() == "spot" and job.resources.instance_type == "Standard_ND96asr_v4"
if "A=yes" in words: assert job.environment_variables["A"] == "yes" and job.environment_variables["B"] == "1e3", job.environment_variables
END
  done
}

# Every attribute and block of the module is one of the provider's, by the names of its bindings.
schema() {
  module || return 1
  "$python" - "$1" <<'END'
import re, sys, zipfile, hcl2
wheel = zipfile.ZipFile(sys.argv[1])
text = {name: wheel.read(name).decode() for name in wheel.namelist() if re.search(r"provider_google/compute_(instance|resource_policy)/__init__.py$", name)}
known = {kind: set(re.findall(r'"(\w+)": "\w+"', body)) for kind, body in text.items()}
def names(value):
    for block in value if isinstance(value, list) else [value]:
        for key, inner in block.items():
            if key.strip('"').startswith("__"): continue
            yield key.strip('"')
            if isinstance(inner, list) and inner and isinstance(inner[0], dict): yield from names(inner)
unknown = []
for resource in hcl2.load(open("main.tf"))["resource"]:
    for kind, body in resource.items():
        page = next(k for k in known if kind.strip('"').removeprefix("google_") in k.split("/"))
        for one in body.values(): unknown += [n for n in names(one) if n not in known[page] and n != "count" and n not in text[page]]
assert not unknown, unknown
END
}

row "SageMaker: made, watched, stopped twice" watched
row "SageMaker refuses: the script in the bucket is gone again" refused
need_extra azure-ai-ml
if "$python" -c 'import azure.ai.ml' 2>/dev/null; then row "Azure ML's own reader takes the job" azure_reads; fi
if command -v terraform >/dev/null; then
  row "a Terraform module as terraform formats it" module
  wheel=$(ls "${LOCKSTEP_PROVIDER_WHEELS:-/nowhere}"/cdktf_cdktf_provider_google-*.whl 2>/dev/null | head -n 1)
  if [[ -z $wheel && -n ${LOCKSTEP_REAL_VENV:-} ]]; then
    "$python" -m pip download --quiet --no-deps --dest "$work/wheels" cdktf-cdktf-provider-google >"$work/why" 2>&1
    wheel=$(ls "$work"/wheels/*.whl 2>/dev/null | head -n 1)
  fi
  if [[ -n $wheel ]]; then row "every attribute is one of the provider's" schema "$wheel"; fi
fi
finish

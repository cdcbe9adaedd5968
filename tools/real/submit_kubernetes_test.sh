#!/usr/bin/env bash
# submit_kubernetes_test.sh BUILD: `lockstep submit --to kubernetes` with the real kubectl and an API of our own
# (kubernetes_peer.py), and every manifest checked strictly against Kubernetes' own schema. Exit 77: skipped.
# shellcheck disable=SC2015,SC2016  # a || b after a chain is what rows mean; texts for other shells
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
need kubectl kubectl

api=$work/api port=$(free_port 1)
mkdir "$api"
python3 -B "$here/kubernetes_peer.py" "$port" "$api" 2>"$work/api.log" &
peer=$!
stop() { kill "$peer" 2>/dev/null; }
cat >"$work/kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: "http://127.0.0.1:$port"}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
users: [{name: me, user: {token: none}}]
current-context: here
END
export KUBECONFIG=$work/kubeconfig
# Our API has no schema to hand out: kubectl shall not ask for it.
mkdir "$work/bin"
cat >"$work/bin/kubectl" <<END
#!/bin/bash
[[ \$1 == create && \$2 == --filename ]] && set -- "\$@" --validate=false
exec $(command -v kubectl) "\$@"
END
chmod +x "$work/bin/kubectl"
PATH=$work/bin:$PATH
answers() { kubectl version >/dev/null 2>&1; }
until_true 20 answers || skip "kubectl does not reach its API here: $(cat "$work/api.log")"

# ---- the rows -----------------------------------------------------------------------------------------

# submit WORD...: each row has a ledger of its own, and an empty cluster.
submit() {
  export XDG_STATE_HOME=$PWD/state
  rm -f "$api"/*
  "$program" submit "$recipe" --to kubernetes --image registry/lockstep:1 --nodes 2 --gpus 4 "$@" --json >submitted 2>errors || { cat submitted errors >says; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
kinds() { sed 's/.*"kind": "\([A-Za-z]*\)", "metadata".*/\1/; s/.*"kind": "Secret".*/Secret/' "$api/created" | tr '\n' ' '; }

form() {
  submit --set "form=$1" && [[ $(kinds) == "$2" ]] || { kinds; cat says errors; return 1; }
  ends 0 "$program" jobs && says queued && ends 0 "$program" stop "$id" && says "nothing of it is left" && ends 0 "$program" stop "$id"
}

watched() {
  submit --set claim=runs || return 1
  printf '[{"kind":"Pod","apiVersion":"v1","metadata":{"name":"%s-0-x","namespace":"default"},"spec":{"containers":[{"name":"trainer"}]},"status":{"phase":"Pending"}}]' "$id" >"$api/pods.json"
  printf '[{"kind":"Event","apiVersion":"v1","metadata":{"name":"e"},"type":"Warning","involvedObject":{"name":"%s-0-x"},"reason":"FailedScheduling","message":"0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}]' "$id" >"$api/events.json"
  ends 0 "$program" why "$id" && says "FailedScheduling: 0/3 nodes" && says "fewer --gpus" || return 1
  sed -i 's/Pending/Running/' "$api/pods.json"
  ends 0 "$program" jobs && says "running" && says "1 of 2 pods" || return 1
  echo "step 1/400" >"$api/log"
  ends 0 "$program" logs "$id" && says "step 1/400" && ends 0 "$program" stop "$id"
}

# fails STATUS REASON: the Job is refused; Secret and Service, which were made before it, are gone again.
fails() {
  export XDG_STATE_HOME=$PWD/state
  rm -f "$api"/*
  echo "$1 $2 Job" >"$api/fail"
  ends 1 "$program" submit "$recipe" --to kubernetes --image registry/lockstep:1 --nodes 2 && says LS0726 && says "nothing of it is left" || return 1
  [[ $(kinds) == "Secret Service " ]] && ends 0 "$program" jobs --orphans && says "nothing is left behind"
}

# The schema of Kubernetes itself, without fields that it does not know.
strict() {
  local words
  export XDG_STATE_HOME=$PWD/state
  for words in "--nodes 1" "--nodes 2 --gpus 4 --time 24h --set claim=runs --set spot=true --set node_labels=a=b --set tolerations=c,d=e --env A=b --secret T=kubernetes:s/k --set service_account=me --set queue=q"; do
    # shellcheck disable=SC2086
    "$program" submit "$recipe" --to kubernetes --image registry/lockstep:1 $words --dry-run --json >plan || return 1
    "$python" - plan <<'END' || return 1
import json, sys, yaml, kubernetes_validate
for file in json.load(open(sys.argv[1]))["files"]:
    kubernetes_validate.validate(yaml.safe_load(file["text"]), "1.31", strict=True)
END
  done
}

# JobSet and TrainJob have models of their own; a field that they do not know is lost when it is read and written.
models() {
  local form
  export XDG_STATE_HOME=$PWD/state
  for form in jobset trainjob; do
    "$program" submit "$recipe" --to kubernetes --image registry/lockstep:1 --nodes 2 --gpus 4 --time 24h --set "form=$form" --dry-run --json >plan || return 1
    "$python" - plan "$form" <<'END' || return 1
import json, sys, yaml
from kubeflow_trainer_api import models
document = yaml.safe_load(json.load(open(sys.argv[1]))["files"][0]["text"])
name = {"jobset": "JobsetV1alpha2JobSet", "trainjob": "TrainerV1alpha1TrainJob"}[sys.argv[2]]
back = getattr(models, name).from_dict(document).to_dict()
def missing(a, b, path=""):
    if isinstance(a, dict):
        return [m for k, v in a.items() for m in (missing(v, b[k], f"{path}/{k}") if isinstance(b, dict) and k in b else [f"{path}/{k}"])]
    if isinstance(a, list):
        return [m for k, v in enumerate(a) for m in missing(v, b[k] if k < len(b) else None, f"{path}/{k}")]
    return [] if a == b or str(a) == str(b) else [f"{path}: {a} became {b}"]
lost = missing(document, back)
assert not lost, lost
END
  done
}

# The Job of the documents (2 pods, torchrun with 4 processes each) and ours: what both say is equal, and what ours has more is listed.
example() {
  export XDG_STATE_HOME=$PWD/state
  "$program" submit --launch train.py --to kubernetes --nodes 2 --gpus 4 --image my-training-image:latest --env NCCL_DEBUG=INFO --dry-run --json >plan || return 1
  "$python" - plan <<'END'
import json, sys, yaml
theirs = yaml.safe_load("""
apiVersion: batch/v1
kind: Job
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      containers:
      - image: my-training-image:latest
        resources: {limits: {nvidia.com/gpu: 4}}
        env: [{name: NCCL_DEBUG, value: "INFO"}]
      restartPolicy: Never
""")
files = {f["path"].rsplit("/", 1)[1]: yaml.safe_load(f["text"]) for f in json.load(open(sys.argv[1]))["files"]}
ours = files["job.yaml"]
def same(a, b, path):
    if isinstance(a, dict):
        for key, value in a.items(): same(value, b[key], f"{path}.{key}")
    elif isinstance(a, list):
        for k, value in enumerate(a): same(value, b[k], f"{path}[{k}]")
    else:
        assert str(a) == str(b), (path, a, b)
same(theirs, ours, "")
spec, pod = ours["spec"], ours["spec"]["template"]["spec"]
assert set(spec) - set(theirs["spec"]) == {"completionMode", "backoffLimit", "podFailurePolicy"}, set(spec)
assert set(pod) - {"containers", "restartPolicy"} == {"subdomain", "terminationGracePeriodSeconds", "automountServiceAccountToken", "tolerations", "volumes"}, set(pod)
assert spec["completionMode"] == "Indexed" and files["service.yaml"]["spec"]["clusterIP"] == "None"
line = pod["containers"][0]["command"][2]
assert "lockstep launch --nproc 4" in line and "--nnodes 2" in line and line.rstrip().endswith("train.py"), line
END
}

row "an Indexed Job with its Service and Secret, stopped twice" form job "Secret Service Job "
row "a JobSet" form jobset "Secret JobSet "
row "a PyTorchJob" form pytorchjob "Secret PyTorchJob "
row "a TrainJob" form trainjob "Secret TrainJob "
row "why, jobs and logs from the cluster's answers" watched
row "forbidden: what was made before is gone" fails 403 Forbidden
row "a conflict: what was made before is gone" fails 409 Conflict
row "the service fails: what was made before is gone" fails 500 InternalError
if [[ -n ${LOCKSTEP_TEST_PYTHON:-}${LOCKSTEP_REAL_VENV:-} ]]; then
  need_python kubernetes_validate kubeflow_trainer_api
  row "manifests of Job and Service, strictly by Kubernetes' schema" strict
  row "JobSet and TrainJob by their own models" models
  row "the documents' Job of two pods with torchrun" example
fi
finish

#!/usr/bin/env bash
# submit_kubernetes_api_test.sh BUILD: `lockstep submit --to kubernetes` with the real kubectl, the real API server (which checks
# every field), its Job controller and its scheduler. Nothing runs: the rows write what a kubelet would. Exit 77: skipped.
# shellcheck disable=SC2015,SC2016  # a || b after a chain is what rows mean; texts for other shells
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
# shellcheck source=tools/real/kubernetes.sh
source "$here/kubernetes.sh"
need_kubernetes
start_kubernetes

# submit WORD...: the job's number is $id; what is said otherwise, in `says`.
submit() {
  export XDG_STATE_HOME=$PWD/state
  "$program" submit "$recipe" --to kubernetes --image registry/lockstep:1 --nodes 2 "$@" --json >submitted 2>says || { cat submitted >>says; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
job_says() { "$program" jobs >says 2>&1 && grep -qF -- "$1" says; }
why_says() { "$program" why "$id" >says 2>&1 && grep -qF -- "$1" says; }
ended() { ends 0 "$program" stop "$id" && says "nothing of it is left" && [[ -z $(of_it) ]] || { of_it; return 1; }; }
of_it() { admin get secrets,services,jobs "$id" --ignore-not-found --output name 2>/dev/null; }
pods() { mapfile -t pods < <(pods_of "$id"); ((${#pods[@]} == ${1:-2})); }

# Kinds whose definition is not among $servers/crds are not of this cluster.
has_kind() { admin get "$1" >/dev/null 2>&1; }

form() {
  submit --gpus 4 --time 24h --set "form=$1" --env 'PRICE=$$5 $(HOME)' --set queue=q --set service_account=me && job_says queued && ended && ended
}

# Every field that may be set at once.
every_field() {
  submit --gpus 4 --time 24h --set claim=runs --set spot=true --set gpu_type=nvidia-l4 --set node_labels=a=b --set tolerations=c,d=e \
    --set cpus=3 --set memory_gib=20 --env A=b --secret T=kubernetes:s/k --set service_account=me --set queue=q --set namespace=default && ended
}

# GKE's queue: its cluster is Google's, but what is made in it is checked here.
queued() {
  export XDG_STATE_HOME=$PWD/state
  "$program" submit "$recipe" --to kubernetes --image i --nodes 2 --set cluster=ml --set machine=a2-highgpu-4g --set zone=us-central1-a \
    --set strategy=FLEX_START --dry-run --json >plan 2>says || return 1
  python3 - plan <<'END' || return 1
import json, sys
for file in json.load(open(sys.argv[1]))["files"]:
    open(file["path"].rsplit("/", 1)[1], "w").write(file["text"])
END
  for file in provisioning job service; do admin create --validate=strict --dry-run=server --filename "$file.yaml" || return 1; done
  # And it is strict.
  ! sed 's/backoffLimit:/backofLimit:/' job.yaml | admin create --validate=strict --dry-run=server --filename - >says 2>&1 && says "unknown field"
}

lives() {
  submit --gpus 4 && until_true 20 pods 2 && until_true 20 why_says "nodes are available: " &&
    says "no node has so many free GPUs" && job_says queued || return 1
  add_node "big-$id" 8 >/dev/null
  until_true 30 is_scheduled || { admin get events; return 1; }
  for pod in "${pods[@]}"; do pod_says "$pod" Running '{"running": {}}' >/dev/null; done
  until_true 10 job_says "2 of 2 pods" && says running || return 1
  # Preempted and saved: it comes back, and counts nowhere.
  pod_says "${pods[0]}" Failed '{"terminated": {"exitCode": 75, "reason": "Error"}}' >/dev/null
  until_true 30 pods 2 && [[ $(admin get job "$id" --output 'jsonpath={.status.failed}') == "" ]] || return 1
  # A lost node, too.
  pod_says "${pods[0]}" Failed '{"terminated": {"exitCode": 137, "reason": "Error"}}' DisruptionTarget >/dev/null
  until_true 30 pods 2 || return 1
  for pod in "${pods[@]}"; do pod_says "$pod" Succeeded '{"terminated": {"exitCode": 0, "reason": "Completed"}}' >/dev/null; done
  until_true 30 job_says "done" && ended
  admin delete node "big-$id" >/dev/null
}
is_scheduled() { [[ $(admin get pods --selector "lockstep-job=$id" --output 'jsonpath={.items[*].spec.nodeName}' | wc -w) == 2 ]]; }

# Codes 2 and 3 mean that starting again helps nobody.
refused_recipe() {
  submit && until_true 20 pods 2 && pod_says "${pods[1]}" Failed '{"terminated": {"exitCode": 2, "reason": "Error"}}' >/dev/null &&
    until_true 30 job_says "ending" && { admin delete "${pods[0]}" --force --grace-period 0 >/dev/null 2>&1 || true; } && until_true 30 job_says "failed" && ends 0 "$program" why "$id" && says "PodFailurePolicy" && ended
}

# Nothing of what was made first stays where the server refuses what comes then.
refused() {
  local text=$1 before
  shift
  before=$(objects)
  submit "$@" && return 1
  says "$text" && says LS0726 && says "nothing of it is left" && ends 0 "$program" jobs --orphans && says "nothing is left behind" || return 1
  [[ $(objects) == "$before" ]] || { diff <(objects) - <<<"$before"; return 1; }
}
objects() { admin get secrets,services,jobs --all-namespaces --output name; }

no_rights() {
  refused 'cannot create resource' --set context=nobody || return 1
  cat >"$XDG_CONFIG_HOME/lockstep/targets.toml" <<<$'[nobody]\nkind = "kubernetes"\ncontext = "nobody"\nimage = "i"\n[mine]\nkind = "kubernetes"\nimage = "i"'
  ends 1 "$program" targets check nobody && says permissions && ends 0 "$program" targets check mine
}

# why_of TEXT REMEDY WORD...: the Job exists, and its pods are refused.
why_of() {
  local text=$1 remedy=$2
  shift 2
  submit "$@" && until_true 30 why_says "$text" && says "$remedy" && ended
}
# in_namespace NAME COMMAND...: with the usual rights, and what COMMAND of the administrator does to it.
in_namespace() {
  local name=$1
  shift
  admin create namespace "$name" >/dev/null && give_rights "$name" && until_true 20 admin --namespace "$name" get serviceaccount default >/dev/null 2>&1 && admin --namespace "$name" "$@" >/dev/null
}
quota() {
  in_namespace counted create quota few --hard=requests.nvidia.com/gpu=1,pods=1 && why_of "exceeded quota" "quota is used up" --gpus 4 --set namespace=counted || return 1
  cat >"$XDG_CONFIG_HOME/lockstep/targets.toml" <<<$'[counted]\nkind = "kubernetes"\nnamespace = "counted"\nimage = "i"\ngpus = 4'
  ends 1 "$program" targets check counted && says "the quota \"few\" has 1 of 1 left"
}
security() {
  in_namespace strict label namespace strict pod-security.kubernetes.io/enforce=restricted &&
    why_of "violates PodSecurity" "whose level is baseline" --set namespace=strict
}
limits() {
  in_namespace limited create --filename "$work/limits.yaml" &&
    why_of "maximum memory usage per Container" "LimitRange" --set namespace=limited --set memory_gib=20
}
# A namespace may refuse the Job itself.
jobs_quota() {
  in_namespace none create quota none --hard=count/jobs.batch=0 && refused "exceeded quota" --set namespace=none
}

conflict() {
  mkdir bin && cat >bin/kubectl <<END
#!/bin/bash
[[ \$* == *"create secret"* ]] && $(command -v kubectl) --context admin create secret generic "\$(sed 's/.*generic \([^ ]*\).*/\1/' <<<"\$*")" >/dev/null 2>&1
exec $(command -v kubectl) "\$@"
END
  chmod +x bin/kubectl
  export XDG_STATE_HOME=$PWD/state
  PATH=$PWD/bin:$PATH ends 1 "$program" submit "$recipe" --to kubernetes --image i --nodes 2 && says "already exists"
}

deleted() {
  submit && admin delete job "$id" >/dev/null && until_true 10 job_says "the cluster no longer has it" && ended
}

mkdir -p "$XDG_CONFIG_HOME/lockstep"
printf 'apiVersion: v1\nkind: LimitRange\nmetadata: {name: few}\nspec: {limits: [{type: Container, max: {memory: 1Gi}}]}\n' >"$work/limits.yaml"
row "an Indexed Job, stopped twice" form job
for one in jobset pytorchjob trainjob; do
  if has_kind "$one"; then row "a $one" form "$one"; else echo "left out: this cluster has no $one"; fi
done
row "every field at once" every_field
if has_kind provisioningrequests; then row "GKE's queue, strictly" queued; fi
row "no GPUs, scheduled, running, saved, a lost node, done" lives
row "a recipe that is refused does not come back" refused_recipe
row "a label that is none" refused "Invalid value" --set "node_labels=a b=c"
row "a queue that is none" refused "Invalid value" --set "queue=a b"
row "an account that is none" refused "Invalid value" --set "service_account=A_B"
row "a namespace that is not there" refused 'not found' --set context=admin --set namespace=nowhere
row "an account without rights" no_rights
row "a secret of that name is there already" conflict
row "why: the namespace's quota" quota
row "a namespace that takes no Jobs" jobs_quota
row "why: pod security" security
row "why: the namespace's limits" limits
row "why: a claim that is not there" why_of 'persistentvolumeclaim' "kubectl get pvc" --set claim=ghost
row "why: a service account that is not there" why_of "looking up service account default/ghost" "correct service_account" --set service_account=ghost
row "a Job that somebody deletes" deleted
finish

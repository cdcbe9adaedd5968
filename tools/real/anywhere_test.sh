#!/usr/bin/env bash
# anywhere_test.sh BUILD: one recipe in every place, one hash: this machine, a real Slurm, hosts reached by ssh, pods of Kubernetes
# and workers of Vertex AI. Prints the table of docs/clusters.md. Exit 77: skipped.
#
# Hosts, pods and workers are network namespaces of their own (nodes.sh). What runs in a pod or worker is the script of the
# manifest that `submit --dry-run` prints, with the variables that the place sets and names that the place resolves.
# shellcheck disable=SC2015,SC2031  # a || b after a chain is what rows mean; the runtime folder is set in rows only
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
if [[ -z ${LOCKSTEP_INSIDE_SLURM:-} ]]; then
  code=0
  LOCKSTEP_INSIDE_SLURM=1 "$here/slurm.sh" "$here/anywhere_test.sh" "$@" || code=$?
  [[ $code == 77 ]] || exit $code
fi
slurm_conf=${SLURM_CONF:-}
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
# shellcheck source=tools/real/nodes.sh
source "$here/nodes.sh"
[[ -z $slurm_conf ]] || export SLURM_CONF=$slurm_conf
make_nodes
PATH=$PATH:/usr/sbin
steps=40
keys=("run.steps=$steps" run.name=here "${small[@]}")

# took PLACE HOW RANKS: the hash in `says` is one rank's; a line of the table.
took() {
  has_bits "$steps" || return 1
  echo "| $1 | $2 | $3 | $(hash_of says) | $(sed -n 's/.*"loss_hex": *"\([^"]*\)".*/\1/p' runs/here/metrics.jsonl | tail -n 1) |" >>"$work/table"
}
# submit WORD...: its id is in $id.
submit() {
  export XDG_STATE_HOME=$PWD/state
  "$program" submit "$recipe" "$@" "${keys[@]}" --program "$program" --folder "$PWD" --train=--json --json >submitted 2>errors || { cat submitted errors; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
state() { "$program" jobs --json | sed -n 's/^    "state": "\(.*\)",$/\1/p' | head -n 1; }
is_done() { [[ $(state) == "done" ]]; }

alone() {
  expected "$steps" >/dev/null
  ends 0 "$program" train "$recipe" "${keys[@]}" --json && took "a laptop" "lockstep train" 1
}
beside() { ends 0 "$program" train "$recipe" "${keys[@]}" --nproc 4 --json && took "the same" "--nproc 4" 4; }

slurm() {
  submit --to slurm --time 30m "$@" && until_true 90 is_done || { "$program" logs "$id" | tail; return 1; }
  "$program" logs "$id" >says
}
slurm_nodes() { slurm --nodes 2 --nproc 2 && took "a real Slurm" "submit --to slurm --nodes 2 --nproc 2" 4; }
slurm_kinds() { slurm --nodes 1 --nproc 2 --set "components=nodes=2 ranks=1" && took "the same" "one node of two ranks, two of one" 4; }

# An sshd on nodes 1 and 2; who submits sits on node 4.
ssh_hosts() {
  local k port=2222 hosts options
  mkdir -p /run/sshd 2>/dev/null
  ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -q -t ed25519 -N '' -f host_key || return 1
  for k in 1 2; do
    mkdir -p "home$k"
    printf '%s\n' "ListenAddress $(address "$k")" "Port $port" "HostKey $PWD/host_key" "AuthorizedKeysFile $PWD/key.pub" "StrictModes no" \
      "UsePAM no" "PasswordAuthentication no" "PermitRootLogin prohibit-password" "PidFile none" \
      "SetEnv HOME=$PWD/home$k XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR XDG_CONFIG_HOME=$PWD/home$k" >"sshd$k"
    on "$k" "$(command -v sshd)" -D -f "$PWD/sshd$k" 2>"sshd$k.log" &
    sed "s|^|[$(address "$k")]:$port |" host_key.pub >>known
  done
  hosts="$(address 1):$port,$(address 2):$port"
  options="-i,$PWD/key,-o,UserKnownHostsFile=$PWD/known,-o,IdentitiesOnly=yes,-o,ConnectionAttempts=20"
  export XDG_STATE_HOME=$PWD/state
  ip netns exec "$spaces-4" "$program" submit "$recipe" --to ssh --hosts "$hosts" --nproc 2 "${keys[@]}" --program "$program" --folder "$PWD" \
    --set "options=$options" --train=--json --json >submitted 2>errors || { cat submitted errors sshd?.log; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
  until_true 90 ssh_done && ip netns exec "$spaces-4" "$program" logs "$id" >says && took "hosts reached by ssh" "submit --to ssh --hosts a,b --nproc 2" 4
}
ssh_done() { ip netns exec "$spaces-4" "$program" jobs --json | grep -q '"state": "done"'; }

# script_in FILE: the shell script in a manifest, the only block of several lines in it.
script_in() {
  python3 - "$1" <<'END'
import json, re, sys, textwrap
files = [file["text"] for file in json.load(open("submitted"))["files"] if file["path"].endswith("/" + sys.argv[1])]
print(textwrap.dedent(re.search(r"(?m)^( *)-? ?\|-?\n((?:\1 .*\n|\n)+)", files[0]).group(2)))
END
}
# worker NODE HOSTS SCRIPT VARIABLE...: a container of that place on a node, whose names are those in HOSTS.
worker() {
  local node=$1 hosts=$2 text=$3
  shift 3
  # shellcheck disable=SC2016  # the inner shell expands them
  on "$node" env "$@" bash -c 'mount --bind "$1" /etc/hosts && exec sh "$2"' worker "$PWD/$hosts" "$PWD/$text" >"said$node" 2>&1
}
two_workers() {
  worker 2 hosts script "${of_second[@]}" &
  worker 1 hosts script "${of_first[@]}" || { cat said1 said2; return 1; }
  wait $! || { cat said2; return 1; }
  cp said1 says
}

pods() {
  submit --to kubernetes --image IMAGE --nodes 2 --nproc 2 --dry-run && script_in job.yaml >script || return 1
  id=$(sed -n 's/.*--rdzv-id \([^ ]*\).*/\1/p' script | head -n 1)
  printf '127.0.0.1 localhost\n%s %s-0.%s\n%s %s-1.%s\n' "$(address 1)" "$id" "$id" "$(address 2)" "$id" "$id" >hosts
  local both=(KUBERNETES_SERVICE_HOST=10.96.0.1 LOCKSTEP_SECRET=0123456789abcdef0123456789abcdef)
  of_first=("${both[@]}" JOB_COMPLETION_INDEX=0) of_second=("${both[@]}" JOB_COMPLETION_INDEX=1)
  two_workers && took "pods of a Kubernetes Job" "submit --to kubernetes --nodes 2 --nproc 2" 4
}

# The image has gcloud, which reads the secret: a stand-in prints it.
vertex() {
  mkdir bin
  printf '#!/bin/sh\necho 0123456789abcdef0123456789abcdef\n' >bin/gcloud
  chmod +x bin/gcloud
  submit --to vertex --image IMAGE --nodes 2 --nproc 2 --set machine=n1-standard-4 --set region=us-central1 --secret LOCKSTEP_SECRET=google:s --dry-run &&
    script_in job.yaml >script || return 1
  local pool=cmle-training-workerpool cluster port
  port=$(free_port 1)
  printf '127.0.0.1 localhost\n%s %s0-5a3c-0\n%s %s1-5a3c-0\n' "$(address 1)" "$pool" "$(address 2)" "$pool" >hosts
  cluster="\"cluster\":{\"workerpool0\":[\"${pool}0-5a3c-0:$port\"],\"workerpool1\":[\"${pool}1-5a3c-0:$port\"]},\"environment\":\"cloud\""
  local both=(CLOUD_ML_JOB_ID=1234567890 "PATH=$PWD/bin:$PATH")
  of_first=("${both[@]}" "CLUSTER_SPEC={$cluster,\"task\":{\"type\":\"workerpool0\",\"index\":0}}")
  of_second=("${both[@]}" "CLUSTER_SPEC={$cluster,\"task\":{\"type\":\"workerpool1\",\"index\":0}}")
  two_workers && took "workers of Vertex AI" "submit --to vertex --nodes 2 --nproc 2" 4
}

row "one rank" alone
row "four ranks" beside
if [[ -n $slurm_conf ]]; then
  row "Slurm: two nodes" slurm_nodes
  row "Slurm: nodes of two kinds" slurm_kinds
else
  echo "without Slurm: its rows are left out"
fi
if command -v sshd >/dev/null && command -v ssh >/dev/null && command -v rsync >/dev/null; then
  row "hosts reached by ssh" ssh_hosts
else
  echo "without sshd, ssh and rsync: their row is left out"
fi
row "pods of a Kubernetes Job" pods
row "workers of Vertex AI" vertex
[[ ! -e $work/table ]] || printf '\n| place | how | ranks | params_hash | last loss |\n|---|---|---|---|---|\n%s\n\n' "$(cat "$work/table")"
finish

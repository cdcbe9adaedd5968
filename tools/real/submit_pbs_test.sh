#!/usr/bin/env bash
# submit_pbs_test.sh BUILD: `lockstep submit --to pbs`. PBS is in no package: stand-ins for qsub, pbsdsh, qstat, qrerun and qdel do
# here what OpenPBS's documentation says of them, for two nodes that are this machine. Exit 77: skipped.
# shellcheck disable=SC2015,SC2016  # a || b after a chain is what rows mean; texts for other shells
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/real/common.sh
source "$here/common.sh"

mkdir "$work/bin" "$work/pbs"
export PBS_HERE=$work/pbs
cat >"$work/bin/qsub" <<'STAND_IN'
#!/bin/bash
script=$1
log=$(sed -n 's/^#PBS -o //p' "$script")
sed -n 's/^#PBS -N //p' "$script" >"$PBS_HERE/name"
echo R >"$PBS_HERE/state"
printf 'localhost\n127.0.0.1\n' >"$PBS_HERE/first-node-only"
(
  for ((run = 1; ; ++run)); do
    echo "$run" >"$PBS_HERE/runs"
    rm -f "$PBS_HERE/rerun"
    (cd "$HOME" && exec env PBS_JOBID=17.head PBS_ENVIRONMENT=PBS_BATCH PBS_NODEFILE="$PBS_HERE/first-node-only" PBS_NODENUM=0 PBS_TASKNUM=1 bash "$script") &
    echo $! >"$PBS_HERE/pid"
    wait $!
    [[ -e $PBS_HERE/rerun ]] || break
    echo "run again by PBS"
  done
  echo F >"$PBS_HERE/state"
) </dev/null >>"$log" 2>&1 &
echo 17.head
STAND_IN
# pbsdsh -- COMMAND: on every node, in the home folder and without the script's variables; the node file is on the first alone.
cat >"$work/bin/pbsdsh" <<'STAND_IN'
#!/bin/bash
[[ $1 == -- ]] || exit 9
shift
pids=() code=0
for node in 0 1; do
  file=$PBS_HERE/first-node-only
  [[ $node == 0 ]] || file=/nowhere
  (cd "$HOME" && exec env -i PATH="$PATH" HOME="$HOME" XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" PBS_JOBID=17.head PBS_ENVIRONMENT=PBS_BATCH \
    PBS_NODEFILE=$file PBS_NODENUM=$node PBS_TASKNUM=$((node + 2)) "$@") & pids+=($!)
done
trap 'kill -TERM "${pids[@]}" 2>/dev/null' TERM
for pid in "${pids[@]}"; do
  while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done
  wait "$pid" || { one=$?; [[ $code == 0 ]] && code=$one; }
done
exit "$code"
STAND_IN
cat >"$work/bin/qstat" <<'STAND_IN'
#!/bin/bash
state=$(cat "$PBS_HERE/state" 2>/dev/null)
[[ $# == 1 && $state == F ]] && exit 0
printf 'Job Id: 17.head\n    Job_Name = %s\n    job_state = %s\n    run_count = %s\n' "$(cat "$PBS_HERE/name")" "$state" "$(cat "$PBS_HERE/runs")"
STAND_IN
printf '#!/bin/sh\ntouch "$PBS_HERE/rerun"\n' >"$work/bin/qrerun"
printf '#!/bin/sh\nkill -TERM "$(cat "$PBS_HERE/pid")"\n' >"$work/bin/qdel"
chmod +x "$work"/bin/*
PATH=$work/bin:$PATH

# submit STEPS: two nodes with two ranks each.
submit() {
  export XDG_STATE_HOME=$PWD/state
  rm -f "$PBS_HERE"/*
  "$program" submit "$recipe" --to pbs --nodes 2 --nproc 2 --time 24h "run.steps=$1" run.name=here "${small[@]}" --env GREETING=hello --train=--json \
    --json >submitted 2>errors || { cat submitted errors; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
is() { [[ $("$program" jobs --json | sed -n 's/^    "state": "\(.*\)",$/\1/p' | head -n 1) == "$1" ]]; }
comes_to() { until_true 60 is "$1" && ends 0 "$program" logs "$id" && return 0; "$program" jobs; "$program" logs "$id"; return 1; }

completes() { submit 20 && comes_to "done" && has_bits 20 && nothing_runs && ends 0 "$program" jobs --orphans && says "nothing is left behind"; }

# A warning to the script, as a server's kill delay or an operator sends it.
warned() {
  submit "$faulty_steps" && until_true 60 step_reached 20 && [[ $(ours lockstep GREETING=hello | wc -l) -ge 4 ]] || return 1
  kill -TERM "$(cat "$PBS_HERE/pid")"
  comes_to "done" && says "run again by PBS" && says "resuming from step" && has_bits "$faulty_steps" && nothing_runs
}

stopped() {
  submit 100000 && until_true 60 step_reached 20 && ends 0 "$program" stop "$id" && until_true 30 no_lockstep || return 1
  ends 0 "$program" stop "$id" && says "nothing of it is left" && is stopped
}

row "two nodes by pbsdsh: one rank's bits" completes
row "warned: saved, run again by qrerun, same bits; variables reach every node" warned
row "stop, twice: it does not come back" stopped
finish

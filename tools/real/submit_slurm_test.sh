#!/usr/bin/env bash
# submit_slurm_test.sh BUILD: `lockstep submit`, `jobs`, `logs`, `why` and `stop` with a real Slurm of four virtual nodes.
# Exit 77: skipped.
# shellcheck disable=SC2015,SC2016  # a || b after a chain is what rows mean; texts for other shells
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
if [[ -z ${LOCKSTEP_INSIDE_SLURM:-} ]]; then
  LOCKSTEP_INSIDE_SLURM=1 exec "$here/slurm.sh" "$here/submit_slurm_test.sh" "$@"
fi
slurm_conf=$SLURM_CONF
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
# shellcheck source=tools/real/roots.sh
source "$here/roots.sh"
export SLURM_CONF=$slurm_conf
mkdir -p "$XDG_CONFIG_HOME/lockstep"
cat >"$XDG_CONFIG_HOME/lockstep/targets.toml" <<'END'
[lab]
kind = "slurm"
nodes = 2
ranks = 2
time = "30m"
notice = "30s"
END

# ---- the rows -----------------------------------------------------------------------------------------

# submit STEPS WORD...: a small run; its id is in $id. Each row has a ledger of its own.
submit() {
  local steps=$1
  shift
  export XDG_STATE_HOME=$PWD/state
  "$program" submit "$recipe" --to lab "run.steps=$steps" run.name=here "${small[@]}" --train=--json --json "$@" >submitted 2>errors ||
    { cat submitted errors; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
state() { "$program" jobs --json | sed -n 's/^    "state": "\(.*\)",$/\1/p' | head -n 1; }
is() { [[ $(state) == "$1" ]]; }
comes_to() {
  until_true 90 is "$1" && return 0
  "$program" jobs
  "$program" logs "$id" | tail
  return 1
}
# reaches STEP: or what there is to know.
reaches() {
  until_true 60 step_reached "$1" && return 0
  "$program" jobs
  scontrol show job
  "$program" logs "$id" | tail
  tail -n 5 "${SLURM_CONF%/*}"/log/*
  return 1
}
number() { squeue --noheader --name="$id" --format=%A | head -n 1; }
log_to_says() { "$program" logs "$id" >says; }

completes() {
  submit 20 && ends 0 "$program" logs "$id" -f && says "$id done" && has_bits 20 && comes_to "done" && nothing_runs || return 1
  ends 0 "$program" jobs --orphans && says "nothing is left behind"
}

# A stand-in for Apptainer (it is in no package of Debian 12) that takes its words apart as Apptainer does, and runs what is inside.
container() {
  mkdir bin
  cat >bin/apptainer <<'STAND_IN'
#!/bin/bash
[[ $1 == exec ]] || exit 9
shift
while [[ $1 == -* ]]; do
  case $1 in --nv) shift ;; --bind) [[ $2 == *:* ]] || exit 9; shift 2 ;; --pwd) cd "$2" || exit 9; shift 2 ;; *) exit 9 ;; esac
done
[[ $1 == image.sif ]] || exit 9
echo "inside $1"
shift
exec "$@"
STAND_IN
  chmod +x bin/apptainer
  PATH=$PWD/bin:$PATH submit 20 --image image.sif --program "$program" && comes_to "done" && log_to_says && says "inside image.sif" && has_bits 20
}

# The real one, where there is one: a clean Debian with a bundle in it is the image.
real_container() {
  local image=$work/image bundle
  cp -a "$(clean_root bookworm)" "$image" && "$program" bundle --out "$work/bundle.tar.gz" >/dev/null &&
    tar -xf "$work/bundle.tar.gz" -C "$image/opt" && bundle=$(cd "$image" && ls -d opt/lockstep-*) || return 1
  mkdir -p "$image$work" # where Apptainer cannot make it
  submit 20 --image "$image" --program "/$bundle/bin/lockstep" && comes_to "done" && log_to_says && has_bits 20 && nothing_runs
}

# A warning before the end, as the time limit sends it: to the script alone.
warned() {
  submit "$faulty_steps" checkpoint.every=0 && reaches 20 || return 1
  scancel --signal=TERM --batch "$(number)"
  until_true 60 grep -q "asking Slurm to run the job again" state/lockstep/jobs/"$id"/log || return 1
  comes_to "done" && log_to_says && says "resuming from step" && has_bits "$faulty_steps" && nothing_runs
}

# The daemon of the second node is too busy to start its task before the job's credential expires: it is not the run's failure.
launch_fails() {
  local node daemon
  mkdir bin
  printf '#!/bin/sh\nuntil [ -e "%s/go" ]; do sleep 0.1; done\nexec %s "$@"\n' "$PWD" "$(command -v srun)" >bin/srun
  chmod +x bin/srun
  PATH=$PWD/bin:$PATH submit 20 && until_true 60 runs_on_nodes || return 1
  daemon=$(daemon_of "$(scontrol show hostnames "$(squeue --noheader --name="$id" --format=%N)" | tail -n 1)")
  kill -STOP "$daemon"
  touch go
  sleep 15
  kill -CONT "$daemon"
  comes_to "done" && log_to_says && says "Slurm could not start it on every node" && has_bits 20 && nothing_runs
}
runs_on_nodes() { [[ $(squeue --noheader --name="$id" --format=%T) == RUNNING ]]; }
# daemon_of NODE
daemon_of() {
  local pid
  for pid in $(slurms slurmd); do
    if tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -- "-N $1 "; then echo "$pid"; return; fi
  done
}

# Slurm itself takes the nodes away and puts the job back.
requeued() {
  submit "$faulty_steps" checkpoint.every=50 && reaches 60 || return 1
  scontrol requeue "$(number)"
  comes_to "done" && log_to_says && says "resuming from step" && has_bits "$faulty_steps" && nothing_runs
}

# A node dies. In this order, so that nobody is left there who could tell Slurm what happens to the rest: its daemon, the
# daemon's helpers, which are its children, and what they have started.
node_dies() {
  local node daemon pid
  submit "$faulty_steps" checkpoint.every=50 && reaches 60 || return 1
  node=$(scontrol show hostnames "$(squeue --noheader --name="$id" --format=%N)" | tail -n 1)  # not the script's own
  daemon=$(daemon_of "$node")
  kill -STOP "$daemon"
  for pid in $(slurms slurmstepd); do
    grep -q "^PPid:[^0-9]$daemon\$" "/proc/$pid/status" && kill -KILL "$pid"
  done
  kill -KILL "$daemon"
  for pid in $(slurms '' "SLURMD_NODENAME=$node"); do kill -KILL "$pid" 2>/dev/null; done
  scontrol update nodename="$node" state=down reason=dead
  comes_to "done" && log_to_says && says "resuming from step" && has_bits "$faulty_steps" || { scontrol show job; return 1; }
  setsid slurmd -c -N "$node"
  scontrol update nodename="$node" state=resume 2>/dev/null || true  # its daemon may have told Slurm already
}
# The same, and no other node is free: it comes back with those that are left.
fewer_nodes() {
  local node
  submit "$faulty_steps" checkpoint.every=0 --nodes 3 --set fewest_nodes=1 --set options=--exclude=n4 && reaches 20 || return 1
  node=$(scontrol show hostnames "$(squeue --noheader --name="$id" --format=%N)" | tail -n 1)
  scancel --signal=TERM --batch "$(number)"
  scontrol update nodename="$node" state=drain reason=taken
  comes_to "done" && log_to_says && says "resuming from step" && says "ranks   6 over" && says "ranks   4 over" && has_bits "$faulty_steps"
  local code=$?
  scontrol update nodename="$node" state=resume
  return "$code"
}
# slurms NAME [VARIABLE=VALUE]: processes of this Slurm.
slurms() {
  local file pid
  grep -lzxF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null | while read -r file; do
    pid=${file#/proc/} pid=${pid%/environ}
    [[ -z $1 || $(cat "/proc/$pid/comm" 2>/dev/null) == "$1" ]] || continue
    [[ -z ${2:-} ]] || grep -qzxF "$2" "$file" 2>/dev/null || continue
    echo "$pid"
  done
}

fails() {
  submit 20 --train=--no-such-word && comes_to failed && ends 0 "$program" why "$id" && says "exit code 2" && nothing_runs
}

stopped_twice() {
  submit 100000 && reaches 20 || return 1
  ends 0 "$program" stop "$id" && ends 0 "$program" stop "$id" && comes_to stopped && nothing_runs || return 1
  [[ -z $(number) ]] && ends 0 "$program" stop "$id" && says "nothing of it is left"
}

waits() {
  local first
  submit 100000 && first=$id && reaches 20 || return 1
  submit 20 --after "$first" && ends 0 "$program" why "$id" && says "waits for another job" || return 1
  ends 0 "$program" stop "$id" && ends 0 "$program" stop "$first" || return 1
  submit 20 --set options=--hold && ends 0 "$program" why "$id" && says "scontrol release" && ends 0 "$program" stop "$id"
}

sweeps() {
  submit 20 --sweep=optim.lr=1e-3,3e-4 --nodes 1 && comes_to_end && grep -q 'optim.lr\|lr = 0.0003' runs/here-1/config.toml || return 1
  [[ -e runs/here-0/metrics.jsonl && -e runs/here-1/metrics.jsonl ]]
}
comes_to_end() { until_true 90 in_no_queue && [[ $(cat state/lockstep/jobs/"$id"/ended-*) == $'0\n0' ]]; }
in_no_queue() { [[ -z $(number) ]]; }

# Killed between the two lines of the ledger that are around a client's call: the job exists, and is found.
interrupted() {
  mkdir bin
  printf '#!/bin/sh\n%s "$@" && kill -KILL $PPID\n' "$(command -v sbatch)" >bin/sbatch
  chmod +x bin/sbatch
  export XDG_STATE_HOME=$PWD/state
  training 100000
  PATH=$PWD/bin:$PATH "$program" submit "$recipe" --to lab run.steps=100000 run.name=here "${small[@]}" >says 2>&1
  ends 0 "$program" jobs && says interrupted && ends 0 "$program" jobs --orphans && says "Slurm job" && says scancel || return 1
  ends 0 "$program" stop here && ends 0 "$program" jobs --orphans && says "nothing is left behind" && nothing_runs
}

# A heterogeneous job: one node with two ranks, two with one each. The first component has the last node, so that the order of
# components is not that of names.
components() {
  submit "$faulty_steps" checkpoint.every=0 --nodes 1 --set constraint=n4 --set "components=nodes=2 ranks=1" && reaches 20 || return 1
  scancel --signal=TERM --batch "$(number)"
  until_true 60 grep -q "asking Slurm to run the job again" state/lockstep/jobs/"$id"/log || return 1
  comes_to "done" && log_to_says && says "resuming from step" && says "ranks   4 over" && has_bits "$faulty_steps" && nothing_runs || return 1
  submit 100000 --nodes 1 --set "components=nodes=1" && reaches 20 && ends 0 "$program" stop "$id" && comes_to stopped && nothing_runs
}

refused() {
  export XDG_STATE_HOME=$PWD/state
  ends 1 "$program" submit "$recipe" --to lab --set partition=nowhere && says "LS0726" && says "nothing of it is left" || return 1
  ends 0 "$program" jobs --orphans && says "nothing is left behind"
}

row "submitted, followed, done with one rank's bits" completes
row "warned by a signal: saved, back by itself, same bits" warned
row "a node is too busy to start its part: back by itself" launch_fails
row "requeued by Slurm: same bits" requeued
row "a node dies: the job restarts elsewhere, same bits" node_dies
row "preempted, a node is gone: back with fewer, same bits" fewer_nodes
row "a failure is not run again, and why says it" fails
row "stop, twice and thrice" stopped_twice
row "why a job waits" waits
row "in a container: Apptainer's words, the same bits" container
if command -v apptainer >/dev/null && [[ $(id -u) == 0 ]]; then
  row_limit=600 row "in a real Apptainer: the same bits" real_container
else
  echo "without Apptainer: its row is left out"
fi
row "a sweep is an array" sweeps
row "a heterogeneous job: warned, requeued, same bits, stopped" components
row "killed while submitting: the job is found and stopped" interrupted
row "refused by Slurm: nothing is left" refused
row "targets check" ends 0 "$program" targets check lab
finish

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
# Numbers from 17 on. Output is brought home when the job has ended, and -W depend=afterany:JOB waits for that job's end. The
# scripts of the job itself may submit, too.
cat >"$work/bin/qsub" <<'STAND_IN'
#!/bin/bash
after=
if [[ $1 == -W ]]; then after=${2#depend=afterany:} && shift 2; fi
script=$1
number=$(($(cat "$PBS_HERE/last" 2>/dev/null || echo 16) + 1))
echo "$number" >"$PBS_HERE/last"
job=$PBS_HERE/$number.head
mkdir "$job"
log=$(sed -n 's/^#PBS -o //p' "$script")
sed -n 's/^#PBS -N //p' "$script" >"$job/name"
echo Q >"$job/state"
printf 'localhost\n127.0.0.1\n' >"$PBS_HERE/first-node-only"
(
  while [[ -n $after && $(cat "$PBS_HERE/$after/state") != F ]]; do sleep 0.05; done
  [[ $(cat "$job/state") == F ]] && exit
  echo R >"$job/state"
  while :; do
    rm -f "$job/rerun"
    (cd "$HOME" && exec env PBS_JOBID="$number.head" PBS_ENVIRONMENT=PBS_BATCH PBS_NODEFILE="$PBS_HERE/first-node-only" PBS_NODENUM=0 PBS_TASKNUM=1 bash "$script") &
    echo $! >"$job/pid"
    wait $!
    [[ -e $job/rerun ]] || break
    echo "run again by PBS"
  done
  echo F >"$job/state"
) </dev/null >"$job/output" 2>&1 &
(wait_for() { while [[ $(cat "$job/state") != F ]]; do sleep 0.05; done; }; wait_for; cat "$job/output" >>"$log") </dev/null >/dev/null 2>&1 &
echo "$number.head"
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
  (cd "$HOME" && exec env -i PATH="$PATH" HOME="$HOME" XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" PBS_JOBID="$PBS_JOBID" PBS_ENVIRONMENT=PBS_BATCH \
    PBS_NODEFILE=$file PBS_NODENUM=$node PBS_TASKNUM=$((node + 2)) "$@") & pids+=($!)
done
trap 'kill -TERM "${pids[@]}" 2>/dev/null' TERM
for pid in "${pids[@]}"; do
  while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done
  wait "$pid" || { one=$?; [[ $code == 0 ]] && code=$one; }
done
exit "$code"
STAND_IN
# qstat -f [JOB]: jobs that have ended are not listed; a server that is down says so.
cat >"$work/bin/qstat" <<'STAND_IN'
#!/bin/bash
[[ ! -e $PBS_HERE/down ]] || { echo "Connection refused" >&2; exit 111; }
if [[ -n ${2:-} && $(cat "$PBS_HERE/$2/state" 2>/dev/null) != [QR] ]]; then echo "qstat: Unknown Job Id $2" >&2; exit 153; fi
for job in "$PBS_HERE"/*.head; do
  [[ $(cat "$job/state") != F && ( -z ${2:-} || ${job##*/} == "$2" ) ]] || continue
  printf 'Job Id: %s\n    Job_Name = %s\n    job_state = %s\n' "${job##*/}" "$(cat "$job/name")" "$(cat "$job/state")"
done
STAND_IN
# Only operators may.
cat >"$work/bin/qrerun" <<'STAND_IN'
#!/bin/sh
[ -e "$PBS_HERE/operator" ] || { echo "qrerun: Unauthorized Request $1" >&2; exit 1; }
touch "$PBS_HERE/$1/rerun"
STAND_IN
cat >"$work/bin/qdel" <<'STAND_IN'
#!/bin/bash
for job in "$@"; do
  if [[ $(cat "$PBS_HERE/$job/state") == R ]]; then kill -TERM "$(cat "$PBS_HERE/$job/pid")"; else echo F >"$PBS_HERE/$job/state"; fi
done
STAND_IN
chmod +x "$work"/bin/*
PATH=$work/bin:$PATH

# submit STEPS: two nodes with two ranks each.
submit() {
  export XDG_STATE_HOME=$PWD/state
  rm -rf "${PBS_HERE:?}"/*
  "$program" submit "$recipe" --to pbs --nodes 2 --nproc 2 --time 24h "run.steps=$1" run.name=here "${small[@]}" --env GREETING=hello --train=--json \
    --json >submitted 2>errors || { cat submitted errors; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
is() { [[ $("$program" jobs --json | sed -n 's/^    "state": "\(.*\)",$/\1/p' | head -n 1) == "$1" ]]; }
comes_to() { until_true 60 is "$1" && ends 0 "$program" logs "$id" && return 0; "$program" jobs; "$program" logs "$id"; return 1; }

completes() { submit 20 && comes_to "done" && has_bits 20 && nothing_runs && ends 0 "$program" jobs --orphans && says "nothing is left behind"; }

# A warning to the script, as a server's kill delay or an operator sends it. While it runs, its output can be followed.
warn() {
  until_true 60 step_reached 20 && [[ $(ours lockstep GREETING=hello | wc -l) -ge 4 ]] || return 1
  ends 0 "$program" logs "$id" && says step || return 1
  kill -TERM "$(cat "$PBS_HERE/17.head/pid")"
}
by_an_operator() {
  submit "$faulty_steps" && touch "$PBS_HERE/operator" && warn || return 1
  comes_to "done" && says "resuming from step" && has_bits "$faulty_steps" && nothing_runs && [[ $(cat "$PBS_HERE/last") == 17 ]]
}
by_anyone() {
  submit "$faulty_steps" && warn || return 1
  comes_to "done" && says "resuming from step" && has_bits "$faulty_steps" && nothing_runs && [[ $(cat "$PBS_HERE/last") == 18 ]] &&
    ends 0 "$program" jobs --orphans && says "nothing is left behind"
}
# The second job, which has another number, is the one that stop ends; and not another's of the same run.
returned_then_stopped() {
  submit 100000 && warn && until_true 60 test -e "$PBS_HERE/18.head/pid" && until_true 60 is running || return 1
  local first=$id
  mkdir elsewhere
  "$program" submit "$recipe" --to pbs --nproc 1 run.steps=100000 run.name=other-with-a-long-name "${small[@]}" --json >other 2>errors || return 1
  "$program" submit "$recipe" --to pbs --nproc 1 run.steps=100000 run.name=other-with-a-long-name --folder "$PWD/elsewhere" "${small[@]}" --json >third 2>errors || return 1
  ends 0 "$program" stop "$first" && until_true 30 ended 18 && [[ $(cat "$PBS_HERE/19.head/state") != F ]] || return 1
  ends 0 "$program" stop "$(sed -n 's/^  "id": "\(.*\)",$/\1/p' other)" && until_true 30 ended 19 && [[ $(cat "$PBS_HERE/20.head/state") != F ]] || return 1
  ends 0 "$program" stop other-with-a-long-name && until_true 30 ended 20 && nothing_runs
}
ended() { [[ $(cat "$PBS_HERE/$1.head/state") == F ]]; }

# A server that does not answer has not forgotten the job.
server_down() {
  submit 100000 && until_true 60 step_reached 20 && touch "$PBS_HERE/down" || return 1
  ends 0 "$program" jobs && says "Connection refused" && ends 1 "$program" stop "$id" && says LS0728 || return 1
  rm "$PBS_HERE/down"
  ends 0 "$program" stop "$id" && until_true 30 no_lockstep && ends 0 "$program" stop "$id" && says "nothing of it is left"
}

stopped() {
  submit 100000 && until_true 60 step_reached 20 && ends 0 "$program" stop "$id" && until_true 30 no_lockstep || return 1
  ends 0 "$program" stop "$id" && says "nothing of it is left" && is stopped
}

row "two nodes by pbsdsh: one rank's bits" completes
row "warned: saved, run again by an operator's qrerun, same bits; variables reach every node" by_an_operator
row "the same for those who may not: submitted again, behind itself" by_anyone
row "a job that has come back is stopped, and no other" returned_then_stopped
row "a server that does not answer: nothing is forgotten" server_down
row "stop, twice: it does not come back" stopped
finish

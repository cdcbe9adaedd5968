#!/usr/bin/env bash
# submit_lsf_test.sh BUILD: `lockstep submit --to lsf`. LSF is in no package: stand-ins for bsub, blaunch, bjobs and bkill do here
# what IBM's documentation says of them, for two hosts that are this machine. Exit 77: skipped.
# shellcheck disable=SC2015,SC2016  # a || b after a chain is what rows mean; texts for other shells
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/real/common.sh
source "$here/common.sh"

mkdir "$work/bin" "$work/lsf"
export LSF_HERE=$work/lsf
# bsub: the script comes on standard input; -Q 75 runs it again after exit code 75.
cat >"$work/bin/bsub" <<'STAND_IN'
#!/bin/bash
cat >"$LSF_HERE/script"
log=$(sed -n 's/^#BSUB -o "\(.*\)"$/\1/p' "$LSF_HERE/script")
again=$(sed -n 's/^#BSUB -Q "\(.*\)"$/\1/p' "$LSF_HERE/script")
cd "$(sed -n 's/^#BSUB -cwd "\(.*\)"$/\1/p' "$LSF_HERE/script")" || exit 1
sed -n 's/^#BSUB -J "\(.*\)"$/\1/p' "$LSF_HERE/script" >"$LSF_HERE/name"
echo RUN >"$LSF_HERE/state"
(
  export LSB_JOBID=4711 LSB_MCPU_HOSTS="localhost 1 127.0.0.1 1"
  while :; do
    bash "$LSF_HERE/script" &
    echo $! >"$LSF_HERE/pid"
    wait $!
    code=$?
    [[ $code == "$again" ]] || break
    echo "requeued by LSF"
  done
  if [[ $code == 0 ]]; then echo DONE; else echo EXIT; fi >"$LSF_HERE/state"
) </dev/null >>"$log" 2>&1 &
echo "Job <4711> is submitted to default queue <normal>."
STAND_IN
# blaunch -z "HOST HOST" COMMAND: on every host; its exit code is the first that is not 0.
cat >"$work/bin/blaunch" <<'STAND_IN'
#!/bin/bash
[[ $1 == -z ]] || exit 9
hosts=$2 pids=() code=0
shift 2
for host in $hosts; do LSF_HOST=$host "$@" & pids+=($!); done
trap 'kill -TERM "${pids[@]}" 2>/dev/null' TERM
for pid in "${pids[@]}"; do
  while kill -0 "$pid" 2>/dev/null; do wait "$pid"; done
  wait "$pid" || { one=$?; [[ $code == 0 ]] && code=$one; }
done
exit "$code"
STAND_IN
printf '#!/bin/sh\necho "$LSF_HOST"\n' >"$work/bin/hostname"
cat >"$work/bin/bjobs" <<'STAND_IN'
#!/bin/bash
state=$(cat "$LSF_HERE/state" 2>/dev/null)
[[ ! -e $LSF_HERE/down ]] || { echo "Cannot connect to LSF. Please wait ..." >&2; exit 255; }
if [[ $* == *"-o jobid"* && $state != RUN ]]; then echo "Job <$(cat "$LSF_HERE/name")> is not found" >&2; exit 255; fi
if [[ $* == *"-o jobid"* ]]; then [[ $state == RUN && $* == *"$(cat "$LSF_HERE/name")"* ]] && echo 4711; exit 0; fi
echo "$state|localhost:127.0.0.1|-"
STAND_IN
printf '#!/bin/sh\nkill -TERM "$(cat "$LSF_HERE/pid")"\n' >"$work/bin/bkill"
chmod +x "$work"/bin/*
PATH=$work/bin:$PATH

# submit STEPS: two hosts with two ranks each.
submit() {
  export XDG_STATE_HOME=$PWD/state
  rm -f "$LSF_HERE"/*
  "$program" submit "$recipe" --to lsf --nodes 2 --nproc 2 --time 24h --set "port=$(free_port 4)" "run.steps=$1" run.name=here "${small[@]}" \
    --train=--json --json >submitted 2>errors || { cat submitted errors; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
is() { [[ $("$program" jobs --json | sed -n 's/^    "state": "\(.*\)",$/\1/p' | head -n 1) == "$1" ]]; }
comes_to() { until_true 60 is "$1" && ends 0 "$program" logs "$id" && return 0; "$program" jobs; "$program" logs "$id"; return 1; }

completes() { submit 20 && comes_to "done" && has_bits 20 && nothing_runs && ends 0 "$program" jobs --orphans && says "nothing is left behind"; }

# The warning before the end comes to the script, as -wa TERM sends it.
warned() {
  submit "$faulty_steps" && until_true 60 step_reached 20 || return 1
  kill -TERM "$(cat "$LSF_HERE/pid")"
  comes_to "done" && says "LSF runs the job again" && says "resuming from step" && has_bits "$faulty_steps" && nothing_runs
}

stopped() {
  submit 100000 && until_true 60 step_reached 20 && ends 0 "$program" stop "$id" && until_true 30 no_lockstep || return 1
  ends 0 "$program" stop "$id" && says "nothing of it is left" && is stopped
}

# LSF that does not answer has not forgotten the job.
lsf_down() {
  submit 100000 && until_true 60 step_reached 20 && touch "$LSF_HERE/down" || return 1
  ends 0 "$program" stop "$id" && says "Cannot connect to LSF" && ! grep -q "nothing of it is left" says && rm "$LSF_HERE/down" || return 1
  until_true 30 no_lockstep && ends 0 "$program" stop "$id" && says "nothing of it is left"
}

row "two hosts by blaunch: one rank's bits" completes
row "warned: saved, put into the queue again by -Q 75, same bits" warned
row "stop, twice: it does not come back" stopped
row "LSF that does not answer: nothing is forgotten" lsf_down
finish

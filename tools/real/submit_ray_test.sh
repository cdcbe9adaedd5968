#!/usr/bin/env bash
# submit_ray_test.sh BUILD: `lockstep submit --to ray` with a real Ray of two nodes on this machine. Exit 77: skipped.
# shellcheck disable=SC2015  # a || b after a chain is what rows mean
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
need_python ray
PATH=$(dirname "$python"):$PATH
need_extra 'ray[default]'  # with its job API
command -v ray >/dev/null || skip "$python has no ray command"
row_limit=180
export RAY_USAGE_STATS_ENABLED=0

# Everything of Ray's carries this test's folder in its environment: common.sh ends it.
ports=$(free_port 5)
address=http://127.0.0.1:$((ports + 1))
# Its workers' own ports would be 10002 to 19999, where those of the tests are.
ray start --head --node-ip-address=127.0.0.1 --port="$ports" --dashboard-host=127.0.0.1 --dashboard-port=$((ports + 1)) --num-cpus=2 \
  --min-worker-port=18600 --max-worker-port=18999 --temp-dir="$work/ray" >"$work/why" 2>&1 &&
  ray start --address="127.0.0.1:$ports" --node-ip-address=127.0.0.1 --min-worker-port=19000 --max-worker-port=19399 --num-cpus=2 \
    >>"$work/why" 2>&1 ||
  skip "Ray does not start here: $(tail -n 1 "$work/why")"
answers() { ray job list --address "$address" >"$work/why" 2>&1; }
until_true 60 answers || skip "Ray's jobs do not answer: $(tail -n 1 "$work/why")"

# submit STEPS: one rank on each of the two nodes.
submit() {
  export XDG_STATE_HOME=$PWD/state
  "$program" submit "$recipe" --to ray --nodes 2 --nproc 1 --set cpus=1 --set "address=$address" --set "port=$((ports + 3))" --program "$program" \
    --folder "$PWD" "run.steps=$1" run.name=here "${small[@]}" --train=--json --json >submitted 2>errors || { cat submitted errors; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
is() { [[ $("$program" jobs --json | sed -n 's/^    "state": "\(.*\)",$/\1/p' | head -n 1) == "$1" ]]; }
comes_to() { until_true 90 is "$1" && return 0; "$program" jobs; "$program" logs "$id" | tail; return 1; }

completes() { submit 20 && comes_to "done" && ends 0 "$program" logs "$id" && has_bits 20 && nothing_runs; }

preempted() {
  submit "$faulty_steps" && until_true 90 step_reached 20 || return 1
  kill -TERM "$(with_variable NODE=0 | head -n 1)"
  comes_to "done" && ends 0 "$program" logs "$id" && says "preempted and saved; running again" && says "resuming from step" && has_bits "$faulty_steps"
}

stopped() {
  submit 100000 && until_true 90 step_reached 20 && ends 0 "$program" stop "$id" && until_true 30 no_lockstep || return 1
  ends 0 "$program" stop "$id" && says "nothing of it is left" && is stopped && ! grep -rqE '[0-9a-f]{64}' state
}

row "two nodes of a real Ray: one rank's bits" completes
row "warned by a signal: saved, run again by the driver, same bits" preempted
row "stop, twice; the secret is in no file" stopped
row "targets check" ends 0 "$program" targets check ray
finish

#!/usr/bin/env bash
# torchrun_test.sh BUILD: torchrun starts the ranks, ours only join. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=tools/real/nodes.sh
source "$here/nodes.sh"
need_python torch.distributed
torchrun=("$python" -m torch.distributed.run --no-python)

# same_bits RANKS TRAIN-WORD...
same_bits() {
  local ranks=$1
  shift
  training 20
  ends 0 "${torchrun[@]}" --standalone --nproc-per-node "$ranks" "$program" "${words[@]}" "$@" && has_bits 20 && nothing_runs
}

# torchrun's own report names the rank; the others must not hang.
killed() {
  training 100000
  "${torchrun[@]}" --standalone --nproc-per-node 3 "$program" "${words[@]}" >says 2>&1 &
  local agent=$!
  until_true 120 step_reached 20 || { cat says; return 1; }
  kill -KILL "$(with_variable RANK=2 | head -n 1)"
  until_true 60 gone "$agent" || return 1
  wait "$agent" && { echo "torchrun ended with 0"; return 1; }
  says "rank      : 2" && says "Signal 9 (SIGKILL)" && nothing_runs
}

# Two machines of two ranks; MASTER_ADDR is the first, and LOCKSTEP_SECRET lets them in.
two_machines() {
  local machine agent agents=()
  training 20
  export LOCKSTEP_SECRET=a-secret-that-two-machines-know
  for machine in 1 2; do
    on "$machine" "${torchrun[@]}" --nnodes 2 --node-rank $((machine - 1)) --nproc-per-node 2 --master-addr "$(address 1)" \
      --master-port 29500 "$program" "${words[@]}" >"machine-$machine" 2>&1 &
    agents+=($!)
  done
  for agent in "${agents[@]}"; do wait "$agent" || { cat machine-*; return 1; }; done
  cp machine-1 says && says "gloo between nodes" && has_bits 20 && nothing_runs
}

restarted() {
  training "$faulty_steps"
  "${torchrun[@]}" --standalone --nproc-per-node 2 --max-restarts 1 "$program" "${words[@]}" checkpoint.every=20 >says 2>&1 &
  local agent=$!
  until_true 120 step_reached 60 || { cat says; return 1; }
  kill -KILL "$(with_variable RANK=1 | head -n 1)"
  wait "$agent" || { cat says; return 1; }
  says "resuming from step" && has_bits "$faulty_steps" && nothing_runs
}

row "torchrun --nproc-per-node 4" same_bits 4
row "torchrun --nproc-per-node 2 with ZeRO-3" same_bits 2 parallel.zero=3
row "a killed rank ends the run, and nothing is left" killed
row "torchrun's restart goes on from the checkpoint" restarted
if (make_nodes) >"$work/made"; then
  row "two machines of two ranks, over Gloo" two_machines
else
  cat "$work/made"  # why this row is left out
fi
finish

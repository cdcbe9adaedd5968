#!/usr/bin/env bash
# slurm_test.sh BUILD: `srun lockstep train` under a real Slurm of four virtual nodes. Exit 77: skipped.
#
# Nobody tells the ranks where to meet: n1 is no host's name here, so the launchers ask Slurm for its address.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
if [[ -z ${LOCKSTEP_INSIDE_SLURM:-} ]]; then
  LOCKSTEP_INSIDE_SLURM=1 exec "$here/slurm.sh" "$here/slurm_test.sh" "$@"
fi
slurm_conf=$SLURM_CONF
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
export SLURM_CONF=$slurm_conf

# ---- the rows -----------------------------------------------------------------------------------------

# same_bits STEPS SRUN-FLAG... -- TRAIN-WORD...
same_bits() {
  local steps=$1 flags=()
  shift
  while [[ $1 != -- ]]; do flags+=("$1") && shift; done
  shift
  training "$steps"
  ends 0 srun "${flags[@]}" "$program" "${words[@]}" "$@" && has_bits "$steps" && nothing_runs
}

# A long run in the background: $srun, once step 20 is reached.
begin() {
  srun "$@" >says 2>&1 &
  srun=$!
  until_true 60 step_reached 20 || { cat says; return 1; }
}

# ended CODE...: srun ends with one of these codes.
ended() {
  local code=0
  until_true 60 gone "$srun" || { cat says; return 1; }
  wait "$srun" || code=$?
  [[ " $* " == *" $code "* ]] && return 0
  echo "srun ended with $code, not $*"
  cat says
  return 1
}

job() { squeue -h -o %A | head -n 1; }

# A rank below the launcher of node 2 is killed.
killed_rank() {
  training 100000
  begin -N4 --ntasks-per-node=1 "$program" "${words[@]}" --nproc 2 --max-restarts 0 || return 1
  kill -KILL "$(with_variable RANK=5 | tail -n 1)"
  ended 1 && says "rank 5 on " && says "killed by SIGKILL (9)" && says "node 2, local rank 1" && nothing_runs
}

# Task 3 of one task a rank is killed: the process that Slurm started.
killed_task() {
  training 100000
  begin -N2 --ntasks-per-node=2 "$program" "${words[@]}" || return 1
  kill -KILL "$(with_variable SLURM_PROCID=3 | head -n 1)"
  ended 1 137 && says "rank 3 on " && says "its task was killed" && nothing_runs
}

# again SIGNAL TEXT SRUN-FLAG...: the rank of task 3 gets SIGNAL; all start again from their launchers' memory, which TEXT
# is said of, and come to the same bits.
again() {
  local signal=$1 text=$2 steps=$faulty_steps
  shift 2
  training "$steps"
  begin "$@" "$program" "${words[@]}" run.hang_timeout=2 checkpoint.snapshot_every=5 || return 1
  kill "-$signal" "$(with_variable RANK=3 | tail -n 1)"
  ended 0 && says "$text" && says "restarting all ranks; 2 restarts left" && says "resuming from step" || return 1
  has_bits "$steps" && nothing_runs
}

# A whole node is lost: its launcher is killed.
killed_launcher() {
  training 100000
  begin -N4 --ntasks-per-node=1 "$program" "${words[@]}" --nproc 1 --max-restarts 0 --rdzv-conf node_timeout=4 || return 1
  kill -KILL "$(with_variable SLURM_PROCID=2 | head -n 1)"
  ended 1 137 && says "node 2 on " && says "was lost" && nothing_runs
}

# preempted SIGNAL SRUN-FLAG...: a signal to all processes of the step saves; the same command again goes on.
preempted() {
  local signal=$1 steps=$faulty_steps
  shift
  training "$steps"
  begin "$@" "$program" "${words[@]}" || return 1
  scancel --signal="$signal" "$(job)"
  ended 75 && says "run the same command again to resume" && nothing_runs || return 1
  ends 0 srun "$@" "$program" "${words[@]}" && says "resuming from step" && has_bits "$steps" && nothing_runs
}

# The job is cancelled for good: nothing of it survives.
cancelled() {
  training 100000
  begin -N4 --ntasks-per-node=1 "$program" "${words[@]}" --nproc 2 || return 1
  scancel "$(job)"
  until_true 60 gone "$srun" && nothing_runs
}

refused() {
  local text=$1
  shift
  ends 2 srun "$@" && says "$text" && nothing_runs
}

row "srun -N4, a task a node: the task is the launcher" same_bits 20 -N4 --ntasks-per-node=1 --
row "srun -N4 --nproc 2: eight ranks" same_bits 20 -N4 --ntasks-per-node=1 -- --nproc 2
row "srun -N2 -n4, a task a rank: the lowest of a node runs the launcher" same_bits 20 -N2 -n4 --
row "srun -N1 -n4: one node" same_bits 20 -N1 -n4 --
row "srun -N3 -n4: nodes with different numbers of tasks" same_bits 20 -N3 -n4 --
row "srun -N4 -n8 with ZeRO-3 in groups of two" same_bits 20 -N4 -n8 -- parallel.zero=3 parallel.shard=2
row "a killed rank is named, and srun ends" killed_rank
row "a killed task is named, and srun ends" killed_task
row "a killed launcher is named by its node" killed_launcher
row "a task a rank: a killed rank is named, and all start again" again KILL "rank 3 on " -N2 -n4
row "a task a rank: a frozen rank is named, and all start again" again STOP "stopped (SIGSTOP)" -N2 -n4
row "a task a rank on one node: a killed rank is named, and all start again" again KILL "rank 3 on " -N1 -n4
row "a task a rank with TLS" same_bits 20 -N2 -n4 -- --rdzv-conf tls=true
row "a task a rank with TLS on one node" same_bits 20 -N1 -n4 -- --rdzv-conf tls=true
for signal in TERM INT; do
  row "scancel --signal=$signal saves and ends with 75; the same command goes on (a task a node)" preempted $signal -N4 --ntasks-per-node=1
  row "scancel --signal=$signal saves and ends with 75; the same command goes on (a task a rank)" preempted $signal -N2 -n4
done
row "scancel leaves nothing running" cancelled
training 20
row "--nproc beside a task a rank is refused" refused "[LS0553]" -N2 -n4 "$program" "${words[@]}" --nproc 2
row "a layout that needs more ranks is refused" refused "needs 8 ranks, but 4 started" -N2 -n4 "$program" "${words[@]}" parallel.data=8
finish

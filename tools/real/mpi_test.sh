#!/usr/bin/env bash
# mpi_test.sh BUILD: `mpirun lockstep train` under a real Open MPI. Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need mpirun openmpi-bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=(mpirun --oversubscribe --mca btl "self,vader,tcp" --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo)
mpirun --version >"$work/version" 2>&1 || skip "mpirun does not start: $(head -n 1 "$work/version")"

# same_bits STEPS RANKS TRAIN-WORD...
same_bits() {
  local steps=$1 ranks=$2
  shift 2
  training "$steps"
  ends 0 "${mpi[@]}" -np "$ranks" "$program" "${words[@]}" "$@" && has_bits "$steps" && nothing_runs
}

# begin STEPS TRAIN-WORD...: a long run in the background: $mpirun, once step 20 is reached.
begin() {
  training "$1"
  "${mpi[@]}" -np 4 "$program" "${words[@]}" "${@:2}" >says 2>&1 &
  mpirun=$!
  until_true 60 step_reached 20 || { cat says; return 1; }
}

# Task 2, the process that mpirun started, is killed: mpirun ends all.
killed_task() {
  begin 100000 || return 1
  kill -KILL "$(with_variable OMPI_COMM_WORLD_RANK=2 | head -n 1)"
  until_true 30 gone "$mpirun" || return 1
  wait "$mpirun" && { echo "mpirun ended with 0" && return 1; }
  says "its task was killed" && says "rank 2" && nothing_runs
}

# again SIGNAL TEXT: rank 2 below its task gets SIGNAL; all start again from their launchers' memory, and TEXT is said.
again() {
  begin "$faulty_steps" run.hang_timeout=2 checkpoint.snapshot_every=5 || return 1
  kill "-$1" "$(with_variable RANK=2 | tail -n 1)"
  until_true 60 gone "$mpirun" || return 1
  wait "$mpirun" || { echo "mpirun ended with $?" && cat says && return 1; }
  says "$2" && says "restarting all ranks; 2 restarts left" && says "resuming from step" && has_bits "$faulty_steps" && nothing_runs
}

interrupted() {
  begin "$faulty_steps" || return 1
  kill -TERM "$mpirun"
  until_true 30 gone "$mpirun" && nothing_runs || return 1
  training "$faulty_steps"
  ends 0 "${mpi[@]}" -np 4 "$program" "${words[@]}" && has_bits "$faulty_steps"
}

refused() {
  training 20
  "${mpi[@]}" -np 2 "$program" "${words[@]}" --nproc 2 >says 2>&1 && return 1
  says "[LS0553]" && nothing_runs
}

row "mpirun -np 2" same_bits 20 2
row "mpirun -np 4: the lowest task runs the launcher" same_bits 20 4
row "mpirun -np 4 with ZeRO-3" same_bits 20 4 parallel.zero=3
row "mpirun -np 1 is a run alone" same_bits 20 1
row "mpirun -np 2 with TLS" same_bits 20 2 --rdzv-conf tls=true
row "a killed task is named, and nothing is left" killed_task
row "a killed rank is named, and all start again" again KILL "killed by SIGKILL (9)"
row "a frozen rank is named, and all start again" again STOP "stopped (SIGSTOP)"
row "SIGTERM to mpirun; the same command ends with the same bits" interrupted
row "--nproc beside mpirun is refused" refused
finish

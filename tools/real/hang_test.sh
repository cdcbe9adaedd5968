#!/usr/bin/env bash
# hang_test.sh BUILD: PyTorch programs that hang under `lockstep launch --hang-timeout`: the rank that lags is named in seconds.
# Exit 77: skipped.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python torch.distributed
row_limit=300

cat >"$work/hang.py" <<'END'
import os, signal, sys, time

def too_early():
    time.sleep(600)

if sys.argv[1] == "early" and os.environ["RANK"] == "1":
    too_early()
import torch, torch.distributed as dist

def step(number):
    if number == 3 and rank == 1 and kind == "sleep":
        time.sleep(600)
    if number == 3 and rank == 1 and kind == "spin":
        while True: pass
    if number == 3 and rank == 1 and kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if number == 3 and kind == "mismatch" and rank == 1:
        dist.broadcast(torch.ones(4), 0)
        return
    if number == 2 and kind == "dump":
        work = dist.all_reduce(torch.ones(4), async_op=True) if rank != 1 else None
        path = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(rank)
        open(path, "wb").write(torch._C._distributed_c10d._dump_fr_trace())
        time.sleep(600)
    dist.all_reduce(torch.ones(4))

kind = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
for number in range(5 if kind != "fine" else 200):
    step(number)
    if kind == "fine": time.sleep(0.05)
if rank == 0: print("done", flush=True)
dist.destroy_process_group()
END

# hangs KIND: the program is ended, and what was said is in `says`.
hangs() {
  local began=$SECONDS
  PATH=${without_spy:-$PATH} "$program" launch --nproc 3 --hang-timeout 20 --grace 2 "$python" "$work/hang.py" "$1" >says 2>&1
  local code=$?
  ((code != 0 && SECONDS - began < 240)) || return 1
}

sleeping() { hangs sleep && says "rank 1 (process" && says "lags"; }
sleeping_stacks() { hangs sleep && { says "hang.py" || return 1; } && grep -q "in step\|step (" says; }
# With py-spy, which says where each rank is.
early() { PATH=$spy:$PATH hangs early && says "rank 1 (process" && says "lags: it is at too_early" && says "ranks 0 2 wait"; }
mismatch() { PATH=$spy:$PATH hangs mismatch && says "must make the same ones in the same order" && says "is at broadcast"; }
spinning() { hangs spin && says "rank 1 (process" && says "ranks 0 2 wait since"; }
stopped() { hangs stop && says "rank 1 (process" && says "is stopped"; }
dumps() { hangs dump && says "rank 1 has entered" && says "all_reduce"; }
fine() { "$program" launch --nproc 3 --hang-timeout 20 "$python" "$work/hang.py" fine >says 2>&1 && says "done" && ! says "lags"; }

row "a rank that sleeps is named" sleeping
row "and every rank's Python stack is shown" sleeping_stacks
spy=$(dirname "$python")
if [[ -x $spy/py-spy ]]; then
  row "a rank that has not imported PyTorch yet is named" early
  row "ranks that wait in different calls are told" mismatch
else
  echo "without py-spy: two rows are left out"
fi
row "a rank that computes something else is named" spinning
row "a rank that is stopped is named" stopped
row "dumps of the flight recorder say who is behind" dumps
row "a program that does not hang is left alone" fine
finish

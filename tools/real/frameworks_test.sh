#!/usr/bin/env bash
# frameworks_test.sh BUILD: JAX, TensorFlow and Horovod scripts under `lockstep launch --framework`. Exit 77: skipped.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
export JAX_PLATFORMS=cpu CUDA_VISIBLE_DEVICES='' TF_CPP_MIN_LOG_LEVEL=2

cat >"$work/sum_jax.py" <<'END'
import os
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"]), local_device_ids=[0])
from jax.experimental import multihost_utils
total = multihost_utils.process_allgather(jax.numpy.ones(1) * (jax.process_index() + 1)).sum()
print(f"process {jax.process_index()} of {jax.process_count()}: sum {int(total)}", flush=True)
END
cat >"$work/sum_tensorflow.py" <<'END'
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
@tf.function
def step():
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(lambda: tf.constant(float(resolver.task_id + 1))), axis=None)
total = step()
print(f"worker {resolver.task_id} of {strategy.num_replicas_in_sync}: sum {int(total)}", flush=True)
END

# Horovod cannot be installed beside this Python: its rendezvous (horovod/common/gloo/http_store.cc), spoken by hand.
cat >"$work/sum_horovod.py" <<'END'
import os, time, urllib.error, urllib.request
rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
assert os.environ["HOROVOD_CONTROLLER"] == os.environ["HOROVOD_CPU_OPERATIONS"] == "gloo"
assert int(os.environ["HOROVOD_CROSS_RANK"]) < int(os.environ["HOROVOD_CROSS_SIZE"])
base = f"http://{os.environ['HOROVOD_GLOO_RENDEZVOUS_ADDR']}:{os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT']}/global/"
def ask(method, key, body=None):
    return urllib.request.urlopen(urllib.request.Request(base + str(key), data=body, method=method), timeout=30).read()
def wait(key):
    while True:
        try:
            return ask("GET", key)
        except urllib.error.HTTPError as error:
            assert error.code == 404, error
            time.sleep(0.01)
if os.path.exists("fails-once") and rank == 0:
    os.remove("fails-once")
    ask("PUT", 0, b"1000")  # of a round that fails: the next one must not see it
    raise SystemExit(1)
ask("PUT", rank, str(rank + 1).encode())
print(f"rank {rank} of {size}: sum {sum(int(wait(k)) for k in range(size))}", flush=True)
ask("DELETE", rank)
END
# The launcher that keeps the store ends with its ranks: all of them have deleted by then.
fails_once() {
  touch fails-once
  ends 0 "$program" launch --nproc 3 --max-restarts 1 --framework horovod "$work/sum_horovod.py" || return 1
  for k in 0 1 2; do says "rank $k of 3: sum 6" || return 1; done
}

# three FRAMEWORK WORD: three processes on this machine find each other and add 1, 2 and 3.
three() {
  ends 0 "$program" launch --nproc 3 --framework "$1" "$work/sum_$1.py" || return 1
  for k in 0 1 2; do says "$2 $k of 3: sum 6" || return 1; done
}

# The same over two launchers, as on two machines.
two_nodes() {
  local port first
  port=$(free_port 4)
  export LOCKSTEP_SECRET=0123456789abcdef0123456789abcdef
  "$program" launch --nnodes 2 --node-rank 0 --rdzv-endpoint "127.0.0.1:$port" --nproc 2 --framework "$1" "$work/sum_$1.py" >first 2>&1 &
  first=$!
  ends 0 "$program" launch --nnodes 2 --node-rank 1 --rdzv-endpoint "127.0.0.1:$port" --nproc 1 --framework "$1" "$work/sum_$1.py" || { cat first; return 1; }
  wait "$first" || { cat first; return 1; }
  says "$2 2 of 3: sum 6"
}

unknown() { ends 2 "$program" launch --framework keras x.py && says "tensorflow, jax, deepspeed or horovod" && says LS0530; }

row "a framework that is not known" unknown
export PYTHON_EXEC=python3
row "Horovod: three ranks" three horovod rank
row "Horovod: two nodes" two_nodes horovod rank
row "Horovod: a round that failed is forgotten" fails_once
((failed == 0)) || finish
need_python jax
export PYTHON_EXEC=$python
row "JAX: three processes" three jax process
row "JAX: two nodes" two_nodes jax process
if "$python" -c 'import tensorflow' 2>/dev/null; then
  row "TensorFlow: three workers" three tensorflow worker
  row "TensorFlow: two nodes" two_nodes tensorflow worker
else
  echo "without tensorflow: its rows are left out"
fi
finish

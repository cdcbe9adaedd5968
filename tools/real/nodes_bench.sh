#!/usr/bin/env bash
# nodes_bench.sh BUILD [MBIT [ZERO...]]: what a step over four nodes of two ranks gains when sums are made inside each node first.
#
# Four namespaces joined by cables of MBIT (100) each. Both ways in turn, three rounds; bytes are the cable's own
# count, the step the median of metrics.jsonl. Exit 77: skipped.
mbit=${2:-100} stages=("${@:3}")
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=tools/real/nodes.sh
source "$here/nodes.sh"
need tc iproute2
make_nodes
slow "$mbit"
export LOCKSTEP_SECRET=a-secret-that-four-machines-know

# one ON|OFF WORD...: prints "MS BYTES" of a step.
one() {
  local way=$1 node before
  shift
  mkdir -p "$work/run" && cd "$work/run" || exit 1
  rm -rf runs
  words=(train "$recipe" run.name=here run.steps=20 "${small[@]}" model.layers=4 model.hidden=128 batch.global=64 --json "$@")
  before=$(sent 2)
  for node in 0 1 2 3; do
    LOCKSTEP_NODE_FIRST=$way on $((node + 1)) "$program" "${words[@]}" --nnodes 4 --node-rank "$node" \
      --rdzv-endpoint "$(address 1):29400" --nproc-per-node 2 >"node-$node" 2>&1 &
  done
  wait
  [[ -s runs/here/metrics.jsonl ]] || { tail node-*; exit 1; }
  echo "$(grep -o '"step_ms":[0-9.]*' runs/here/metrics.jsonl | tail -n 15 | cut -d: -f2 | sort -n | sed -n 8p)" \
    "$((($(sent 2) - before) / 20))"
}

unset -f cut  # nodes.sh's, of cables
for zero in "${stages[@]:-0}"; do
  for round in 1 2 3; do
    for way in off on; do
      printf 'zero %s, round %s, node first %-3s  %s (ms, bytes a step of one node)\n' "$zero" "$round" "$way" \
        "$(one "$way" "parallel.zero=$zero")"
    done
  done
done

#!/usr/bin/env bash
# nodes_test.sh BUILD: one run over four machines, which are namespaces on this one. Exit 77: skipped.
#
# Node N of the launch is machine N + 1. Between machines ranks talk over Gloo, inside one through shared memory.
# shellcheck source=tools/real/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=tools/real/nodes.sh
source "$here/nodes.sh"
make_nodes
export LOCKSTEP_SECRET=a-secret-that-four-machines-know

# launch NODE FLAG...: the launcher of that node, in the background; its words are in node-N.
launch() {
  local node=$1 code=0
  shift
  (
    on $((node + 1)) "$program" "${words[@]}" --nnodes 4 --node-rank "$node" --rdzv-endpoint "$(address 1):29400" "$@" \
      >"node-$node" 2>&1 || code=$?
    echo "$code" >"code-$node"
  ) &
}

# all_ended SECONDS NODE...
all_ended() {
  local limit=$1 node
  shift
  for node in "$@"; do until_true "$limit" test -s "code-$node" || { tail node-*; return 1; }; done
}

# code NODE CODE
code() {
  [[ $(cat "code-$1") == "$2" ]] && return 0
  echo "node $1 ended with $(cat "code-$1"), not $2"
  tail -n 30 node-*
  return 1
}

# said NODE TEXT
said() {
  cp "node-$1" says
  says "$2"
}

# same_bits ENGINE WORD...
same_bits() {
  local engine=$1 node
  shift
  training 20
  words+=("$@")
  for node in 3 0 2 1; do launch "$node" --nproc-per-node 2; done
  all_ended 60 0 1 2 3 || return 1
  for node in 0 1 2 3; do code "$node" 0 || return 1; done
  said 0 "$engine" && has_bits 20 && nothing_runs
}

all_at_once() {
  export LOCKSTEP_NODE_FIRST=off
  same_bits "8 over gloo"
}

# What a node puts on its cable in 100 steps is what `explain` says, and what TCP adds to it.
bytes_as_planned() {
  local planned=0 rank measured=() steps before node share
  local more=(model.hidden=96 "$@")
  for rank in 2 3; do
    share=$("$program" explain program "$recipe" "${small[@]}" "${more[@]}" --nnodes 4 --nproc 2 --rank "$rank" --json |
      grep -o '"to_other_nodes":[0-9]*' | grep -o '[0-9]*$')
    planned=$((planned + share))
  done
  for steps in 20 120; do
    training "$steps"
    words+=("${more[@]}" "run.name=of-$steps")
    before=$(sent 2)
    for node in 0 1 2 3; do rm -f "code-$node"; launch "$node" --nproc-per-node 2; done
    all_ended 90 0 1 2 3 || return 1
    for node in 0 1 2 3; do code "$node" 0 || return 1; done
    measured+=($(($(sent 2) - before)))
  done
  local each=$(((measured[1] - measured[0]) / 100))
  echo "node 2 sent $each bytes a step; the plan says $planned"
  ((each >= planned && each <= planned * 120 / 100 + 4096))
}

# A cable is pulled in the middle of a run: the others name the node, and all ends, also on the node that is cut off.
cut_off() {
  local lost=$1 node began took others=()
  training 100000
  for node in 0 1 2 3; do
    launch "$node" --nproc-per-node 2 --max-restarts 0 --rdzv-conf node_timeout=5
    [[ $node == "$lost" ]] || others+=("$node")
  done
  until_true 60 step_reached 20 || { tail node-*; return 1; }
  cut $((lost + 1))
  began=$SECONDS
  all_ended 40 "${others[@]}" || return 1
  took=$((SECONDS - began))
  echo "noticed after $took s"
  all_ended 40 "$lost" || return 1
  mend $((lost + 1))
  for node in "${others[@]}"; do code "$node" 1 || return 1; done
  shift
  for node in "${others[@]}"; do said "$node" "$1" || return 1; done
  # The stated time, the proof of life that the others get, and the slack of a machine that does other things too.
  ((took <= 45)) || { echo "noticed after $took s"; return 1; }
  nothing_runs
}

# The run's folder is shared, as it is here, so every machine can look; of the ranks elsewhere, the first node's launcher tells.
top_sees_all() {
  local node
  training 100000
  for node in 3 0 2 1; do launch "$node" --nproc-per-node 2; done
  until_true 60 step_reached 20 || { tail node-*; return 1; }
  for node in 0 2; do
    beside "$node" "$program" top runs/here --json >seen || { cat seen; return 1; }
    python3 - seen "node$((node + 1))" <<'END' || { cat seen; return 1; }
import json, sys
top = json.load(open(sys.argv[1]))
ranks = top["ranks"]
assert [one["rank"] for one in ranks] == list(range(8)) and top["unseen"] == [], ranks
assert [one["host"] for one in ranks] == [f"node{k // 2 + 1}" for k in range(8)], ranks
assert top["state"] == "training" and all(one["alive"] and one["step"] > 0 and one["memory_bytes"] > 1 << 20 for one in ranks), ranks
assert all(0 <= one["waits"] <= 1 for one in ranks), ranks
END
  done
  beside 2 "$program" top runs/here --once >says && says "host" && says "node4" || return 1
  # Nobody asks: nothing is written any more.
  sleep 8
  local before
  before=$(stat -c %Y runs/here/trace/nodes.json)
  sleep 3
  [[ $(stat -c %Y runs/here/trace/nodes.json) == "$before" ]] || { echo "it is still written"; return 1; }
  # A rank that stops elsewhere is named here.
  kill -STOP "$(with_variable RANK=5 | head -n 1)" && until_true 30 names_the_stopped_one || return 1
  for node in 0 1 2 3; do pkill_node "$node"; done
  all_ended 60 0 1 2 3
}
names_the_stopped_one() {
  beside 0 "$program" top runs/here --json >seen &&
    python3 -c 'import json; exit([one["rank"] for one in json.load(open("seen"))["ranks"] if one["doing"] == "stopped"] != [5])'
}
# beside NODE COMMAND...: on the machine where that node's launcher is, with its processes.
beside() {
  local pid
  pid=$(ip netns pids "$spaces-$(($1 + 1))" | while read -r one; do [[ $(cat "/proc/$one/comm") == lockstep ]] && echo "$one" && break; done)
  shift
  nsenter --target "$pid" --net --uts --pid --mount --wd="$PWD" "$@"
}
pkill_node() { local pid; for pid in $(ip netns pids "$spaces-$(($1 + 1))"); do kill -KILL "$pid" 2>/dev/null; done; }

never_comes() {
  training 20
  for node in 0 1 3; do launch "$node" --rdzv-conf join_timeout=4; done
  all_ended 30 0 1 3 || return 1
  for node in 0 1 3; do said "$node" "waiting for 1 of 4 nodes: node 2" && code "$node" 1 || return 1; done
  nothing_runs
}

wrong_secret() {
  training 20
  for node in 0 1 3; do launch "$node" --rdzv-conf join_timeout=6; done
  LOCKSTEP_SECRET=another-secret-of-some-length launch 2
  all_ended 30 0 1 2 3 || return 1
  code 2 2 && said 2 "[LS0515]" && said 0 "secret" && said 0 "node 2 on node3" && said 0 "waiting for 1 of 4 nodes: node 2" &&
    nothing_runs
}

# unreachable HOST: nobody is there; the address that was tried is named.
unreachable() {
  training 20
  local code=0
  on 2 "$program" "${words[@]}" --nnodes 4 --node-rank 1 --rdzv-endpoint "$1" --rdzv-conf join_timeout=3 >says 2>&1 || code=$?
  [[ $code == 1 || $code == 2 ]] && says "$1" && nothing_runs
}

not_ours() {
  training 20
  ends 2 on 2 "$program" "${words[@]}" --nnodes 4 --node-rank 0 --rdzv-endpoint "$(address 1):29400" && says "[LS0513]" && nothing_runs
}

# mpirun's own daemons on two machines, each of which starts two tasks.
mpirun_tasks() {
  training 20
  cat >agent <<END
#!/bin/bash
# shellcheck source=tools/real/nodes.sh
source "$here/nodes.sh"
spaces=$spaces
on "\${1##*.}" bash -c "\${*:2}"
END
  chmod +x agent
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  ends 0 on 1 mpirun --oversubscribe --mca plm_rsh_agent "$PWD/agent" --mca oob_tcp_if_include 10.77.0.0/24 --mca btl self,vader,tcp \
    --mca btl_tcp_if_include 10.77.0.0/24 -x LOCKSTEP_SECRET -H "$(address 1):2,$(address 2):2" -np 4 "$program" "${words[@]}" &&
    says "4 over shm inside a node and gloo between nodes" && has_bits 20 && nothing_runs
}

by_nodes="8 over shm inside a node and gloo between nodes"
row "four nodes of two ranks: sums inside each, then between them, same bits as one rank" same_bits "$by_nodes"
row "the same with all ranks at once" all_at_once
row "ZeRO-3 over all nodes: weights and sums by way of each node" same_bits "$by_nodes, parallel.zero=3" parallel.zero=3
row "bytes on a node's cable are those of the plan" bytes_as_planned
row "and with ZeRO-3" bytes_as_planned parallel.zero=3
row "ZeRO-3 in each node, copies between nodes: shared memory inside, Gloo outside" same_bits "8 over shm inside a copy and gloo between them, parallel.zero=3, 4 replicas of 2 ranks each" \
  parallel.zero=3 parallel.shard=2
row "a node whose cable is pulled is named" cut_off 2 "node 2 on node3"
row "the first node's cable is pulled: the others say that the store has gone" cut_off 0 "10.77.0.1:29400"
row "top on any machine shows the ranks of all" top_sees_all
row "a node that never comes is named by all who wait" never_comes
row "a wrong secret is refused, by name on both sides" wrong_secret
row "an endpoint where nobody listens" unreachable "$(address 4):29400"
row "an endpoint without a route" unreachable "192.0.2.1:29400"
row "a first node that does not have the endpoint's address" not_ours
if command -v mpirun >/dev/null; then row "mpirun over two machines, a task a rank" mpirun_tasks; fi
finish

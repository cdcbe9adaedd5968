# shellcheck shell=bash
# Four machines on this one: namespaces of network, processes and host name, joined by a bridge.
#
#     source common.sh; source nodes.sh
#     make_nodes                      or skip, with a word
#     on 2 hostname                   node2, address 10.77.0.2
#     cut 2; mend 2                   its cable
#     slow 200                        cables of 200 Mbit/s
#     sent 2                          bytes that node 2 has put on its cable
#
# A process of one node can neither see nor map the memory of another's. Nothing of it touches this machine's own
# network: the bridge has a namespace too. Ended by `stop`, which common.sh calls.
# shellcheck disable=SC2154  # $work is common.sh's

spaces=lockstep-$$  # the namespaces' names begin with this
address() { echo "10.77.0.$1"; }

make_nodes() {
  local k
  need ip iproute2
  need unshare util-linux
  [[ $(id -u) == 0 ]] || skip "only root may make network namespaces"
  unshare --net --uts --pid --fork --mount-proc true 2>/dev/null || skip "namespaces are not allowed here"
  {
    ip netns add "$spaces-hub" && ip -n "$spaces-hub" link add hub type bridge && ip -n "$spaces-hub" link set hub up
  } 2>"$work/why" || skip "no bridge can be made here: $(cat "$work/why")"
  for k in 1 2 3 4; do
    {
      ip netns add "$spaces-$k" &&
        ip -n "$spaces-$k" link add eth0 type veth peer name "port$k" netns "$spaces-hub" &&
        ip -n "$spaces-hub" link set "port$k" master hub up &&
        ip -n "$spaces-$k" addr add "$(address "$k")/24" dev eth0 &&
        ip -n "$spaces-$k" link set eth0 up && ip -n "$spaces-$k" link set lo up
    } 2>"$work/why" || skip "no virtual cable can be made here: $(cat "$work/why")"
  done
}

stop() {
  local k pid
  for k in 1 2 3 4 hub; do
    for pid in $(ip netns pids "$spaces-$k" 2>/dev/null); do kill -KILL "$pid" 2>/dev/null; done
    ip netns del "$spaces-$k" 2>/dev/null
  done
}

# on NODE COMMAND...: the shell between is the node's first process; when it goes, so does the node.
on() {
  local node=$1
  shift
  # shellcheck disable=SC2016
  ip netns exec "$spaces-$node" unshare --uts --pid --fork --kill-child --mount-proc \
    bash -c 'hostname "$1"; shift; "$@"; exit $?' bash "node$node" "$@"
}

cut() { ip -n "$spaces-hub" link set "port$1" down; }
mend() { ip -n "$spaces-hub" link set "port$1" up; }
slow() {
  local k
  for k in 1 2 3 4; do tc -n "$spaces-$k" qdisc replace dev eth0 root tbf rate "$1mbit" burst 256kb latency 400ms; done
}
sent() { ip -n "$spaces-$1" -j -s link show eth0 | grep -o '"tx":{"bytes":[0-9]*' | grep -o '[0-9]*$'; }

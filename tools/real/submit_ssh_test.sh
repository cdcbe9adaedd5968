#!/usr/bin/env bash
# submit_ssh_test.sh BUILD: `lockstep submit --to ssh` with two real sshd's on this machine. Exit 77: skipped.
# shellcheck disable=SC2015,SC2016  # a || b after a chain is what rows mean; texts for other shells
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/real/common.sh
source "$here/common.sh"
PATH=$PATH:/usr/sbin
need sshd openssh-server
need ssh openssh-client
need rsync rsync

# ---- two machines: an sshd each, on the loopback interface, with keys of their own -------------------------

# sshd starts the user's shell with the home of the password file: a wrapper gives it the test's own.
start_hosts() {
  local k port
  mkdir -p /run/sshd 2>/dev/null
  ssh-keygen -q -t ed25519 -N '' -f "$work/key" && ssh-keygen -q -t ed25519 -N '' -f "$work/host_key" || skip "ssh-keygen fails"
  port=$(free_port 20)
  for k in 1 2; do
    mkdir -p "$work/home$k"
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
    ports[k]=$port
    cat >"$work/sshd$k" <<END
ListenAddress 127.0.0.1
Port $port
HostKey $work/host_key
AuthorizedKeysFile $work/key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
PidFile none
SetEnv HOME=$work/home$k XDG_RUNTIME_DIR=$XDG_RUNTIME_DIR XDG_CONFIG_HOME=$work/home$k
END
    "$(command -v sshd)" -D -f "$work/sshd$k" 2>"$work/sshd$k.log" &
    sshd[k]=$!
    port=$((port + 1))
  done
  sed "s|^|[127.0.0.1]:${ports[1]} |" "$work/host_key.pub" >"$work/known"
  sed "s|^|[127.0.0.1]:${ports[2]} |" "$work/host_key.pub" >>"$work/known"
  options="-i,$work/key,-o,UserKnownHostsFile=$work/known,-o,IdentitiesOnly=yes"
  hosts="127.0.0.1:${ports[1]},127.0.0.1:${ports[2]}"
  for k in 1 2; do until_true 10 answers "$k" || skip "sshd does not answer here: $(cat "$work/sshd$k.log")"; done
}
# shellcheck disable=SC2016,SC2086  # $HOME is the host's; the options are words
answers() { [[ $(ssh -o BatchMode=yes ${options//,/ } -p "${ports[$1]}" 127.0.0.1 'echo $HOME' 2>>"$work/sshd$1.log") == "$work/home$1" ]]; }
stop() { for pid in "${sshd[@]}"; do kill "$pid" 2>/dev/null; done; }
declare -a ports=() sshd=()
start_hosts
rendezvous=$((ports[2] + 7))

# ---- the rows -----------------------------------------------------------------------------------------

# submit STEPS WORD...: two hosts with two ranks each; the run's folder is shared, as a lab's would be.
submit() {
  local steps=$1
  shift
  export XDG_STATE_HOME=$PWD/state
  "$program" submit "$recipe" --to ssh --hosts "$hosts" --nproc 2 "run.steps=$steps" run.name=here "${small[@]}" --train=--json --json \
    --program "$program" --folder "$PWD" --set "options=$options" --set "port=$((++rendezvous))" "$@" >submitted 2>errors || { cat submitted errors; return 1; }
  id=$(sed -n 's/^  "id": "\(.*\)",$/\1/p' submitted)
}
state() { "$program" jobs --json | sed -n 's/^    "state": "\(.*\)",$/\1/p' | head -n 1; }
is() { [[ $(state) == "$1" ]]; }
comes_to() {
  until_true 40 is "$1" && return 0
  "$program" jobs
  "$program" logs "$id" | tail
  return 1
}
agent() { cat "$work/home$1/.lockstep/jobs/$id/$(($1 - 1))/pid"; }

completes() {
  submit 20 && ends 0 "$program" logs "$id" -f && says "$id done" && has_bits 20 && comes_to "done" && nothing_runs || return 1
  ends 0 "$program" jobs --orphans && says "nothing is left behind" && ends 0 "$program" logs "$id" --node 1
}

# The launcher is warned, as a machine that is about to go away would: it saves, and its agent runs it again.
preempted() {
  submit "$faulty_steps" && until_true 60 step_reached 20 || return 1
  # shellcheck disable=SC2046  # one number
  kill -TERM $(cat "/proc/$(agent 1)/task/$(agent 1)/children")
  comes_to "done" && "$program" logs "$id" >says && says "preempted and saved; running again" && says "resuming from step" && has_bits "$faulty_steps" && nothing_runs
}

stopped_twice() {
  submit 100000 && until_true 60 step_reached 20 || return 1
  ends 0 "$program" stop "$id" && until_true 20 no_lockstep && ends 0 "$program" stop "$id" && says "nothing of it is left" && is stopped && nothing_runs
}

# A machine dies with all that is on it: it is named.
host_dies() {
  local pid
  submit 100000 --train=--rdzv-conf --train=node_timeout=4 --set failures=0 && until_true 60 step_reached 20 || return 1
  for pid in $(ours '' "HOME=$work/home2"); do kill -KILL "$pid" 2>/dev/null; done
  comes_to failed && ends 0 "$program" why "$id" && says "127.0.0.1:${ports[2]} has lost its agent" && nothing_runs
}

unreachable() {
  export XDG_STATE_HOME=$PWD/state
  ends 1 "$program" submit "$recipe" --to ssh --hosts "127.0.0.1:${ports[1]},127.0.0.1:1" --program "$program" --set "options=$options" run.steps=100000 || return 1
  says "LS0726" && says "Connection refused" && nothing_runs && ends 0 "$program" stop first
}

archive() {
  mkdir -p lockstep-1/bin
  printf '#!/bin/sh\nexec %s "$@"\n' "$program" >lockstep-1/bin/lockstep
  chmod +x lockstep-1/bin/lockstep
  tar -czf packed.tar.gz lockstep-1
  submit 20 --program lockstep --set "bundle=$PWD/packed.tar.gz" && comes_to "done" && "$program" logs "$id" >says && has_bits 20 || return 1
  [[ -x $work/home1/.lockstep/bundles/packed/bin/lockstep && -x $work/home2/.lockstep/bundles/packed/bin/lockstep ]]
}

bundle() {
  mkdir -p bundle/bin
  printf '#!/bin/sh\nexec %s "$@"\n' "$program" >bundle/bin/lockstep
  chmod +x bundle/bin/lockstep
  submit 20 --program lockstep --set "bundle=$PWD/bundle" && comes_to "done" && "$program" logs "$id" >says && has_bits 20 || return 1
  [[ -x $work/home1/.lockstep/bundles/bundle/bin/lockstep && -x $work/home2/.lockstep/bundles/bundle/bin/lockstep ]]
}

no_secret_is_seen() {
  submit 20 && comes_to "done" || return 1
  local secret
  secret=$(cat "$work/home1/.lockstep/jobs/$id/0/secret")
  [[ ${#secret} == 64 && $(stat -c %a "$work/home1/.lockstep/jobs/$id/0/secret") == 600 ]] && ! grep -rqF "$secret" state submitted errors
}

row "two hosts: followed, done with one rank's bits" completes
row "warned by a signal: saved, run again by its agent, same bits" preempted
row "stop, twice" stopped_twice
row "a host that dies is named" host_dies
row "a host that cannot be reached: nothing is left on the other" unreachable
row "a bundle is copied to every host" bundle
row "a bundle in one file is unpacked there, once" archive
row "the secret is nowhere but on the hosts" no_secret_is_seen
row "targets check names what is missing" ends 1 "$program" targets check ssh
finish

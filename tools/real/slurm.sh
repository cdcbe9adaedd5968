#!/usr/bin/env bash
# slurm.sh COMMAND...: runs COMMAND with a Slurm of its own, four virtual nodes n1 to n4 on this machine.
#
#     tools/real/slurm.sh srun -N4 hostname
#
# Everything (munge's key and socket, the controller, four slurmd, their jobs) lies in a folder of its own, listens on
# the loopback interface alone, and has ended when this ends, also by Ctrl-C. Exit 77: Slurm is not installed or may
# not run here. Needs no root, and no name n1 in /etc/hosts.
set -euo pipefail
(($#)) || { sed -n '2,7s/^# \?//p' "${BASH_SOURCE[0]}"; exit 2; }
PATH=$PATH:/usr/sbin
for needed in munged slurmctld slurmd srun; do
  command -v $needed >/dev/null && continue
  echo "skipped: $needed is not here; ./dev test --real installs slurm-wlm and munge"
  exit 77
done
home=$(mktemp -d /tmp/lockstep-slurm.XXXXXX)  # short: munge's socket must fit into 108 bytes
chmod 711 "$home"
export SLURM_CONF=$home/slurm.conf

# The daemons and what they have started, by the folder in their environment.
ours() { grep -lzxF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | grep -vx -e $$ -e "$BASHPID" || true; }

stop() {
  local pids pid
  trap '' INT TERM
  scancel --user "$(id -un)" --signal KILL --full 2>/dev/null || true
  scancel --user "$(id -un)" 2>/dev/null || true
  for ((k = 0; k < 30; ++k)); do
    [[ -n $(squeue -h 2>/dev/null) ]] || break
    sleep 0.1
  done
  for pid in $(ours); do kill -TERM "$pid" 2>/dev/null || true; done
  for ((k = 0; k < 50; ++k)); do
    pids=$(ours)
    [[ -n $pids ]] || break
    ((k < 30)) || for pid in $pids; do kill -KILL "$pid" 2>/dev/null || true; done
    sleep 0.1
  done
  rm -rf "$home"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Five ports in a row that nobody listens on.
free_ports() {
  local first port
  while :; do
    first=$((${LOCKSTEP_TEST_PORTS:-$((10000 + RANDOM % 40 * 200))} + RANDOM % 170))
    for ((port = first; port < first + 5; ++port)); do
      if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then continue 2; fi
    done
    echo $first
    return
  done
}

# A job that is put into the queue again waits until its credential has expired: 10 s instead of 120. Jobs are numbered from
# the port on, so that several Slurms on one machine do not number theirs alike.
write_configuration() {
  local port user
  port=$(free_ports) user=$(id -un)
  cat >"$home/slurm.conf" <<END
ClusterName=lockstep
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$port
FirstJobId=$port
AuthType=auth/munge
AuthInfo=socket=$home/munge/sock,cred_expire=10
CredType=cred/munge
SlurmUser=$user
SlurmdUser=$user
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool/%n
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.%n.pid
SlurmctldLogFile=$home/log/slurmctld
SlurmdLogFile=$home/log/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MailProg=/bin/true
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
JobRequeue=1
ReturnToService=2
KillWait=5
SlurmctldTimeout=30
SlurmdTimeout=5
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
END
  for k in 1 2 3 4; do
    echo "NodeName=n$k NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + k)) CPUs=4 RealMemory=2000 Feature=n$k State=UNKNOWN"
  done >>"$home/slurm.conf"
  echo "PartitionName=debug Nodes=n[1-4] Default=YES MaxTime=60 State=UP" >>"$home/slurm.conf"
}

# In sessions of their own: a Ctrl-C is for us, and we end them in order.
start() {
  setsid munged --force --key-file="$home/munge/key" --socket="$home/munge/sock" --pid-file="$home/munge/pid" \
    --log-file="$home/munge/log" --seed-file="$home/munge/seed" 2>"$home/log/munged" || return
  setsid slurmctld -c || return
  for k in 1 2 3 4; do setsid slurmd -c -N n$k || return; done
}

give_up() {
  tail "$home"/log/*
  echo "skipped: $*"
  exit 77
}

all_idle() { [[ $(sinfo -h -o '%D %T' 2>/dev/null) == "4 idle" ]]; }

mkdir -p "$home"/{munge,state,log} "$home"/spool/n{1..4}
chmod 711 "$home/munge"
(umask 277 && head -c 1024 /dev/urandom >"$home/munge/key")
write_configuration
start || give_up "Slurm does not start here"
for ((k = 0; ; ++k)); do
  if all_idle; then break; fi
  ((k < 200)) || give_up "Slurm's nodes do not come up here"
  sleep 0.1
done
# Behind, so that a signal is heard at once; srun alone would want a second Ctrl-C.
"$@" <&0 &
wait $!

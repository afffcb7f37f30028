#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A whole Slurm on this machine, for tests: munged, slurmctld and slurmd as root, with two nodes that
# are both this host. Everything is under DIR and goes with it.
#
#   tests/e2e/slurm.sh start DIR [CPUS_A_NODE]    says SLURM_CONF=... on its last line
#   tests/e2e/slurm.sh stop DIR
#
# SLURMD_TIMEOUT: seconds after which a node that does not answer is down.
#
# Exit status 3 where Slurm is not installed (Debian: slurmctld slurmd slurm-client munge) or cannot
# run here.
set -euo pipefail

usage() { sed -n 's/^#   //p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
verb=$1 dir=$2 cpus=${3:-4}

stop() {
  # Jobs first: a daemon that goes leaves its steps running.
  if [ -s "$dir/slurm.conf" ]; then
    SLURM_CONF=$dir/slurm.conf timeout 5 scancel --user=root 2>/dev/null || true
    for _ in $(seq 50); do
      [ -z "$(SLURM_CONF=$dir/slurm.conf timeout 5 squeue -h 2>/dev/null)" ] && break
      sleep 0.1
    done
  fi
  for name in slurmd.a slurmd.b slurmctld munged; do
    [ -s "$dir/$name.pid" ] || continue
    kill "$(cat "$dir/$name.pid")" 2>/dev/null || true
  done
  for _ in $(seq 50); do
    pgrep -f "$dir/slurm.conf" >/dev/null || break
    sleep 0.1
  done
  pkill -KILL -f "$dir/slurm.conf" 2>/dev/null || true
}

cannot() { echo "error: $1" >&2; stop; exit 3; }

start() {
  for program in munged mungekey slurmctld slurmd sinfo; do
    command -v "$program" >/dev/null || cannot "no $program: install slurmctld slurmd slurm-client munge"
  done
  [ "$(id -u)" = 0 ] || cannot "slurmd needs root"
  mkdir -p "$dir"/{state,spool.a,spool.b}
  # munged trusts no path that others may write to.
  chmod 755 "$dir"
  mungekey -c -k "$dir/munge.key" 2>/dev/null || true
  munged --force -S "$dir/munge.socket" --key-file "$dir/munge.key" --pid-file "$dir/munged.pid" \
    --log-file "$dir/munged.log" --seed-file "$dir/munge.seed" || cannot "munged does not start"
  host=$(hostname -s)
  cat > "$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=$dir/munge.socket
SlurmctldPort=$((16800 + $$ % 900))
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmdLogFile=$dir/slurmd.%n.log
SlurmdSpoolDir=$dir/spool.%n
StateSaveLocation=$dir/state
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=${SLURMD_TIMEOUT:-30}
InactiveLimit=0
KillWait=2
MinJobAge=300
SchedulerParameters=sched_interval=1
NodeName=a,b NodeHostname=$host NodeAddr=127.0.0.1 Port=$((17800 + $$ % 900)),$((18800 + $$ % 900)) CPUs=$cpus State=UNKNOWN
PartitionName=gpu Nodes=a,b Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
CONF
  sed -i "s/Port=\([0-9]*\),\([0-9]*\)/Port=[\1,\2]/" "$dir/slurm.conf"
  echo "CgroupPlugin=cgroup/v1" > "$dir/cgroup.conf"
  export SLURM_CONF=$dir/slurm.conf
  slurmctld -f "$SLURM_CONF" || cannot "slurmctld does not start: $(tail -n 3 "$dir/slurmctld.log" 2>/dev/null)"
  for node in a b; do
    slurmd -N "$node" -f "$SLURM_CONF" || cannot "slurmd does not start: $(tail -n 3 "$dir/slurmd.$node.log" 2>/dev/null)"
  done
  for _ in $(seq 150); do
    [ "$(sinfo -h -o %t -N 2>/dev/null | grep -c idle)" = 2 ] && { echo "SLURM_CONF=$SLURM_CONF"; return; }
    sleep 0.1
  done
  cannot "the nodes do not come up: $(sinfo 2>&1 | tail -3; tail -qn 3 "$dir"/slurmd.*.log)"
}

case $verb in
  start) start ;;
  stop) stop ;;
  *) usage ;;
esac

# SPDX-License-Identifier: Apache-2.0
"""Options of the launchers.

A table entry is `name:words=meaning`. `words` is the number of words after the option (0 if not
given). Options of different launchers with equal effect have the same `meaning`. An option without
a meaning is valid, but no rule uses it.

Sources: the help texts and sources of Open MPI 4.1.4 and 5.0.11, MPICH's hydra 4.0.2, srun 23.11,
and torchrun of PyTorch 2.9. Each option of hydra was tried with Intel MPI 2021.18.
"""

from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher


class Spec(NamedTuple):
    """Number of words that follow an option, and the option's meaning, which rules look up."""

    words: int
    meaning: str


def _table(text: str) -> dict[str, Spec]:
    found = {}
    for entry in text.split():
        head, _, meaning = entry.partition("=")
        name, _, words = head.partition(":")
        found[name] = Spec(int(words or 0), meaning)
    return found


_OPENMPI = _table("""
n:1=total np:1=total c:1=total N:1=per_node npernode:1=per_node pernode=one_per_node
npersocket:1=per_socket map-by:1=map_by bynode=by_node bycore bysocket byslot rank-by:1
bind-to:1=bind_to bind-to-core=bind_core bind-to-socket=bind_core bind-to-none=bind_none
cpus-per-proc:1=cpus cpus-per-rank:1=cpus cpu-set:1 cpu-list:1 rankfile:1=rankfile rf:1=rankfile
H:1=host host:1=host hostfile:1=hostfile machinefile:1=hostfile default-hostfile:1=hostfile
x:1=env mca:2=mca gmca:2=mca am:1 tune:1 oversubscribe=oversubscribe nooversubscribe
allow-run-as-root=root report-bindings display-map display-allocation display-devel-map
display-topo tag-output timestamp-output xml output-filename:1 merge-stderr-to-stdout q quiet v
verbose V version h help wd:1 wdir:1 path:1 prefix:1 noprefix nolocal=no_local novm preload-binary
preload-files:1 stdin:1 timeout:1 report-pid:1 report-uri:1 personality:1 d debug-daemons
debug-daemons-file leave-session-attached do-not-launch enable-recovery disable-recovery
max-restarts:1 continuous show-progress app:1 tv tmpdir:1 xterm:1 launch-agent:1
index-argv-by-rank get-stack-traces report-state-on-timeout do-not-resolve use-hwthread-cpus
use-regexp set-cwd-to-session-dir abort-on-error forward-signals:1 with-ft:1
""")
_ONLY_4 = frozenset(
    ["am", "xml", "noprefix", "novm", "bind-to-core", "bind-to-socket", "bind-to-none"]
)
_ONLY_5 = _table("""
output:1 display:1 runtime-options:1 rtos:1 dvm:1 dvm-hostfile:1 prtemca:2=mca pmixmca:2=mca
omca:2=mca hostfile-slots:1 map-by-options:1 stream-buffering:1 exec-agent:1 gpu-support:1
initial-errhandler:1 pset:1 pmixam:1 add-hostfile:1 add-host:1
""")
_HYDRA = _table("""
n:1=total np:1=total ppn:1=per_node hosts:1=host host:1=host
f:1=hostfile hostfile:1=hostfile machinefile:1=hostfile machine:1=hostfile genv:2=env env:2=env
genvlist:1=env_list envlist:1=env_list genvnone=env_none envnone=env_none genvall envall
genvexcl:1 wdir:1 configfile:1 launcher:1 launcher-exec:1 bootstrap:1 bootstrap-exec:1 rmk:1
enable-x disable-x topolib:1 bind-to:1=bind_to map-by:1=hydra_map_by membind:1 demux:1 verbose v
info print-all-exitcodes iface:1 profile prepend-rank l prepend-pattern:1 outfile-pattern:1
errfile-pattern:1 nameserver:1 disable-auto-cleanup disable-hostname-propagation order-nodes:1
localhost:1 usize:1 pmi-port skip-launch-node=no_local gpus-per-proc:1 version V help h
""")
_NOT_INTEL = frozenset(
    ["pmi-port", "order-nodes", "skip-launch-node", "topolib", "gpus-per-proc"],
) | {"disable-hostname-propagation"}
_ONLY_INTEL = _table("""
perhost:1=per_node grr:1=per_node rr s:1 path:1 tune trace print-rank-map nolocal=no_local
silent-abort prot prepend-timestamp ordered-output hosts-group:1 cpu-bind:1=cpus gtool:1
gtoolfile:1 aps mps gdb gdb-args:1 check_mpi noconf tmpdir:1 branch-count:1
""")
_SLURM = _table("""
N:1=nodes nodes:1=nodes n:1=total ntasks:1=total ntasks-per-node:1=per_node
gpus-per-node:1=gpus_per_node gpus:1=gpus G:1=gpus gpus-per-task:1=gpus_per_task gres:1=gres
tres-per-node:1 tres-per-task:1 gpus-per-socket:1 gpu-freq:1 ntasks-per-gpu:1=ntasks_per_gpu
ntasks-per-socket:1 ntasks-per-core:1 c:1=cpus cpus-per-task:1=cpus cpus-per-gpu:1=cpus
cpu-bind:1=bind_to mem-bind:1 gpu-bind:1=gpu_bind mpi:1=mpi export:1=export export-file:1 w:1=host
nodelist:1=host x:1=exclude exclude:1=exclude F:1=hostfile nodefile:1=hostfile m:1=map_by
distribution:1=map_by exclusive=exclusive overlap exact whole p:1 partition:1 A:1 account:1 t:1
time:1 J:1 job-name:1 o:1 output:1 e:1 error:1 i:1 input:1 q:1 qos:1 C:1 constraint:1 mem:1
mem-per-gpu:1 mem-per-cpu:1 D:1 chdir:1 l label u unbuffered K kill-on-bad-exit W:1 wait:1 d:1
dependency:1 jobid:1 reservation:1 comment:1 container-image:1 container-mounts:1 container-name:1
container-workdir:1 no-container-mount-home container-mount-home container-writable
container-remap-root container-env:1 B:1 extra-node-info:1 Q quiet v verbose V version h help O
overcommit s oversubscribe r:1 relative:1 H hold I immediate X disable-status Z no-allocate k
no-kill E preserve-env multi-prog=multi_prog network:1 nice propagate threads-per-core:1 hint:1
open-mode:1 requeue no-requeue signal:1 a:1 array:1 sockets-per-node:1 cores-per-socket:1
switches:1 licenses:1 L:1 prolog:1 epilog:1 task-prolog:1 task-epilog:1 tmp:1 uid:1 gid:1
get-user-env mail-type:1 mail-user:1 contiguous begin:1 deadline:1 parsable wrap:1 b:1 g:1 M:1
clusters:1
""")

_TORCHRUN = _table("""
nnodes:1=nodes nproc-per-node:1=per_node node-rank:1=node_rank rdzv-backend:1=rdzv_backend
rdzv-endpoint:1=rdzv_endpoint rdzv-id:1 rdzv-conf:1 standalone=standalone max-restarts:1
monitor-interval:1 start-method:1 role:1 m=module module=module no-python=no_python
run-path=no_python log-dir:1 r:1 redirects:1 t:1 tee:1 local-ranks-filter:1
master-addr:1=master_addr master-port:1 local-addr:1 logs-specs:1 numa-binding:1
duplicate-stdout-filters:1 duplicate-stderr-filters:1 event-log-handler:1 virtual-local-rank
signals-to-handle:1 use-env h help
""")

OPENMPI_4 = Flavor(Launcher.OPENMPI, (4, 1))
OPENMPI_5 = Flavor(Launcher.OPENMPI, (5, 0))
HYDRA = Flavor(Launcher.HYDRA)
INTEL = Flavor(Launcher.HYDRA, (2021,))
SLURM = Flavor(Launcher.SLURM)
TORCHRUN = Flavor(Launcher.TORCHRUN)
LOCAL = Flavor(Launcher.LOCAL)

TABLES: dict[Flavor, dict[str, Spec]] = {
    OPENMPI_4: _OPENMPI,
    OPENMPI_5: {k: v for k, v in _OPENMPI.items() if k not in _ONLY_4} | _ONLY_5,
    HYDRA: _HYDRA,
    INTEL: {k: v for k, v in _HYDRA.items() if k not in _NOT_INTEL} | _ONLY_INTEL,
    SLURM: _SLURM,
    TORCHRUN: _TORCHRUN,
    LOCAL: {},
}
"""Options of each launcher, without leading dashes. Names of torchrun have `-` instead of `_`."""

LAUNCHER_TABLES = (_OPENMPI, _HYDRA, _SLURM, _ONLY_5, _ONLY_INTEL)
"""Options of the launchers that start nccl-tests: all except torchrun."""

DEPRECATED_5 = {
    "npernode": "--map-by ppr:N:node",
    "pernode": "--map-by ppr:1:node",
    "npersocket": "--map-by ppr:N:package",
    "bynode": "--map-by node",
    "oversubscribe": "--map-by :OVERSUBSCRIBE",
    "report-bindings": "--display bind",
    "display-map": "--display map",
    "display-allocation": "--display alloc",
    "tag-output": "--output tag",
    "timestamp-output": "--output timestamp",
}
"""Options that Open MPI 5 still accepts, and their new names."""

# SPDX-License-Identifier: Apache-2.0
"""The bench, or a program of MPI, under the launcher a site has: one command that starts all of
its processes."""

import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from nccltune.launch.allocation import check_hosts
from nccltune.launch.find import Found
from nccltune.launch.flavor import Launcher
from nccltune.launch.job import Job, SlurmOptions, check
from nccltune.launch.render import Rendered, render
from nccltune.measure.pods import Pods
from nccltune.model.errors import InputError, PlatformError

TOKEN = "NCCLTUNE_TOKEN"  # noqa: S105 - the name of a variable
_OURS = ("NCCL_", "NCCLTUNE_")
_ALSO = ("LD_LIBRARY_PATH",)
_ALLOCATED = "SLURM_JOB_NODELIST"
_COUNTED = ("SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS")
"""One of these is there in a job whose GPUs Slurm counts."""
_SCONTROL_LIMIT_S = 20


class Under(NamedTuple):
    """A launcher that is here, and what it is to start: a process for each GPU of each node, or one
    for all of a node. `hosts` are named to the launcher, which may know them itself. `mpi` is what
    srun's --mpi= is for programs of MPI, `pods` where Kubernetes starts them."""

    found: Found
    nodes: int
    gpus_per_node: int
    hosts: tuple[str, ...] = ()
    per_node: bool = False
    mpi: str | None = None
    pods: Pods | None = None


def command(
    program: Sequence[str], under: Under, port: int, environment: Mapping[str, str]
) -> tuple[list[str], list[bytes]]:
    """The command that starts our bench everywhere, with its rendezvous on process 0's node, and
    lines to send it before all others.

    Every process gets this environment's variables of NCCL and of ours. Raises InputError where the
    nodes are not known.
    """
    if under.pods is not None:
        return under.pods.command(program[1:], port, environment)
    words = [*program, f"--rendezvous={_first_host(under, environment)}:{port}"]
    # The bench links no MPI: Slurm's own variables say which process it is.
    job = _job(words, under, environment, mpi="none")
    around = under.found.around(in_allocation=True, conversation=True)
    return list(render(job, under.found.flavor, around).words), []


def program_under(
    program: Sequence[str],
    under: Under,
    environment: Mapping[str, str],
    *,
    also: Collection[str] = (),
) -> Rendered:
    """What starts a program of MPI everywhere, such as one of nccl-tests, with the GPUs of a
    process as its -g.

    Every process gets this environment's variables of NCCL and of ours, and those that `also`
    names. Raises InputError where the nodes are not known.
    """
    flavor = under.found.flavor
    if flavor.launcher is Launcher.SLURM:
        _nodelist(environment)
    check_hosts(flavor, under.nodes, under.hosts, environment)
    job = _job(program, under, environment, mpi=under.mpi, also=also)
    return render(job, flavor, under.found.around(in_allocation=True))


def program_command(
    program: Sequence[str],
    under: Under,
    environment: Mapping[str, str],
    *,
    also: Collection[str] = (),
) -> tuple[list[str], list[bytes]]:
    """The command of `program_under`, in pods where Kubernetes starts it, and lines to send it
    first. Raises LaunchError or PlatformError where a cluster gives no pods, too."""
    if under.pods is not None:
        return under.pods.program(program, environment, also)
    return list(program_under(program, under, environment, also=also).words), []


def _job(
    program: Sequence[str],
    under: Under,
    environment: Mapping[str, str],
    mpi: str | None,
    also: Collection[str] = (),
) -> Job:
    more = {*_ALSO, *also}
    names = sorted(name for name in environment if name.startswith(_OURS) or name in more)
    # srun hands on everything by itself.
    is_slurm = under.found.flavor.launcher is Launcher.SLURM
    job = Job(
        program=list(program),
        nodes=under.nodes,
        gpus_per_node=under.gpus_per_node,
        processes="per-node" if under.per_node else "per-gpu",
        hosts=list(under.hosts),
        inherit=[] if is_slurm else names,
        # Where Slurm counts no GPUs, it must not be asked for any.
        slurm=SlurmOptions(mpi=mpi, gpus=any(name in environment for name in _COUNTED)),
    )
    check(job, "--launcher")
    return job


def _first_host(under: Under, environment: Mapping[str, str]) -> str:
    """Where process 0 will be, as the other processes can reach it."""
    if under.hosts:
        return under.hosts[0]
    if under.found.flavor.launcher is Launcher.SLURM:
        return _first_allocated(environment)
    if under.nodes == 1:
        return "127.0.0.1"
    raise InputError(
        f"{under.found.flavor.words} is to start on {under.nodes} nodes, and none is named",
        where="--launcher",
        hint="--hosts node1,node2: the first one is where the processes meet",
    )


def _first_allocated(environment: Mapping[str, str]) -> str:
    """The address of the first of the nodes that Slurm gave to this job."""
    first, *_ = _scontrol(["show", "hostnames", _nodelist(environment)], environment).split()
    # A node's name need not be one that the network knows.
    told = re.search(r"\bNodeAddr=(\S+)", _scontrol(["show", "node", first], environment))
    return told[1] if told else first


def _nodelist(environment: Mapping[str, str]) -> str:
    """The nodes that Slurm gave to this job, as it writes them."""
    nodes = environment.get(_ALLOCATED)
    if not nodes:
        raise InputError(
            "Slurm has given this shell no nodes, and a measurement talks with its processes",
            where="--launcher slurm",
            hint="salloc --nodes 2 --exclusive nccltune sweep ..., or the same in an sbatch script",
        )
    return nodes


def _scontrol(words: list[str], environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            ["scontrol", *words],
            env=dict(environment),
            capture_output=True,
            text=True,
            check=True,
            timeout=_SCONTROL_LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise PlatformError(f"scontrol does not say where this job's nodes are: {error}") from error
    return done.stdout

# SPDX-License-Identifier: Apache-2.0
"""Make the command that starts all processes of the bench, or of an MPI program, with the launcher
of a site."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from nccltune.launch.find import InstalledLauncher, check_hosts
from nccltune.launch.flavor import Launcher
from nccltune.launch.job import Job, SlurmOptions, check
from nccltune.launch.render import Rendered, render
from nccltune.measure.bench.pods import Pods
from nccltune.model.errors import InputError, PlatformError
from nccltune.native.child import run_tool

TOKEN = "NCCLTUNE_TOKEN"  # noqa: S105 - the name of a variable
_OURS = ("NCCL_", "NCCLTUNE_")
_ALSO = ("LD_LIBRARY_PATH",)
_ALLOCATED = "SLURM_JOB_NODELIST"
_COUNTED = ("SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS")
"""Slurm sets one of these variables in a job if it manages the GPUs."""
_SCONTROL_LIMIT_S = 20


class WithLauncher(NamedTuple):
    """An installed launcher, and the processes that it starts: one a GPU, or `per_node`.

    Without `hosts` the launcher must know them. `mpi` is srun's --mpi. `pods` is set for
    Kubernetes.
    """

    found: InstalledLauncher
    nodes: int
    gpus_per_node: int
    hosts: tuple[str, ...] = ()
    per_node: bool = False
    mpi: str | None = None
    pods: Pods | None = None


def command(
    program: Sequence[str], with_launcher: WithLauncher, port: int, environment: Mapping[str, str]
) -> tuple[list[str], list[bytes]]:
    """Return the command that starts our bench on all nodes, and the first lines of its input.

    The processes connect to this port of process 0's node, and get `NCCL_*` and `NCCLTUNE_*` of
    `environment`. Raises InputError where the nodes are unknown, PlatformError where Slurm does not
    name them, and what `Pods.command` raises.
    """
    if with_launcher.pods is not None:
        return with_launcher.pods.command(program[1:], port, environment)
    words = [*program, f"--rendezvous={_first_host(with_launcher, environment)}:{port}"]
    # The bench is not linked with MPI. It reads its rank from Slurm's own variables.
    job = _job(words, with_launcher, environment, mpi="none")
    around = with_launcher.found.render_context(in_allocation=True, conversation=True)
    return list(render(job, with_launcher.found.flavor, around).words), []


def program_with_launcher(
    program: Sequence[str],
    with_launcher: WithLauncher,
    environment: Mapping[str, str],
    *,
    also: Collection[str] = (),
) -> Rendered:
    """Return the command that starts an MPI program on all nodes.

    For nccl-tests, -g is set to the GPUs of a process. Every process gets `NCCL_*`, `NCCLTUNE_*`
    and what `also` names. Raises InputError where the nodes are unknown.
    """
    flavor = with_launcher.found.flavor
    if flavor.launcher is Launcher.SLURM:
        _nodelist(environment)
    check_hosts(flavor, with_launcher.nodes, with_launcher.hosts, environment)
    job = _job(program, with_launcher, environment, mpi=with_launcher.mpi, also=also)
    return render(job, flavor, with_launcher.found.render_context(in_allocation=True))


def program_command(
    program: Sequence[str],
    with_launcher: WithLauncher,
    environment: Mapping[str, str],
    *,
    also: Collection[str] = (),
) -> tuple[list[str], list[bytes]]:
    """Return the command that starts a program on all nodes or in pods, and its input."""
    if with_launcher.pods is not None:
        return with_launcher.pods.program(program, environment, also)
    return list(program_with_launcher(program, with_launcher, environment, also=also).words), []


def _job(
    program: Sequence[str],
    with_launcher: WithLauncher,
    environment: Mapping[str, str],
    mpi: str | None,
    also: Collection[str] = (),
) -> Job:
    more = {*_ALSO, *also}
    names = sorted(name for name in environment if name.startswith(_OURS) or name in more)
    # srun passes all variables to the processes, so none need be named.
    is_slurm = with_launcher.found.flavor.launcher is Launcher.SLURM
    job = Job(
        program=list(program),
        nodes=with_launcher.nodes,
        gpus_per_node=with_launcher.gpus_per_node,
        processes="per-node" if with_launcher.per_node else "per-gpu",
        hosts=list(with_launcher.hosts),
        inherit=[] if is_slurm else names,
        # A Slurm that does not manage GPUs refuses a request for GPUs.
        slurm=SlurmOptions(mpi=mpi, gpus=any(name in environment for name in _COUNTED)),
    )
    check(job, "‹launcher›")
    return job


def _first_host(with_launcher: WithLauncher, environment: Mapping[str, str]) -> str:
    """Return an address of process 0's node that the other processes can reach."""
    if with_launcher.hosts:
        return with_launcher.hosts[0]
    if with_launcher.found.flavor.launcher is Launcher.SLURM:
        return _first_allocated(environment)
    if with_launcher.nodes == 1:
        return "127.0.0.1"
    raise InputError(
        f"{with_launcher.found.flavor.words} is to start on {with_launcher.nodes} nodes, and "
        "none is named",
        where="‹launcher›",
        hint="‹settings› hosts=node1,node2: the first one is where the processes meet",
    )


def _first_allocated(environment: Mapping[str, str]) -> str:
    first, *_ = _scontrol(["show", "hostnames", _nodelist(environment)], environment).split()
    # The name of the node may not be in DNS, so prefer the address that Slurm uses.
    found = re.search(r"\bNodeAddr=(\S+)", _scontrol(["show", "node", first], environment))
    return found[1] if found else first


def _nodelist(environment: Mapping[str, str]) -> str:
    """Return the nodes of this job in Slurm's form. Raises InputError outside an allocation."""
    nodes = environment.get(_ALLOCATED)
    if not nodes:
        raise InputError(
            "Slurm has allocated no nodes to this shell, and a measurement needs its processes",
            where="‹launcher› slurm",
            hint="salloc --nodes 2 --exclusive nccltune sweep ..., or the same in an sbatch script",
        )
    return nodes


def _scontrol(words: list[str], environment: Mapping[str, str]) -> str:
    done = run_tool(["scontrol", *words], _SCONTROL_LIMIT_S, environment)
    if done is None or done.status != 0:
        reason = "it cannot be started or hangs" if done is None else done.errors.decode().strip()
        raise PlatformError(f"scontrol does not name the nodes of this job: {reason}")
    return done.out.decode()

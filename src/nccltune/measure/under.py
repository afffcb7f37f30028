# SPDX-License-Identifier: Apache-2.0
"""The bench under the launcher a site has: one command that starts all of its processes."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccltune.launch.find import Found
from nccltune.launch.flavor import Launcher
from nccltune.launch.job import Job, SlurmOptions, check
from nccltune.launch.render import render
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
    for all of a node. `hosts` are named to the launcher, which may know them itself."""

    found: Found
    nodes: int
    gpus_per_node: int
    hosts: tuple[str, ...] = ()
    per_node: bool = False


def command(
    program: Sequence[str], under: Under, port: int, environment: Mapping[str, str]
) -> list[str]:
    """The command that starts `program` everywhere, with its rendezvous on process 0's node.

    Every process gets this environment's variables of NCCL and of ours. Raises InputError where the
    nodes are not known.
    """
    flavor = under.found.flavor
    names = sorted(name for name in environment if name.startswith(_OURS) or name in _ALSO)
    is_slurm = flavor.launcher is Launcher.SLURM
    job = Job(
        program=[*program, f"--rendezvous={_first_host(under, environment)}:{port}"],
        nodes=under.nodes,
        gpus_per_node=under.gpus_per_node,
        processes="per-node" if under.per_node else "per-gpu",
        hosts=list(under.hosts),
        # srun hands on everything by itself.
        inherit=[] if is_slurm else names,
        # The bench links no MPI: Slurm's own variables say which process it is. Where it counts no
        # GPUs, it must not be asked for any.
        slurm=SlurmOptions(mpi="none", gpus=any(name in environment for name in _COUNTED)),
    )
    check(job, "--launcher")
    around = under.found.around(in_allocation=True, conversation=True)
    return list(render(job, flavor, around).words)


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
    nodes = environment.get(_ALLOCATED)
    if not nodes:
        raise InputError(
            "Slurm has given this shell no nodes, and a measurement talks with its processes",
            where="--launcher slurm",
            hint="salloc --nodes 2 --exclusive nccltune sweep ..., or the same in an sbatch script",
        )
    first, *_ = _scontrol(["show", "hostnames", nodes], environment).split()
    # A node's name need not be one that the network knows.
    told = re.search(r"\bNodeAddr=(\S+)", _scontrol(["show", "node", first], environment))
    return told[1] if told else first


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

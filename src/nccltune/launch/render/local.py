# SPDX-License-Identifier: Apache-2.0
"""Render a job without a launcher: one process on this machine drives all GPUs of the job."""

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job
from nccltune.launch.render.rendered import CommandPart, Rendered, words_of
from nccltune.model.errors import InputError


def render_local(job: Job) -> Rendered:
    """Return the program as the command. Raises InputError for several processes."""
    total = job.placement.processes
    if total > 1:
        raise InputError(
            f"this job is {total} processes; without a launcher there is one",
            where="--launcher local",
            hint="on one node let a process drive all GPUs: --set processes=per-node"
            if job.nodes == 1
            else "name a launcher: openmpi, hydra, slurm or kubernetes",
        )
    parts = []
    if job.variables:
        pairs = tuple(f"{name}={value}" for name, value in job.variables.items())
        parts.append(CommandPart(("env", *pairs), "the variables of the job"))
    parts.append(CommandPart(tuple(job.words), "the program"))
    return Rendered(Flavor(Launcher.LOCAL), words_of(parts), {}, tuple(parts), job.placement)

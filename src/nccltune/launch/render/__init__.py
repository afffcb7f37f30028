# SPDX-License-Identifier: Apache-2.0
"""From a job and a launcher to the exact command, script or manifests. Pure: nothing is started."""

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job
from nccltune.launch.render.rendered import Around, Part, Rendered

__all__ = ["Around", "Part", "Rendered", "render"]


def render(job: Job, flavor: Flavor, around: Around = Around()) -> Rendered:  # noqa: B008 - frozen
    """What starts `job` under this launcher and version.

    Raises InputError for a job that this launcher cannot start.
    """
    # Imported here: each launcher's file is needed only where it is meant.
    if flavor.launcher is Launcher.LOCAL:
        from nccltune.launch.render.local import render_local

        return render_local(job)
    if flavor.launcher is Launcher.OPENMPI:
        from nccltune.launch.render.openmpi import render_openmpi

        return render_openmpi(job, flavor, around)
    if flavor.launcher is Launcher.HYDRA:
        from nccltune.launch.render.hydra import render_hydra

        return render_hydra(job, flavor, around)
    if flavor.launcher is Launcher.SLURM:
        from nccltune.launch.render.slurm import render_slurm

        return render_slurm(job, flavor, around)
    from nccltune.launch.render.kubernetes import render_kubernetes

    return render_kubernetes(job, flavor, around)

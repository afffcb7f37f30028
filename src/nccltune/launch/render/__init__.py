# SPDX-License-Identifier: Apache-2.0
"""From a job and a launcher to the exact command, script or manifests. Pure: nothing is started.

rendered.py    the result of a renderer
local.py       no launcher
openmpi.py     Open MPI 4 and 5
hydra.py       MPICH and Intel MPI
slurm.py       sbatch script or srun line
kubernetes.py  MPIJob or JobSet
jobset.py      the pods of a JobSet
"""

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job
from nccltune.launch.render.rendered import Around, CommandPart, Rendered

__all__ = ["Around", "CommandPart", "Rendered", "render"]


def render(job: Job, flavor: Flavor, around: Around = Around()) -> Rendered:  # noqa: B008 - frozen
    """Return what starts `job` under this launcher and version.

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

# SPDX-License-Identifier: Apache-2.0
"""Render a job as the exact command, script or manifests of a launcher. Nothing is started.

rendered.py    the result of a renderer
openmpi.py     Open MPI 4 and 5
hydra.py       MPICH and Intel MPI
slurm.py       sbatch script or srun line
kubernetes.py  MPIJob or JobSet
"""

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job
from nccltune.launch.render.rendered import CommandPart, RenderContext, Rendered

__all__ = ["CommandPart", "RenderContext", "Rendered", "render"]


def render(job: Job, flavor: Flavor, context: RenderContext = RenderContext()) -> Rendered:  # noqa: B008 - frozen
    """Return the command, script or manifests that start `job` with this launcher and version.

    Raises InputError for a job that this launcher cannot start.

    >>> job = Job(program=["all_reduce_perf", "-b", "8"], gpus_per_node=4, processes="per-node")
    >>> render(job, Flavor(Launcher.LOCAL)).command
    'all_reduce_perf -b 8 -g 4'
    """
    # Import lazily: a call needs the module of one launcher only.
    if flavor.launcher is Launcher.LOCAL:
        from nccltune.launch.render.rendered import render_local

        return render_local(job)
    if flavor.launcher is Launcher.OPENMPI:
        from nccltune.launch.render.openmpi import render_openmpi

        return render_openmpi(job, flavor, context)
    if flavor.launcher is Launcher.HYDRA:
        from nccltune.launch.render.hydra import render_hydra

        return render_hydra(job, flavor, context)
    if flavor.launcher is Launcher.SLURM:
        from nccltune.launch.render.slurm import render_slurm

        return render_slurm(job, flavor, context)
    from nccltune.launch.render.kubernetes import render_kubernetes

    return render_kubernetes(job, flavor, context)

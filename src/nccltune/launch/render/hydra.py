# SPDX-License-Identifier: Apache-2.0
"""Render an mpiexec line for hydra, the process manager of MPICH and Intel MPI.

Long options of hydra have one dash. hydra has no options -x and -N, and it needs no option to run
as root. Intel MPI (tested with 2021.18) accepts -bind-to but ignores it; its own setting is the
environment variable I_MPI_PIN.
"""

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job
from nccltune.launch.render.rendered import CommandPart, RenderContext, Rendered, words_of
from nccltune.model.scale import count

_PIN = "I_MPI_PIN"
USUAL_MPICH = Flavor(Launcher.HYDRA, (4,))
USUAL_INTEL = Flavor(Launcher.HYDRA, (2021,))
"""`USUAL_MPICH` and `USUAL_INTEL` are the versions to assume if only the MPI's name is known."""


def render_hydra(job: Job, flavor: Flavor, context: RenderContext) -> Rendered:
    """Return the mpiexec line that starts the job."""
    parts = [CommandPart((context.program or "mpiexec.hydra",), flavor.words)]
    if job.hosts:
        hosts = ",".join(job.hosts[: job.nodes])
        parts.append(CommandPart(("-hosts", hosts), "the nodes; -ppn sets the processes of each"))
    parts += hydra_parts(job, flavor, tagged=not context.conversation)
    parts.append(CommandPart(tuple(job.words), "the program"))
    return Rendered(flavor, words_of(parts), {}, tuple(parts), job.placement)


def hydra_parts(job: Job, flavor: Flavor, *, tagged: bool) -> list[CommandPart]:
    """Return the options between mpiexec and the program, without the hosts.

    hydra passes its environment on, so `job.inherit` needs none. `tagged` lines name the rank.
    """
    total, per_node = job.placement.processes, job.processes_per_node
    parts = [
        CommandPart(("-n", str(total)), f"{count(total, 'process')} in all"),
        CommandPart(
            ("-ppn", str(per_node)),
            f"{count(per_node, 'process')} on each node. More than the nodes have is no error to "
            "hydra: it begins again with the first",
        ),
        *_unbound(job, flavor),
    ]
    for name, value in job.variables.items():
        parts.append(
            CommandPart(("-genv", name, value), f"sets {name} in every process, on other nodes too")
        )
    if tagged:
        parts.append(
            CommandPart(
                ("-prepend-rank",), "puts [rank] before each line, so that it is known who spoke"
            )
        )
    return parts


def _unbound(job: Job, flavor: Flavor) -> list[CommandPart]:
    """Return the options against binding to cores, of both MPIs if the version is unknown."""
    parts = []
    if not flavor.is_intel:
        parts.append(
            CommandPart(
                ("-bind-to", "none"),
                "leaves each process all cores of its node, in MPICH: NCCL picks those near a GPU "
                "itself",
            )
        )
    if (flavor.is_intel or not flavor.version) and _PIN not in job.variables:
        parts.append(
            CommandPart(
                ("-genv", _PIN, "off"),
                "leaves each process all cores of its node, in Intel MPI: it takes -bind-to none, "
                "does nothing for it and gives each its share of the cores, wherever its GPU is",
            )
        )
    return parts

# SPDX-License-Identifier: Apache-2.0
"""hydra, the process manager of MPICH and Intel MPI: an mpiexec line.

Its long options have one dash, it has no -x and no -N, and root needs no permission. Intel MPI's
(2021.18 was run) takes -bind-to and does nothing for it: I_MPI_PIN is its word.
"""

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job
from nccltune.launch.render.rendered import Around, CommandPart, Rendered, words_of
from nccltune.model.scale import count

_PIN = "I_MPI_PIN"
USUAL_MPICH = Flavor(Launcher.HYDRA, (4,))
USUAL_INTEL = Flavor(Launcher.HYDRA, (2021,))
"""Where only the name is known, as in an image."""


def render_hydra(job: Job, flavor: Flavor, around: Around) -> Rendered:
    """Return the mpiexec line."""
    parts = [CommandPart((around.program or "mpiexec.hydra",), flavor.words)]
    if job.hosts:
        hosts = ",".join(job.hosts[: job.nodes])
        parts.append(CommandPart(("-hosts", hosts), "the nodes; -ppn sets the processes of each"))
    parts += hydra_parts(job, flavor, tagged=not around.conversation)
    parts.append(CommandPart(tuple(job.words), "the program"))
    return Rendered(flavor, words_of(parts), {}, tuple(parts), job.placement)


def hydra_parts(job: Job, flavor: Flavor, *, tagged: bool) -> list[CommandPart]:
    """Return the options between mpiexec and the program, but for the hosts. hydra gives every
    process the whole environment that it has itself, so that `inherit` needs no word."""
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
    """Return the options for no binding; for an unknown hydra those of both kinds."""
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

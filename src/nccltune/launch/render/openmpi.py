# SPDX-License-Identifier: Apache-2.0
"""Render an mpirun line for Open MPI 4 and 5. Options that both versions have are preferred."""

from nccltune.launch.flavor import Flavor
from nccltune.launch.job import Job
from nccltune.launch.render.rendered import CommandPart, RenderContext, Rendered, words_of
from nccltune.model.scale import count

ROOT = CommandPart(("--allow-run-as-root",), "root starts it, which mpirun refuses by default")


def render_openmpi(job: Job, flavor: Flavor, context: RenderContext) -> Rendered:
    """Return the mpirun line that starts the job."""
    parts = [CommandPart((context.program or "mpirun",), flavor.words)]
    if context.as_root:
        parts.append(ROOT)
    parts += mpirun_parts(job, flavor, where=_where(job), tagged=not context.conversation)
    parts.append(CommandPart(tuple(job.words), "the program"))
    return Rendered(flavor, words_of(parts), {}, tuple(parts), job.placement)


def mpirun_parts(
    job: Job, flavor: Flavor, *, where: list[CommandPart], tagged: bool
) -> list[CommandPart]:
    """Return the options between mpirun and the program; `where` are those of the hosts."""
    per_node = job.processes_per_node
    parts = [
        *where,
        CommandPart(
            ("-np", str(job.placement.processes)),
            f"{count(job.placement.processes, 'process')} in all. Before the program -np and -n "
            "count processes; behind it -n is the program's own",
        ),
        CommandPart(
            ("--map-by", f"ppr:{per_node}:node"),
            f"{count(per_node, 'process')} on each node, node after node",
        ),
        CommandPart(("--bind-to", "none"), _why_unbound(job)),
    ]
    for name, value in job.variables.items():
        parts.append(
            CommandPart(
                ("-x", f"{name}={value}"), f"sets {name} in every process, on other nodes too"
            )
        )
    for name in job.inherit:
        parts.append(CommandPart(("-x", name), f"every process gets the {name} that mpirun has"))
    if tagged:
        # Open MPI 5 accepts --tag-output, but warns that it is deprecated.
        words = ("--output", "tag") if flavor.version[:1] >= (5,) else ("--tag-output",)
        parts.append(
            CommandPart(words, "puts [job,rank] before each line, so that it is known who spoke")
        )
    return parts


def _where(job: Job) -> list[CommandPart]:
    slots = job.processes_per_node
    hosts = job.hosts[: job.nodes] or (["localhost"] if job.nodes == 1 else [])
    if not hosts:
        return []
    return [
        CommandPart(
            ("--host", ",".join(f"{host}:{slots}" for host in hosts)),
            f"the nodes, with room for {count(slots, 'process')} each: without :{slots} a name is "
            "one slot",
        )
    ]


def _why_unbound(job: Job) -> str:
    if job.gpus_per_process > 1:
        return (
            "leaves each process all cores of its node. By default mpirun binds it to one core "
            f"(or one socket), and the threads that serve {job.gpus_per_process} GPUs share it"
        )
    return (
        "leaves each process all cores of its node: NCCL picks those near its GPU, and its proxy "
        "threads need more than the one that mpirun may bind a process to"
    )

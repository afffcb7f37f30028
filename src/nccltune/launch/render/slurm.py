# SPDX-License-Identifier: Apache-2.0
"""Render a script for sbatch, or an srun line if Slurm has already allocated the nodes."""

import shlex

from nccltune.launch.flavor import Flavor
from nccltune.launch.job import Job
from nccltune.launch.render.rendered import (
    CommandPart,
    RenderContext,
    Rendered,
    shell_lines,
    words_of,
)
from nccltune.model.scale import count

SCRIPT = "job.sbatch"
USUAL_MPI = "pmix"
ONCE = CommandPart(
    ("--no-requeue",),
    "where a node goes away the job has failed: otherwise Slurm queues it again, and the second "
    "run writes over what the first one printed",
)


def render_slurm(job: Job, flavor: Flavor, context: RenderContext) -> Rendered:
    """Return an sbatch script and its submission; an srun line in an allocation or conversation."""
    step = _step(job, context)
    program = CommandPart(tuple(job.words), "the program")
    if context.in_allocation or context.conversation:
        wanted = [] if context.in_allocation else _wanted(job)
        shape = wanted or _shape(job)
        pairs = tuple(f"{name}={value}" for name, value in job.variables.items())
        lead = [CommandPart(("env", *pairs), "the variables of the job")] if pairs else []
        parts = [
            *lead,
            CommandPart((context.program or "srun",), flavor.words),
            *shape,
            *step,
            program,
        ]
        return Rendered(flavor, words_of(parts), {}, tuple(parts), job.placement)
    name, *rest = _wanted(job)
    wanted = [name, ONCE, *rest]
    srun = [CommandPart(("srun",), "starts the processes on the nodes of the job"), *step, program]
    lines = ["#!/bin/bash"]
    lines += [f"#SBATCH {shlex.join(part.words)}" for part in wanted]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in job.variables.items()]
    lines.append(shell_lines(srun, words_of(srun)))
    explained = (*wanted, *_exports(job), *srun)
    words = (context.program or "sbatch", "--parsable", SCRIPT)
    return Rendered(flavor, words, {SCRIPT: "\n".join(lines) + "\n"}, explained, job.placement)


def _exports(job: Job) -> list[CommandPart]:
    """Return `export` lines: srun's --export ends a value at a comma, which lists of HCAs have."""
    return [
        CommandPart(
            ("export", f"{name}={value}"), f"sets {name}, which srun takes to every process"
        )
        for name, value in job.variables.items()
    ]


def _shape(job: Job) -> list[CommandPart]:
    per_node = job.processes_per_node
    parts = [
        CommandPart(
            (f"--nodes={job.nodes}",), f"{count(job.nodes, 'node')} (-N means nodes to Slurm)"
        ),
        CommandPart(
            (f"--ntasks-per-node={per_node}",), f"{count(per_node, 'process')} on each of them"
        ),
    ]
    if job.hosts:
        parts.append(
            CommandPart((f"--nodelist={','.join(job.hosts[: job.nodes])}",), "these nodes")
        )
    if job.slurm.gpus:
        parts.append(
            CommandPart(
                (f"--gpus-per-node={job.gpus_per_node}",),
                "every process of a node sees all of them and takes those of its local rank",
            )
        )
    return parts


def _wanted(job: Job) -> list[CommandPart]:
    options = job.slurm
    parts = [CommandPart((f"--job-name={job.name}",), "the name in squeue"), *_shape(job)]
    if options.exclusive:
        parts.append(
            CommandPart(
                ("--exclusive",),
                "the nodes alone, with all their cores: others would be measured with it",
            )
        )
    for name in ("partition", "account", "time"):
        value = getattr(options, name)
        if value is not None:
            parts.append(CommandPart((f"--{name}={value}",), f"the {name}"))
    parts += [CommandPart((option,), "as the job file has it") for option in options.options]
    return parts


def _step(job: Job, context: RenderContext) -> list[CommandPart]:
    mpi = job.slurm.mpi or USUAL_MPI
    parts = [
        CommandPart(
            (f"--mpi={mpi}",),
            "how processes of MPI find each other; with one that the MPI library lacks, each "
            "believes to be alone",
        ),
        CommandPart(
            ("--export=ALL",),
            "every variable goes to the processes, whatever the site's default is",
        ),
        CommandPart(
            ("--cpu-bind=none",),
            "leaves each process all cores of the job on its node: NCCL picks those near a GPU",
        ),
        CommandPart(
            ("--kill-on-bad-exit=1",), "one process that fails ends all, instead of a hang"
        ),
    ]
    if context.conversation:
        parts.append(CommandPart(("--input=0",), "standard input goes to rank 0"))
    else:
        parts.append(
            CommandPart(
                ("--label",), "puts the rank before each line, so that it is known who spoke"
            )
        )
    return parts

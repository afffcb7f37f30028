# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch`: start a test on a cluster with the launcher it has."""

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.bench_options import terminated_like_interrupted
from nccltune.cli.launch_options import flavor_from, job_from, job_options, nodes_given
from nccltune.cli.output import json_option, stderr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nccltune.launch.find import Found
    from nccltune.launch.follow import Follower
    from nccltune.launch.job import Job
    from nccltune.launch.render import Rendered
    from nccltune.launch.state import End

EPILOG = """\b
Examples:
  nccltune launch examples/jobs/2x8-per-gpu.toml --hosts node1,node2 -o studies/a
  nccltune launch --nodes 2 --launcher slurm --render -- all_reduce_perf -b 8 -e 8G -f 2
  nccltune launch examples/jobs/1x8.toml --explain
"""


@click.command(epilog=EPILOG)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="JOB.toml|-- PROGRAM ...")
@click.option(
    "--launcher",
    metavar="local|openmpi|hydra|slurm|kubernetes",
    help="Who starts the processes; openmpi:5 to render for a version.  [default: what is found]",
)
@click.option("--render", "only_render", is_flag=True, help="Print the exact command or file.")
@click.option("--explain", "only_explain", is_flag=True, help="Say what each option means.")
@job_options
@click.option(
    "-o",
    "--output",
    "study",
    type=click.Path(path_type=Path),
    help="The study that keeps output, job and samples; made if it is not there.",
)
@click.option("--choice", help="The choice that the tables are made with: tree/ll, default, tuned.")
@click.option(
    "--start-within",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Cancel a job that a queue has not started by then.  [default: wait]",
)
@json_option()
def command(
    words: tuple[str, ...],
    launcher: str | None,
    only_render: bool,
    only_explain: bool,
    study: Path | None,
    choice: str | None,
    start_within: float | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Start a test on one node or many: render the right command, run it, follow it, keep its
    table in a study, and end it cleanly on Ctrl-C.

    A job is a TOML file, flags, or flags over a file. Exit code 1 if something else ran than was
    promised or the numbers are in doubt, 4 if the job failed.
    """
    from nccltune.cli import launch_screen as screen
    from nccltune.launch.render import render

    job, nodes_said = job_from(words, options)
    found = _found(job, launcher, run=not (only_render or only_explain))
    job = _with_mpi(job if nodes_said else _on_allocation(job, found), found)
    rendered = render(job, found.flavor, found.around(in_allocation="SLURM_JOB_ID" in os.environ))
    if only_render or only_explain:
        _warn_of_hosts(job, found)
    if only_render:
        screen.show_rendered(rendered, as_json)
        return 0
    if only_explain:
        screen.show_meanings(job, rendered, as_json)
        return 0
    _check_can_start(job, found, os.environ)
    return _run(job, rendered, study, choice, start_within, as_json)


def _found(job: "Job", launcher: str | None, *, run: bool) -> "Found":
    """Return the launcher to take. To render, one that is not installed does as well."""
    from nccltune.launch.find import Found, choose, find, find_wanted
    from nccltune.launch.flavor import Flavor, Launcher
    from nccltune.model.errors import PlatformError

    if launcher is None:
        try:
            return choose(job)
        except PlatformError:
            if run:
                raise
        _say("no launcher is installed: rendered for Open MPI; --launcher names another")
        return Found(Flavor(Launcher.OPENMPI))
    wanted = flavor_from(launcher)
    if run:
        return find_wanted(wanted)
    if not wanted.version:
        with contextlib.suppress(PlatformError):
            return find(wanted.launcher)
    return Found(wanted)


def _say(words: str) -> None:
    stderr().print(f"warning    {words}", markup=False, soft_wrap=True)


def _warn_of_hosts(job: "Job", found: "Found") -> None:
    """Warn where the rendered mpirun would start all processes on this machine."""
    from nccltune.launch.allocation import knows_hosts

    if not knows_hosts(found.flavor, job.nodes, job.hosts, os.environ):
        _say(
            f"{job.nodes} nodes and no hosts: {found.flavor._replace(version=()).words} uses this"
            " machine alone; --hosts node1,node2 names them"
        )


def _on_allocation(job: "Job", found: "Found") -> "Job":
    """On as many nodes as Slurm has given to this shell, where it has."""
    from msgspec.structs import replace

    nodes = nodes_given(found.flavor.launcher)
    return job if nodes is None else replace(job, nodes=nodes)


def _with_mpi(job: "Job", found: "Found") -> "Job":
    """With the way of srun that is here, where the job names none."""
    from msgspec.structs import replace

    from nccltune.launch.find import slurm_mpi
    from nccltune.launch.flavor import Launcher

    if found.flavor.launcher is not Launcher.SLURM or found.program is None or job.slurm.mpi:
        return job
    return replace(job, slurm=replace(job.slurm, mpi=slurm_mpi()))


def _check_can_start(job: "Job", found: "Found", environment: "Mapping[str, str]") -> None:
    """Raise for what is known to fail before anything is started."""
    from nccltune.launch.allocation import check_hosts
    from nccltune.launch.flavor import Launcher
    from nccltune.model.errors import PlatformError

    launcher = found.flavor.launcher
    check_hosts(found.flavor, job.nodes, job.hosts, environment)
    elsewhere = launcher in (Launcher.SLURM, Launcher.KUBERNETES)
    here = job.nodes == 1 and not job.hosts and not elsewhere
    if here and shutil.which(job.program[0]) is None:
        raise PlatformError(
            f"no program {job.program[0]} here",
            hint="name it with its path; nccl-tests must be built with MPI=1 for several processes",
        )


def _run(
    job: "Job",
    rendered: "Rendered",
    study: Path | None,
    choice: str | None,
    start_within: float | None,
    as_json: bool,
) -> int:
    from datetime import UTC, datetime

    from nccltune.cli import launch_screen as screen
    from nccltune.launch.follow import Follower
    from nccltune.launch.keep import OUTPUT, new_folder, write_job
    from nccltune.model.choice import parse_choice
    from nccltune.model.errors import StudyError

    chosen = parse_choice(choice) if choice is not None else None
    if study is not None and study.is_file():
        raise StudyError("is a file, not a study folder", where=str(study))
    # A queue's nodes see this folder, and not this machine's /tmp.
    scratch = None if study is not None else tempfile.mkdtemp(prefix="nccltune-launch-", dir=".")
    try:
        kept = Path(scratch) if study is None and scratch is not None else study
        assert kept is not None
        folder = new_folder(kept, datetime.now(UTC))
        write_job(folder, job, rendered)
        follower = Follower(lambda line: print(line, file=sys.stderr, flush=True))
        stderr().print(f"start      {rendered.command}", markup=False, soft_wrap=True)
        with terminated_like_interrupted():
            end = _start(job, rendered, folder, follower, start_within)
        result = screen.result_of(job, rendered, end, follower, kept, folder / OUTPUT, chosen)
        return screen.show_result(result, study, as_json)
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _start(
    job: "Job",
    rendered: "Rendered",
    folder: Path,
    follower: "Follower",
    start_within: float | None,
) -> "End":
    from nccltune.launch.batch import Batch
    from nccltune.launch.flavor import Launcher
    from nccltune.launch.keep import OUTPUT, started
    from nccltune.launch.kubernetes.run import ClusterJob
    from nccltune.launch.render.slurm import SCRIPT
    from nccltune.launch.run import run

    output = folder / OUTPUT
    words = started(rendered, folder)
    talk = stderr()

    def told(line: str) -> None:
        talk.print(f"{rendered.flavor.launcher.value:<10} {line}", markup=False, soft_wrap=True)

    if rendered.flavor.launcher is Launcher.KUBERNETES:
        return ClusterJob(job, output, follower, told).run(words, start_within)
    if SCRIPT not in rendered.files:
        return run(words, output, follower)
    # In such a name % stands for the job's number and the like.
    name = str(output.absolute()).replace("%", "%%")
    words = [*words[:-1], f"--output={name}", words[-1]]
    return Batch(output, follower, told).run(words, start_within)

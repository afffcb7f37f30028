# SPDX-License-Identifier: Apache-2.0
"""Launch: render a job for an installed launcher, run it, and store its results in a study."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from nccltune.app.bench_launch import nodes_given
from nccltune.app.job import JobRequest, job_of, launcher_flavor
from nccltune.launch.batch import SlurmBatchJob
from nccltune.launch.find import (
    InstalledLauncher,
    check_hosts,
    choose,
    find,
    find_wanted,
    knows_hosts,
    slurm_mpi,
)
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.follow import Follower, placement_differences
from nccltune.launch.job import Job
from nccltune.launch.keep import (
    OUTPUT,
    command_in,
    import_output,
    new_folder,
    samples_of,
    write_job,
)
from nccltune.launch.kubernetes.run import ClusterJob
from nccltune.launch.render import Rendered, render
from nccltune.launch.render.slurm import SCRIPT
from nccltune.launch.run import run
from nccltune.launch.state import RunEnd, end_by_output
from nccltune.launch_lint.check import check_program
from nccltune.model.choice import AnyChoice, parse_choice
from nccltune.model.errors import PlatformError, StudyError
from nccltune.model.sample import Sample


class LaunchProgress(Protocol):
    """Callbacks of a running launch."""

    def note(self, words: str) -> None:
        """Report a line about the nodes or the queue."""

    def warn(self, sentence: str) -> None:
        """Report a problem that does not stop the launch."""

    def starting(self, command: str) -> None:
        """Report the command that is about to start the job."""

    def output(self, line: str) -> None:
        """Report a line that the job printed."""


class RenderedJob(NamedTuple):
    """A job, and the command or file that starts the job."""

    job: Job
    rendered: Rendered


class LaunchResult(NamedTuple):
    """The result of a finished run. `findings` are sentences on doubts about the numbers."""

    rendered: Rendered
    end: RunEnd
    findings: list[str]
    last_words: list[str]
    samples: list[Sample]
    output: Path


def render_job(
    request: JobRequest, launcher: str | None, progress: LaunchProgress, *, to_run: bool = False
) -> RenderedJob:
    """Return a job and the command or file that starts it; start nothing.

    Without a launcher the job is rendered for Open MPI. With `to_run`, raises PlatformError if the
    launcher or the program is not installed.
    """
    job, says_nodes = job_of(request)
    found = _launcher_for(job, launcher, progress.warn, run=to_run)
    job = _with_mpi(job if says_nodes else _on_allocation(job, found, progress.note), found)
    around = found.render_context(in_allocation="SLURM_JOB_ID" in os.environ)
    rendered = render(job, found.flavor, around)
    for finding in check_program(job.words):
        progress.warn(f"{finding.message}. {finding.fix[:1].upper()}{finding.fix[1:]}")
    if to_run:
        _check_can_start(job, found, os.environ)
    elif not knows_hosts(found.flavor, job.nodes, job.hosts, os.environ):
        progress.warn(
            f"{job.nodes} nodes and no hosts: {found.flavor._replace(version=()).words} uses this"
            " machine alone; ‹settings› hosts=node1,node2 names them"
        )
    return RenderedJob(job, rendered)


def run_job(
    ready: RenderedJob,
    progress: LaunchProgress,
    *,
    study: Path | None = None,
    choice: str | None = None,
    start_within: float | None = None,
) -> LaunchResult:
    """Start a job, follow it to its end, and store output, job and samples in a study.

    A job that a queue has not started after `start_within` seconds is cancelled. Raises InputError
    for an invalid choice, StudyError if `study` is a file, and the launchers' errors.
    """
    job, rendered = ready
    chosen = parse_choice(choice) if choice is not None else None
    if study is not None and study.is_file():
        raise StudyError("is a file, not a study folder", where=str(study))
    # Nodes of a queue usually see the current folder, but not this machine's /tmp. So create the
    # temporary folder in the current folder.
    scratch = None if study is not None else tempfile.mkdtemp(prefix="nccltune-launch-", dir=".")
    try:
        kept = Path(scratch) if scratch is not None else study
        assert kept is not None
        folder = new_folder(kept, datetime.now(UTC))
        write_job(folder, job, rendered)
        follower = Follower(progress.output)
        progress.starting(rendered.command)
        end = _start(job, rendered, folder, follower, start_within, progress.note)
        return _result_of(job, rendered, end, follower, kept, folder / OUTPUT, chosen)
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _launcher_for(
    job: Job, launcher: str | None, warn: Callable[[str], None], *, run: bool
) -> InstalledLauncher:
    if launcher is None:
        try:
            return choose(job)
        except PlatformError:
            if run:
                raise
        warn("no launcher is installed: rendered for Open MPI; ‹launcher› names another")
        return InstalledLauncher(Flavor(Launcher.OPENMPI))
    wanted = launcher_flavor(launcher)
    if run:
        return find_wanted(wanted)
    if not wanted.version:
        with contextlib.suppress(PlatformError):
            return find(wanted.launcher)
    return InstalledLauncher(wanted)


def _on_allocation(job: Job, found: InstalledLauncher, note: Callable[[str], None]) -> Job:
    nodes = nodes_given(found.flavor.launcher, note)
    return job if nodes is None else replace(job, nodes=nodes)


def _with_mpi(job: Job, found: InstalledLauncher) -> Job:
    """Return the job with a value for srun's --mpi that this machine supports."""
    if found.flavor.launcher is not Launcher.SLURM or found.program is None or job.slurm.mpi:
        return job
    return replace(job, slurm=replace(job.slurm, mpi=slurm_mpi()))


def _check_can_start(job: Job, found: InstalledLauncher, environment: Mapping[str, str]) -> None:
    """Raise an error before the start if the hosts or the program are known to be missing."""
    launcher = found.flavor.launcher
    check_hosts(found.flavor, job.nodes, job.hosts, environment)
    elsewhere = launcher in (Launcher.SLURM, Launcher.KUBERNETES)
    here = job.nodes == 1 and not job.hosts and not elsewhere
    if here and shutil.which(job.program[0]) is None:
        raise PlatformError(
            f"no program {job.program[0]} here",
            hint="name it with its path; nccl-tests must be built with MPI=1 for several processes",
        )


def _start(
    job: Job,
    rendered: Rendered,
    folder: Path,
    follower: Follower,
    start_within: float | None,
    note: Callable[[str], None],
) -> RunEnd:
    output = folder / OUTPUT
    words = command_in(rendered, folder)

    def note_line(line: str) -> None:
        note(f"{rendered.flavor.launcher.value:<10} {line}")

    if rendered.flavor.launcher is Launcher.KUBERNETES:
        return ClusterJob(job, output, follower, note_line).run(words, start_within)
    if SCRIPT not in rendered.files:
        return run(words, output, follower)
    # Slurm replaces patterns such as %j in the name of the output file, so escape each %.
    name = str(output.absolute()).replace("%", "%%")
    words = [*words[:-1], f"--output={name}", words[-1]]
    return SlurmBatchJob(output, follower, note_line).run(words, start_within)


def _result_of(
    job: Job,
    rendered: Rendered,
    end: RunEnd,
    follower: Follower,
    study: Path,
    output: Path,
    choice: AnyChoice | None,
) -> LaunchResult:
    """Import the output of the run into the study, and return the result with its findings."""
    findings = placement_differences(rendered.placement, follower)
    samples: list[Sample] = []
    imported = import_output(study, output, choice) if follower.rows else None
    if imported is not None:
        flags = (flag for item in imported.files for flag in item.report.flags)
        findings += [flag.sentence for flag in flags if flag.doubtful]
        samples = samples_of(study, imported)
    end = end_by_output(end, job, follower, imported)
    return LaunchResult(rendered, end, findings, follower.last_words, samples, output)

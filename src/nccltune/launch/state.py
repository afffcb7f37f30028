# SPDX-License-Identifier: Apache-2.0
"""The ways in which a run can end. The exit status may be wrong, so the output counts too."""

from enum import StrEnum
from pathlib import PurePath
from typing import NamedTuple

from nccltune.formats.importing.importer import Imported
from nccltune.formats.reading.file_report import FlagKind
from nccltune.launch.follow import Follower
from nccltune.launch.job import Job


class RunState(StrEnum):
    """How a run ended. PENDING: it did not start in time. LOST: its state is unknown."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    PENDING = "pending"
    LOST = "lost"


class RunEnd(NamedTuple):
    """The state of a run, its reason in words, and the signal if a user stopped the run."""

    state: RunState
    why: str = ""
    signal: int | None = None


def end_by_output(end: RunEnd, job: Job, follower: Follower, imported: Imported | None) -> RunEnd:
    """Return how a run ended, by the launcher's `end` and by the output.

    A status of 0 may be wrong: Open MPI 5.0.11 ends so when a node is lost, nccl-tests after an
    unknown option. Such a run failed if a node was lost, or no whole table was printed.
    """
    if end.state is RunState.FAILED and follower.lost is not None:
        return end._replace(why=f"{follower.lost}; {end.why}")
    if end.state is not RunState.DONE:
        return end
    if follower.lost is not None:
        return RunEnd(RunState.FAILED, f"{follower.lost}; yet the launcher ended with status 0")
    if imported is None:
        if "_perf" in PurePath(job.program[0]).name:
            why = "it ended well but printed no table: nccl-tests does so for an option it lacks"
            return RunEnd(RunState.FAILED, why)
    elif any(
        flag.kind is FlagKind.ABORTED for item in imported.files for flag in item.report.flags
    ):
        return RunEnd(RunState.FAILED, "it ended with status 0 in the middle of a table")
    return end

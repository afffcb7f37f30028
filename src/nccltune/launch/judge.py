# SPDX-License-Identifier: Apache-2.0
"""How a run really ended, where the launcher's status is not the whole truth."""

from pathlib import PurePath

from nccltune.formats.importing.importer import Imported
from nccltune.formats.reading.file_report import FlagKind
from nccltune.launch.follow import Follower
from nccltune.launch.job import Job
from nccltune.launch.state import End, RunState


def judged(end: End, job: Job, follower: Follower, imported: Imported | None) -> End:
    """`end` by what the run printed. Open MPI 5.0.11 ends with status 0 when a node is gone, and
    nccl-tests ends so for an option that it lacks. `imported` is None where there was no table."""
    if end.state is RunState.FAILED and follower.lost is not None:
        return end._replace(why=f"{follower.lost}; {end.why}")
    if end.state is not RunState.DONE:
        return end
    if follower.lost is not None:
        return End(RunState.FAILED, f"{follower.lost}; yet the launcher ended with status 0")
    if imported is None:
        if "_perf" in PurePath(job.program[0]).name:
            why = "it ended well but printed no table: nccl-tests does so for an option it lacks"
            return End(RunState.FAILED, why)
    elif any(
        flag.kind is FlagKind.ABORTED for item in imported.files for flag in item.report.flags
    ):
        return End(RunState.FAILED, "it ended with status 0 in the middle of a table")
    return end

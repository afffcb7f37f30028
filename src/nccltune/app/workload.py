# SPDX-License-Identifier: Apache-2.0
"""Workload: what a job sends, by communicator, operation and range of sizes."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from nccltune.workload.call import CommGroup, Operation
from nccltune.workload.parallelism import parallelism
from nccltune.workload.reading import read_workload
from nccltune.workload.table import Workload, WorkloadRow


class SizeRange(msgspec.Struct, frozen=True):
    """The calls of one operation between two sizes; all numbers are means of a step or a rank.

    - `low`, `high`: the smallest and the largest size in the range
    - `time_us`: on the GPU, with the wait for other ranks; None if no call has a time
    - `exposed_us`: the part in which the GPU ran no other kernel; None if unknown
    """

    operation: Operation
    low: int
    high: int
    calls: float
    bytes: float
    time_us: float | None
    exposed_us: float | None


class GroupUse(msgspec.Struct, frozen=True):
    """What communicators of one name and scale carry.

    `parallelism` is what their name states, such as `tensor parallel`; None if it states none.
    """

    group: CommGroup
    parallelism: str | None
    communicators: int
    ranges: list[SizeRange]


class WorkloadSummary(msgspec.Struct, frozen=True):
    """What a job sends: groups of communicators, those with the most time or bytes first.

    - `unit`: what the means are of, `a step` or `a rank`
    - `time_us`, `exposed_us`: of all calls; None if not every range has one
    - `workload`: the sums that the means are made of, at every size
    """

    unit: str
    step_us: float | None
    bytes: float
    time_us: float | None
    exposed_us: float | None
    groups: list[GroupUse]
    workload: Workload


def show_workload(paths: Sequence[Path]) -> WorkloadSummary:
    """Return what a job sends, from recordings: files, or folders of them.

    Raises InputError if a name does not exist or nothing can be read.
    """
    job = read_workload(paths)
    groups = [
        GroupUse(
            group,
            parallelism(group.name),
            communicators,
            _ranges([row for row in job.rows if row.group == group], job.units),
        )
        for group, communicators in zip(job.groups, job.communicators, strict=True)
    ]
    ranges = [item for use in groups for item in use.ranges]
    times, exposed = ([getattr(item, name) for item in ranges] for name in _TIMES)
    groups.sort(key=lambda use: [_sum(use, "time_us"), _sum(use, "bytes")], reverse=True)
    return WorkloadSummary(
        unit=job.unit,
        step_us=job.step_us,
        bytes=sum(item.bytes for item in ranges),
        time_us=None if None in times else sum(times),
        exposed_us=None if None in exposed else sum(exposed),
        groups=groups,
        workload=job,
    )


_TIMES = ("time_us", "exposed_us")


def _sum(use: GroupUse, name: str) -> float:
    return sum(getattr(item, name) or 0 for item in use.ranges)


def _ranges(rows: Sequence[WorkloadRow], units: int) -> list[SizeRange]:
    """Return sorted rows as ranges of sizes; each range ends at a power of 4."""
    found = []
    for (operation, _), same in groupby(
        rows, lambda row: (row.operation, (max(row.bytes, 1) - 1).bit_length() // 2)
    ):
        part = list(same)
        calls = sum(row.calls for row in part)
        timed, exposing = sum(row.timed for row in part), sum(row.exposing for row in part)
        found.append(
            SizeRange(
                operation,
                part[0].bytes,
                part[-1].bytes,
                calls / units,
                sum(row.bytes * row.calls for row in part) / units,
                _whole(sum(row.time_us for row in part), timed, calls, units),
                _whole(sum(row.exposed_us for row in part), exposing, calls, units),
            )
        )
    return found


def _whole(time_us: float, timed: int, calls: int, units: int) -> float | None:
    """Return the time of all calls of a unit, from that of those that have one."""
    return time_us / timed * calls / units if timed else None

# SPDX-License-Identifier: Apache-2.0
"""Workload: what a job sends, by communicator, operation and range of sizes."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from nccltune.app.job_levers import job_levers
from nccltune.model.errors import InputError
from nccltune.model.numbers import counted, percent_text
from nccltune.model.sizes import format_bytes
from nccltune.report.words import time_text
from nccltune.study.files import Study
from nccltune.tune.result import LeverWorth
from nccltune.workload.call import CommGroup, Operation
from nccltune.workload.reading import read_workload
from nccltune.workload.sampled import error, quantile_us, variance
from nccltune.workload.table import Workload, WorkloadRow

_WORDS = {
    "tensor": ("tp", "etp", "tensor"),
    "data": ("dp", "ddp", "edp", "fsdp", "efsdp", "hsdp", "data", "replicate", "shard"),
    "pipeline": ("pp", "pipe", "pipeline"),
    "expert": ("ep", "etp", "edp", "efsdp", "expert", "moe"),
    "context": ("cp", "context", "sp", "sequence"),
}


def parallelism(name: str) -> str | None:
    """Return the kinds of parallelism whose words are in `name`; None without any.

    No name is no evidence: a communicator is never guessed from the collectives that it runs.

    >>> parallelism("mesh_tp"), parallelism("TENSOR_AND_DATA_PARALLEL_GROUP")
    ('tensor parallel', 'tensor and data parallel')
    >>> parallelism("mesh_efsdp"), parallelism("EXPERT_MODEL_PARALLEL_GROUP")
    ('data and expert parallel', 'expert parallel')
    >>> parallelism("default_pg") is None
    True
    """
    words = set(re.findall(r"[a-z]+", name.lower()))
    kinds = [kind for kind, own in _WORDS.items() if words.intersection(own)]
    return f"{' and '.join(kinds)} parallel" if kinds else None


_ROWS = 12
"""Most rows of a communicator that are shown."""


class SizeRange(msgspec.Struct, frozen=True):
    """The calls of one operation between two sizes; all numbers are means of a step or a rank.

    - `low`, `high`: the smallest and the largest size in the range
    - `bytes`: a message counts half at each of its ends, its send and its receive
    - `time_us`: on the GPU, with the wait for other ranks. A call without a time takes the mean of
      its size, or does not count if no call of its size has one; None if no call has one
    - `exposed_us`: the part in which the GPU ran no kernel but NCCL's; None if unknown
    - `sampled`: the number of calls that were timed, of all ranks, if these are a random sample;
      `median_us` and `p99_us` are quantiles of their times
    """

    operation: Operation
    low: int
    high: int
    calls: float
    bytes: float
    time_us: float | None
    exposed_us: float | None
    sampled: int = 0
    median_us: float | None = None
    p99_us: float | None = None


class GroupUse(msgspec.Struct, frozen=True):
    """What communicators of one name and scale carry; `parallelism` as their name states it."""

    group: CommGroup
    parallelism: str | None
    communicators: int
    ranges: list[SizeRange]

    @property
    def title(self) -> str:
        """Return `dp · data parallel · 8 ranks · 2 communicators`. The name may be hostile."""
        group = self.group
        parts = [group.name or "unnamed", self.parallelism or ""]
        parts.append(counted(group.ranks, "rank") if group.ranks else "? ranks")
        parts.append(counted(group.nodes, "node") if group.nodes else "")
        parts.append(counted(self.communicators, "communicator") if self.communicators > 1 else "")
        return " · ".join(filter(None, parts))


class WorkloadSummary(msgspec.Struct, frozen=True):
    """What a job sends: groups of communicators, those with the most time or bytes first.

    - `unit`: what the means are of, `a step` or `a rank`
    - `time_us`, `exposed_us`: of all calls whose time is known; None if no call has one, the
      exposed time also if calls with a time lack it
    - `error_us`: half of the 95 % interval of `time_us`, if it rests on a random sample
    - `workload`: the sums that the means are made of, at every size
    - `levers`: what besides rules would pay, or has to be measured to know
    """

    unit: str
    step_us: float | None
    bytes: float
    time_us: float | None
    exposed_us: float | None
    groups: list[GroupUse]
    workload: Workload
    levers: list[LeverWorth] = []
    error_us: float | None = None

    @property
    def sent(self) -> str:
        """Return the sums as words."""
        job = self.workload
        words = f"{format_bytes(round(self.bytes))} {self.unit}"
        if self.time_us is None:
            return f"{words}; no times: shares are shares of the bytes"
        words += f"; {time_text(self.time_us)} in NCCL's kernels, waits for other ranks included"
        if self.error_us is not None:
            timed, all_ = (sum(getattr(row, n) for row in job.rows) for n in ("timed", "calls"))
            words += f" (± {time_text(self.error_us)}, 95 %, by {timed:,} of {all_:,} calls)"
        if self.step_us is not None:
            words += f", {percent_text(self.time_us / self.step_us)} of the step"
        if self.exposed_us is not None:
            words += f"; {time_text(self.exposed_us)} while no kernel but NCCL's ran"
        if job.untimed:
            calls = counted(sum(row.calls for row in job.rows), "call")
            words += f"; {job.untimed:,} of {calls} without a time"
        return words

    def share(self, item: SizeRange) -> float | None:
        """Return the share of all time in NCCL, or of all bytes if no call has a time."""
        if self.time_us:
            return None if item.time_us is None else item.time_us / self.time_us
        return item.bytes / self.bytes if self.bytes else 0.0

    def largest(self, use: GroupUse) -> list[SizeRange]:
        """Return the rows of a group to show: those with the most time or bytes."""
        rows = sorted(use.ranges, key=lambda item: self.share(item) or 0.0, reverse=True)[:_ROWS]
        return [item for item in use.ranges if item in rows]


def recorded(paths: Sequence[str]) -> Workload | None:
    """Return what recordings of a job hold; None without a path.

    Raises InputError if a name does not exist or nothing can be read.
    """
    return read_workload(map(Path, paths)) if paths else None


def show_workload(
    paths: Sequence[Path], study: Path | None = None, steps: int | None = None
) -> WorkloadSummary:
    """Return what a job sends, from recordings: files, or folders of them.

    `study` measured the send/recv library, the net plugin or other settings. `steps` is the number
    that each rank ran, for recordings that have none. Raises InputError if a
    name does not exist or nothing can be read, and StudyError for a damaged study.
    """
    job = read_workload(paths)
    if steps and not job.steps:
        job.steps = steps * job.recorders
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
    sampled = [row for row in job.rows if row.bins]
    groups.sort(key=lambda use: [_sum(use, "time_us"), _sum(use, "bytes")], reverse=True)
    return WorkloadSummary(
        unit=job.unit,
        step_us=job.step_us,
        bytes=sum(item.bytes for item in ranges),
        time_us=_known(item.time_us for item in ranges),
        exposed_us=_known(
            item.exposed_us for item in ranges if all(row.exposing == row.timed for row in job.rows)
        ),
        groups=groups,
        workload=job,
        levers=job_levers(job, None if study is None else Study.open(study)),
        error_us=error(sum(map(variance, sampled))) / job.units if sampled else None,
    )


def sent_twice(without: Path, with_rules: Path) -> tuple[str, bool]:
    """Return what two starts of a job sent, in words, and whether the job is not the same.

    The number of calls may differ, as in a job that ends after a time. Without files of the
    recorder in both folders, the words are empty.
    """
    found = []
    try:
        for folder in (without, with_rules):
            rows = read_workload([folder]).rows
            found.append({(row.group, row.operation, row.bytes): row.calls for row in rows})
    except InputError:
        return "", False
    before, after = found
    if before == after:
        return f"{counted(sum(before.values()), 'call')} in each start, the same in both", False
    if before.keys() == after.keys():
        words = f"{counted(sum(before.values()), 'call')} without the rules, "
        words += f"{sum(after.values()):,} with them, of the same sizes"
        return words, False
    key = min(before.keys() ^ after.keys())
    others = len(before.keys() ^ after.keys()) - 1
    words = f"the job is not the same in both starts: {key[1].prose} of {format_bytes(key[2])} "
    words += f"only {'without' if key in before else 'with'} the rules"
    words += f", and {counted(others, 'other size')} in one of them" if others else ""
    return words, True


def timed_twice(without: Path, with_rules: Path) -> str:
    """Return NCCL's time for the calls of the start without rules, in both starts, in words.

    Only calls of sizes that both starts timed count. Empty if there are none.
    """
    try:
        jobs = [read_workload([folder]) for folder in (without, with_rules)]
    except InputError:
        return ""
    before, after = ({(r.group, r.operation, r.bytes): r for r in job.rows} for job in jobs)
    both = [(row, after[key]) for key, row in before.items() if key in after]
    both = [pair for pair in both if all(row.bins for row in pair)]
    if not both:
        return ""
    times, errors = [], []
    for start in zip(*both, strict=True):
        scaled = [(one[0].calls / row.calls, row) for one, row in zip(both, start, strict=True)]
        times.append(sum(n * row.calls * (row.mean_us or 0.0) for n, row in scaled))
        errors.append(error(sum(n**2 * variance(row) for n, row in scaled)))
    if not all(times):
        return ""
    ratio = times[0] / times[1]
    spread = ratio * math.hypot(errors[0] / times[0], errors[1] / times[1])
    words = " and ".join(
        f"{time_text(time / jobs[0].recorders)} (± {time_text(half / jobs[0].recorders)}) {side}"
        for time, half, side in zip(times, errors, ("without the rules", "with them"), strict=True)
    )
    calls = sum(row.calls for row, _ in both)
    share = percent_text(calls / sum(row.calls for row in before.values()))
    words += f" a rank for {share} of the calls without, waits included: {ratio:.3f}x as fast"
    words += f" (95 % CI {max(ratio - spread, 0):.3f}-{ratio + spread:.3f} for these two starts"
    return words + ", in which NCCL logs each collective; other starts may differ by more)"


def _known(times: Iterable[float | None]) -> float | None:
    found = [time for time in times if time is not None]
    return sum(found) if found else None


def _sum(use: GroupUse, name: str) -> float:
    return sum(getattr(item, name) or 0 for item in use.ranges)


def _ranges(rows: Sequence[WorkloadRow], units: int) -> list[SizeRange]:
    """Return sorted rows as ranges of sizes; each range ends at a power of 4."""
    found = []
    for (operation, _), same in groupby(
        rows, lambda row: (row.operation, (max(row.bytes, 1) - 1).bit_length() // 2)
    ):
        part = list(same)
        bins = sum((Counter(row.bins) for row in part), Counter[int]())
        found.append(
            SizeRange(
                operation,
                part[0].bytes,
                part[-1].bytes,
                sum(row.calls for row in part) / units,
                sum(row.sent for row in part) / units,
                _known(_whole(row.time_us, row.timed, row.calls, units) for row in part),
                _known(
                    _whole(row.exposed_us, row.exposing, row.calls, units)
                    for row in part
                    if all(row.exposing == row.timed for row in part)
                ),
                bins.total(),
                quantile_us(bins, 0.5) if bins else None,
                quantile_us(bins, 0.99) if bins else None,
            )
        )
    return found


def _whole(time_us: float, timed: int, calls: int, units: int) -> float | None:
    return time_us / timed * calls / units if timed else None

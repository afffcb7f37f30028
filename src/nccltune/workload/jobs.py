# SPDX-License-Identifier: Apache-2.0
"""Tell the jobs apart that nccltune's recorder wrote into one folder."""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from nccltune.model.numbers import counted

_MOST = 4
"""Most jobs or files that a remark names."""


class Member(NamedTuple):
    """A rank of a communicator. With `alike` > 1 it stands for ended ones of one name and scale."""

    communicator: str
    name: str
    ranks: int
    rank: int | None
    alike: int


class RecordedProcess(NamedTuple):
    """What the file of a process states about its job; `started` in seconds since 1970.

    `is_whole` is whether no communicator was lost.
    """

    started: int
    members: list[Member]
    is_whole: bool
    has_calls: bool


class _Job:
    def __init__(self) -> None:
        self.files: list[str] = []
        self.communicators: set[str] = set()
        self.started = 0
        self.has_calls = False


def newest_job(processes: Mapping[str, RecordedProcess]) -> tuple[set[str], list[str]]:
    """Return the files of the newest job, by name, and remarks on what is in the folder.

    Files with a common communicator are of one job. An elastic restart makes new communicators, so
    it is another job.
    """
    jobs: dict[str, _Job] = {}
    for file, process in processes.items():
        names = {member.communicator for member in process.members}
        found = list({id(jobs[name]): jobs[name] for name in names if name in jobs}.values())
        job, *others = found or [_Job()]
        for other in others:
            job.files += other.files
            job.communicators |= other.communicators
            job.started = max(job.started, other.started)
            job.has_calls |= other.has_calls
            jobs |= dict.fromkeys(other.communicators, job)
        job.files.append(file)
        job.communicators |= names
        job.started = max(job.started, process.started)
        job.has_calls |= process.has_calls
        jobs |= dict.fromkeys(names, job)
    rising = sorted(
        {id(job): job for job in jobs.values()}.values(),
        key=lambda job: (job.has_calls, job.started, job.files),
    )
    if not rising:
        return set(), []
    newest = rising[-1]
    remarks = []
    if len(rising) > 1:
        remarks.append(
            f"the recorder's files are of {len(rising)} jobs (no communicator is in two of them): "
            f"{_listed([_words(job) for job in reversed(rising)])}. Only the newest that has "
            "calls is read; for another one name its files, or move them into a folder of their own"
        )
    own = {file: processes[file] for file in newest.files}
    return set(newest.files), [*remarks, *_repeated(own), *_missing(own)]


def _words(job: _Job) -> str:
    start = ""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        start = f", started {datetime.fromtimestamp(job.started, UTC):%Y-%m-%d %H:%M:%S} UTC"
    first, more = min(job.files), len(job.files) - 1
    files = first if not more else f"{first} and {counted(more, 'more file')}"
    return files + (start if job.started else "")


def _repeated(processes: Mapping[str, RecordedProcess]) -> list[str]:
    files: dict[tuple[str, int], list[str]] = defaultdict(list)
    for file, process in processes.items():
        for member in process.members:
            if member.rank is not None:
                files[member.communicator, member.rank].append(file)
    repeated = {key: names for key, names in files.items() if len(set(names)) > 1}
    if not repeated:
        return []
    (communicator, rank), names = next(iter(repeated.items()))
    more = f", and so are {len(repeated) - 1} more" if len(repeated) > 1 else ""
    return [
        f"rank {rank} of communicator {communicator} is in {len(names)} files "
        f"({_listed(names)}){more}: each file counts as a rank"
    ]


def _missing(processes: Mapping[str, RecordedProcess]) -> list[str]:
    members = [member for process in processes.values() for member in process.members]
    if not all(process.is_whole for process in processes.values()):
        return []
    # Ranks may end communicators in different orders: the one that stands for several has no
    # certain identifier.
    joined = {(member.name, member.ranks) for member in members if member.alike > 1}
    present: dict[tuple[str, int], set[int]] = defaultdict(set)
    for member in members:
        group = member.name, member.ranks
        key = group if group in joined else (member.communicator, member.ranks)
        if member.rank is not None:
            present[key].add(member.rank)
    short = {key: ranks for key, ranks in present.items() if len(ranks) < key[1]}
    if not short:
        return []
    (name, ranks), found = next(iter(short.items()))
    absent = next(rank for rank in range(ranks) if rank not in found)
    more = f", nor are all of {counted(len(short) - 1, 'other')}" if len(short) > 1 else ""
    return [
        f"{ranks - len(found)} of {ranks} ranks of communicator {name} are in no file (such as "
        f"rank {absent}){more}: means are of the ranks that recorded"
    ]


def _listed(names: Collection[str]) -> str:
    more = len(names) - _MOST
    return "; ".join([*list(names)[:_MOST], *([f"{more} more"] if more > 0 else [])])

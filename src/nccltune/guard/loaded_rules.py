# SPDX-License-Identifier: Apache-2.0
"""The tuner configuration of a process: its content, and which rules apply at which scale."""

import contextlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec

from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.tuner_config.csv_rules import MAX_BYTES, FileRule, config_hash, parse_rules
from nccltune.guard.jobs import LoggedProcess
from nccltune.model.choice import Choice
from nccltune.model.errors import InputError, NccltuneError
from nccltune.model.rule import RuleState
from nccltune.model.scale import Scale
from nccltune.model.sizes import format_bytes
from nccltune.native.processes import PROC, inside, memories, own_number
from nccltune.prove.job import job_of
from nccltune.prove.sizes import taken

NAME = "nccltune-tuner-hits"
MAGIC = b"ncclhits"
LAYOUT = 1
_HEAD = struct.Struct("=8s7Q256s")
_LARGEST = _HEAD.size + 8 * (2**16 + 1)


class RuleHits(msgspec.Struct, frozen=True):
    """Counts of a process for a file with the hash `content`: by line, and undecided calls."""

    path: str
    content: str
    calls: dict[int, int]
    undecided: int


def rule_hits(folder: Path) -> list[RuleHits]:
    """Return the counts of `/proc/PID` in this layout. Raises OSError if it may not be read."""
    found = []
    for fd in memories(folder, NAME):
        page = decode(os.pread(fd, _LARGEST, 0))
        # A forked process inherits the page of its parent.
        if page is not None and page[0] == own_number(folder):
            found.append(page[1])
    return found


def decode(data: bytes) -> tuple[int, RuleHits] | None:
    """Return the process id and counts of a page; None if it is incomplete or of no use."""
    if len(data) < _HEAD.size:
        return None
    magic, layout, size, offset, lines, pid, content, _, path = _HEAD.unpack_from(data)
    fits = offset >= _HEAD.size and offset + 8 * (lines + 1) <= size <= len(data)
    if magic != MAGIC or layout != LAYOUT or not fits:
        return None
    undecided, *counts = struct.unpack_from(f"={lines + 1}Q", data, offset)
    return pid, RuleHits(
        path=path.split(b"\0")[0].decode("utf-8", "replace"),
        content=f"{content:016x}",
        calls={line: calls for line, calls in enumerate(counts, 1) if calls},
        undecided=undecided,
    )


_SLACK_S = 1.0
"""The kernel's clock of starts is coarser than that of files."""


class RuleInUse(msgspec.Struct, frozen=True):
    """A rule of a configuration.

    `applies` is whether its scale is one of the job's, or it decided a call; None if that is
    unknown: the environment does not name the groups of a job. `calls` is how many calls of the
    process it has decided, None if the plugin does not count them. `sizes` is at how many sizes of
    NCCL's log the rule decides, and `followed` at how many of them NCCL ran its choice; None
    without a log of choices.
    """

    line: int
    rule: str
    state: RuleState | None
    applies: bool | None
    calls: int | None = None
    sizes: int | None = None
    followed: int | None = None


class LoadedConfiguration(msgspec.Struct, frozen=True):
    """The configuration that a process names: its file now, and what the plugin loaded.

    `content` is the hash of the file now. `loaded` is the hash of what the plugin counts for, and
    of what it logged, `expected` that of NCCLTUNE_CONFIG_HASH. `is_newer`: the file has changed
    since the process started. `undecided` is how many calls no rule decided, None if the plugin
    does not count them. `job` is a sentence on the proof of a job with this content.
    """

    path: str
    content: str | None
    loaded: list[str]
    expected: str | None
    is_newer: bool
    scales: list[Scale]
    scale_source: str
    rules: list[RuleInUse]
    undecided: int | None = None
    job: str | None = None
    problem: str | None = None

    @property
    def used(self) -> str | None:
        """Return the hash of what the process uses, as far as it is known."""
        return self.loaded[0] if self.loaded else None if self.is_newer else self.content


def loaded_configuration(
    folder: Path,
    place: str,
    *,
    expected: str | None,
    started: float | None,
    scale: Scale | None,
    logged: LoggedProcess | None,
    run: NcclLog | None,
    hits: Sequence[RuleHits] = (),
) -> LoadedConfiguration:
    """Return the configuration `place` of a process `/proc/PID`, as counted and logged."""
    hashes = [each.content for each in hits]
    hashes += [each.content for each in logged.loaded] if logged else []
    hashes = list(dict.fromkeys(hashes))
    scales, source = (logged.scales, "NCCL's log") if logged and logged.scales else (
        ([scale], "the environment") if scale else ([], "unknown"))  # fmt: skip
    found = LoadedConfiguration(
        place, None, hashes, expected, False, scales, source, [],
        undecided=hits[0].undecided if hits else None,
    )  # fmt: skip
    path = inside(folder, place)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        status = path.stat()
        rules = parse_rules(data, name=place).rules
    except OSError as error:
        return msgspec.structs.replace(found, problem=f"cannot be read: {error.strerror}")
    except InputError as error:
        return msgspec.structs.replace(found, problem=error.message)
    changed = max(status.st_mtime, status.st_ctime)
    content = config_hash(data)
    job = None
    with contextlib.suppress(OSError, NccltuneError):
        job = job_of(path)
    return msgspec.structs.replace(
        found,
        content=content,
        is_newer=started is not None and changed > started + _SLACK_S,
        job=None if job is None or hashes not in ([], [content]) else job.sentence,
        # Rules of another content than the loaded one are not those of the process.
        rules=[]
        if hashes and hashes != [content]
        else _in_use(rules, scales, run, hits, all_scales=bool(logged and logged.scales)),
    )


def logged_configuration(logged: LoggedProcess, run: NcclLog) -> LoadedConfiguration | None:
    """Return the configuration that a process of a log loaded, with its rules if it is here."""
    if not logged.loaded:
        return None
    found = loaded_configuration(
        PROC / "self", logged.loaded[0].path, expected=None, started=None, scale=None,
        logged=logged, run=run,
    )  # fmt: skip
    if found.content in found.loaded:
        return found
    return msgspec.structs.replace(found, content=None, rules=[], problem=None)


def _in_use(
    rules: Sequence[FileRule],
    scales: Sequence[Scale],
    run: NcclLog | None,
    hits: Sequence[RuleHits],
    *,
    all_scales: bool,
) -> list[RuleInUse]:
    counts = _decided(rules, scales, run)
    return [
        RuleInUse(
            line=item.line,
            rule=_words(item),
            state=item.state,
            applies=bool(calls) or _fits(item, scales) or (False if all_scales else None),
            calls=calls,
            sizes=counts[index][0] if counts and _is_plain(item) else None,
            followed=counts[index][1] if counts and _is_plain(item) else None,
        )
        for index, item in enumerate(rules)
        for calls in [hits[0].calls.get(item.line, 0) if hits else None]
    ]


def _fits(item: FileRule, scales: Sequence[Scale]) -> bool | None:
    nodes, ranks = item.rule.nodes, item.rule.ranks
    if nodes is None and ranks is None:
        return True
    if not scales:
        return None
    return any(nodes in (None, one.nodes) and ranks in (None, one.ranks) for one in scales)


def _decided(
    rules: Sequence[FileRule], scales: Sequence[Scale], run: NcclLog | None
) -> list[tuple[int, int]] | None:
    """Return at how many logged sizes each rule decides, and is followed.

    None with several scales: lines of choices do not name the communicator. Only plain calls count.
    """
    if run is None or not run.has_choices or len(scales) != 1:
        return None
    counts = [(0, 0)] * len(rules)
    plain = [item.rule for item in rules]
    for (collective, size), ran in run.points(scales[0].ranks).items():
        index = taken(plain, collective, size, scales[0])
        if index is None or not isinstance(ran, Choice):
            continue
        sizes, followed = counts[index]
        is_followed = ran.without_channels() == plain[index].choice.without_channels()
        counts[index] = (sizes + 1, followed + is_followed)
    return counts


def _is_plain(item: FileRule) -> bool:
    return item.rule.pipe_ops is None and item.rule.registered is None


def _words(item: FileRule) -> str:
    rule = item.rule
    ends = f"{format_bytes(rule.min_bytes)} - {format_bytes(rule.max_bytes)}"
    return f"{rule.collective.value} {ends} {rule.choice.label}"

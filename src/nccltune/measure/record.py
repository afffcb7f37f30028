# SPDX-License-Identifier: Apache-2.0
"""What a sweep leaves in its study, and what of it answers the questions of the next run.

samples.jsonl   every timing
tables.jsonl    what NCCL predicts of itself, where it says so
sweep.jsonl     every point that gave no timing, and why
sweep.json      how the last run ended

`verify` keeps its points in the same way, apart from those of the sweep: under a tool name of its
own, and in verify.jsonl.
"""

import contextlib
import fcntl
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from nccltune.measure.ask import DEFAULT_REPEATS, Key
from nccltune.measure.conversation import Hello, Point, PointError, Ran
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.errors import StudyError
from nccltune.model.sample import SCHEMA_VERSION, VERIFYING, Sample, Source
from nccltune.model.scale import Scale
from nccltune.model.study import Study

TOOL = "nccltune-bench"
REPLAY_TOOL = "nccltune-bench replay"
NOT_RUN = "not run"
"""Why a forced choice has no timing where NCCL ran something else."""
DTYPE = "float"
REDOP = "sum"
_TO_DISK_EVERY_S = 1.0
_REDUCING = frozenset({Collective.ALLREDUCE, Collective.REDUCESCATTER, Collective.REDUCE})
_ROOTED = frozenset({Collective.BROADCAST, Collective.REDUCE})


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A point without a timing. It is not tried again, so that a choice that gets stuck stops a
    sweep once and not whenever it is resumed."""

    schema_version: int = SCHEMA_VERSION
    collective: Collective
    nodes: int
    ranks: int
    bytes: int
    choice: AnyChoice
    round: int
    repeat: int
    kind: str
    text: str = ""
    rank: int | None = None
    at: str | None = None


class TableLine(msgspec.Struct, frozen=True, kw_only=True):
    """NCCL's predictions at one size, in us by `algorithm/protocol`."""

    schema_version: int = SCHEMA_VERSION
    collective: Collective
    nodes: int
    ranks: int
    bytes: int
    costs: Mapping[str, float]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. `reason` is `done`, `budget` or `interrupted`; `points` were measured by it
    and `known` taken from the study; `seconds` are those of the bench, recorded ones in a replay;
    `gain_left` is a fraction (None where the plan does not look for one)."""

    schema_version: int = SCHEMA_VERSION
    reason: str
    points: int
    known: int
    failed: int
    seconds: float
    gain_left: float | None
    replay: str | None
    command: str


class Record:
    """The study of a sweep as its memory: takes points, and says which it has.

    One record is one start of the bench: its timings name one process.
    """

    def __init__(self, study: Study, hello: Hello, *, verifying: bool = False) -> None:
        self.study = study
        self._verifying = verifying
        self._hello = hello
        self._to_disk = 0.0
        self._scale = Scale(hello.nodes, hello.ranks)
        hosts = [gpu.host_hash for gpu in hello.gpus if gpu.host_hash]
        self._source = Source(
            tool=(REPLAY_TOOL if hello.replay else TOOL) + (VERIFYING if verifying else ""),
            version=hello.version,
            nccl_version=hello.nccl.version,
            host_hash=hosts[0] if hosts else None,
            process=secrets.token_hex(8),
        )

    @property
    def failures_path(self) -> Path:
        """`sweep.jsonl` or `verify.jsonl`."""
        return self.study.path / ("verify.jsonl" if self._verifying else "sweep.jsonl")

    @property
    def summary_path(self) -> Path:
        """`sweep.json`."""
        return self.study.path / "sweep.json"

    def known(self) -> dict[Key, Point]:
        """Every point that a sweep at this scale has measured before."""
        found: dict[Key, Point] = {}
        if self.study.samples_path.exists():
            for sample in self.study.samples():
                if self._is_ours(sample):
                    key = Key(
                        sample.collective, sample.bytes, sample.choice, sample.round, sample.repeat
                    )
                    found.setdefault(key, _as_point(sample))
        for failure in self._failures():
            key = Key(
                failure.collective, failure.bytes, failure.choice, failure.round, failure.repeat
            )
            found[key] = Point(
                bytes=failure.bytes,
                choice=failure.choice,
                round=failure.round,
                repeat=failure.repeat,
                applied=failure.kind != NOT_RUN,
                error=None if failure.kind == NOT_RUN else PointError(failure.kind, failure.text),
            )
        return found

    def append(self, points: Iterable[tuple[Key, Point]]) -> None:
        """Keep points: safe from any end of this process when this returns, from one of the machine
        within a second. Raises StudyError where the disk refuses."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        samples, failures = [], []
        for key, point in points:
            if point.time_us is not None and point.error is None:
                samples.append(self._sample(key, point, at))
            if not point.ok and point.lasts:
                failures.append(self._failure(key, point, at))
        # A disk takes milliseconds to be sure, several timings' worth.
        to_disk = time.monotonic() - self._to_disk > _TO_DISK_EVERY_S
        if samples:
            self.study.append_lines(self.study.samples_path, samples, to_disk=to_disk)
        if failures:
            self.study.append_lines(self.failures_path, failures, to_disk=to_disk)
        if to_disk:
            self._to_disk = time.monotonic()

    def keep_tables(self, tables: Mapping[Collective, Mapping[int, Mapping[str, float]]]) -> None:
        """Keep NCCL's predictions by collective and size, but for those that the study has."""
        path = self.study.path / "tables.jsonl"
        had = self.study.read_lines(path, TableLine) if path.exists() else ()
        known = {(Scale(line.nodes, line.ranks), line.collective, line.bytes) for line in had}
        lines = [
            TableLine(
                collective=collective,
                nodes=self._scale.nodes,
                ranks=self._scale.ranks,
                bytes=size,
                costs=costs,
            )
            for collective, sizes in tables.items()
            for size, costs in sorted(sizes.items())
            if (self._scale, collective, size) not in known
        ]
        if lines:
            self.study.append_lines(path, lines)

    def close(self) -> None:
        """Everything kept is on disk when this returns."""
        for path in (self.study.samples_path, self.failures_path):
            if path.exists():
                self.study.append_lines(path, [])

    def write_summary(self, summary: Summary) -> None:
        """Write `sweep.json`."""
        self.study.write_json(self.summary_path, summary)

    def _failures(self) -> Iterator[Failure]:
        if not self.failures_path.exists():
            return
        for failure in self.study.read_lines(self.failures_path, Failure):
            if Scale(failure.nodes, failure.ranks) == self._scale:
                yield failure

    def _is_ours(self, sample: Sample) -> bool:
        """Whether a sample is what this sweep would measure. What was imported is not: its rounds
        are somebody else's."""
        return (
            sample.source.tool == self._source.tool
            and (sample.nodes, sample.ranks) == (self._scale.nodes, self._scale.ranks)
            and (sample.dtype, sample.redop, sample.root) == conditions(sample.collective)
            and not (sample.in_place or sample.registered or sample.graph)
        )

    def _sample(self, key: Key, point: Point, at: str) -> Sample:
        dtype, redop, root = conditions(key.collective)
        choice, repeat = key.choice, key.repeat
        ran = point.ran.choice() if point.ran else None
        if not point.applied and isinstance(choice, Choice):
            choice, repeat = _what_it_was(choice, ran), DEFAULT_REPEATS
        return Sample(
            study=self.study.name,
            collective=key.collective,
            bytes=key.bytes,
            dtype=dtype,
            redop=redop,
            root=root,
            nodes=self._scale.nodes,
            ranks=self._scale.ranks,
            choice=choice,
            ran=ran,
            round=key.round,
            repeat=repeat,
            iterations=point.iterations,
            time_us=point.time_us or 0.0,
            wrong=point.wrong,
            source=self._source,
            at=at,
        )

    def _failure(self, key: Key, point: Point, at: str) -> Failure:
        return Failure(
            collective=key.collective,
            nodes=self._scale.nodes,
            ranks=self._scale.ranks,
            bytes=key.bytes,
            choice=key.choice,
            round=key.round,
            repeat=key.repeat,
            kind=point.error.kind if point.error else NOT_RUN if not point.applied else "wrong",
            text=point.error.text if point.error else "",
            rank=point.error.rank if point.error else None,
            at=at,
        )


def conditions(collective: Collective) -> tuple[str, str | None, int | None]:
    """Data type, reduction and root that a collective is measured with."""
    return (
        DTYPE,
        REDOP if collective in _REDUCING else None,
        0 if collective in _ROOTED else None,
    )


@contextlib.contextmanager
def alone(study: Study) -> Iterator[None]:
    """Hold a study for one sweep; raises StudyError while another one runs on it."""
    path = study.path / ".sweep.lock"
    try:
        file = path.open("w")
    except OSError as error:
        raise StudyError(f"cannot be written: {error.strerror}", where=str(path)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(
                "another sweep is running on this study",
                where=str(study.path),
                hint="wait for it, or name another study with -o",
            ) from None
        yield


def _as_point(sample: Sample) -> Point:
    return Point(
        bytes=sample.bytes,
        choice=sample.choice,
        ran=msgspec.convert(sample.ran, Ran, from_attributes=True) if sample.ran else None,
        round=sample.round,
        repeat=sample.repeat,
        iterations=sample.iterations,
        time_us=sample.time_us,
        wrong=sample.wrong,
    )


def _what_it_was(choice: Choice, ran: Choice | None) -> AnyChoice:
    """What a timing is of whose forced choice NCCL did not take as it was: the same without a
    refused channel count or chunk size, else NCCL's default."""
    bare = choice.without_channels()
    if choice != bare and ran is not None and ran.without_channels() == bare:
        return bare
    return DEFAULT

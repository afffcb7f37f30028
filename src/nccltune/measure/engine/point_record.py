# SPDX-License-Identifier: Apache-2.0
"""Write the points of a sweep to its study, and read the recorded points that a run can reuse.

samples.jsonl   every timing
tables.jsonl    the times that NCCL predicts
sweep.jsonl     every point without a valid timing, and the reason

`verify` also uses this module: its samples have another purpose (`Purpose.VERIFY`), and its failed
points are in verify.jsonl.
"""

import secrets
import time
from collections.abc import Iterable, Mapping

import msgspec

from nccltune.measure.bench.conditions import CallKind, conditions
from nccltune.measure.bench.conversation import (
    DEFAULT_REPEATS,
    BenchPoint,
    ExecutedChoice,
    Hello,
    PointError,
    PointKey,
)
from nccltune.measure.engine.record import LineFile, source_of, timestamp
from nccltune.model.choice import DEFAULT, AnyChoice, Choice
from nccltune.model.collective import Collective
from nccltune.model.sample import SCHEMA_VERSION, Purpose, Sample
from nccltune.model.scale import Scale
from nccltune.study import names
from nccltune.study.files import Study

NOT_RUN = "not run"
"""The kind of failure if NCCL did not execute the forced choice but another one."""
_TO_DISK_EVERY_S = 1.0


class FailedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A point without a valid timing; it is not tried again, so a hang stops a sweep once."""

    schema_version: int = SCHEMA_VERSION
    collective: Collective
    nodes: int
    ranks: int
    bytes: int
    choice: AnyChoice
    round: int
    repeat: int
    registered: bool = False
    group_calls: int = 1
    kind: str
    text: str = ""
    rank: int | None = None
    at: str | None = None


class TableLine(msgspec.Struct, frozen=True, kw_only=True):
    """The times that NCCL predicts at one size, in us, by `algorithm/protocol`."""

    schema_version: int = SCHEMA_VERSION
    collective: Collective
    nodes: int
    ranks: int
    bytes: int
    costs: Mapping[str, float]


class PointRecord:
    """Appends the points of a sweep to its study, and returns the recorded points.

    All timings of an object have one process id, so each start of the bench needs its own.
    """

    def __init__(self, study: Study, hello: Hello, *, verifying: bool = False) -> None:
        self.study = study
        self._samples = LineFile(study, study.samples_path.name, Sample)
        self._failures = LineFile(
            study, "verify.jsonl" if verifying else "sweep.jsonl", FailedPoint
        )
        self._tables = LineFile(study, names.TABLES, TableLine)
        self._to_disk = 0.0
        self._scale = Scale(hello.nodes, hello.ranks)
        self._source = msgspec.structs.replace(
            source_of(hello),
            process=secrets.token_hex(8),
            purpose=Purpose.VERIFY if verifying else Purpose.TUNE,
        )

    def known(self) -> dict[PointKey, BenchPoint]:
        """Return every point of earlier runs with the same nodes and ranks. Raises StudyError."""
        found: dict[PointKey, BenchPoint] = {}
        for sample in self._samples.stream():
            if self._is_ours(sample):
                found.setdefault(_key(sample), _as_point(sample))
        for failure in self._failures.stream():
            if Scale(failure.nodes, failure.ranks) != self._scale:
                continue
            found[_key(failure)] = BenchPoint(
                bytes=failure.bytes,
                choice=failure.choice,
                round=failure.round,
                repeat=failure.repeat,
                applied=failure.kind != NOT_RUN,
                error=None if failure.kind == NOT_RUN else PointError(failure.kind, failure.text),
            )
        return found

    def append(self, points: Iterable[tuple[PointKey, BenchPoint]]) -> None:
        """Record points, except those whose error may not occur again. Raises StudyError.

        They then survive the end of this process, and within a second a crash of the machine.
        """
        at = timestamp()
        samples, failures = [], []
        for key, point in points:
            if point.time_us is not None and point.error is None:
                samples.append(self._sample(key, point, at))
            if not point.ok and point.is_kept:
                failures.append(self._failure(key, point, at))
        # A sync to disk takes milliseconds, which is as long as several timings.
        to_disk = time.monotonic() - self._to_disk > _TO_DISK_EVERY_S
        if samples:
            self._samples.append(samples, to_disk=to_disk)
        if failures:
            self._failures.append(failures, to_disk=to_disk)
        if to_disk:
            self._to_disk = time.monotonic()

    def keep_tables(self, tables: Mapping[Collective, Mapping[int, Mapping[str, float]]]) -> None:
        """Record the times that NCCL predicts, by size and `algorithm/protocol`, if they are
        new."""
        known = {
            (Scale(line.nodes, line.ranks), line.collective, line.bytes)
            for line in self._tables.stream()
        }
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
            self._tables.append(lines)

    def close(self) -> None:
        """Sync all recorded points to disk. Raises StudyError for a failed write."""
        for file in (self._samples, self._failures):
            if file.path.exists():
                file.append([])

    def _is_ours(self, sample: Sample) -> bool:
        """Return whether a run like this one recorded a sample; imported ones have a file hash."""
        return (
            (sample.source.tool, sample.source.purpose) == (self._source.tool, self._source.purpose)
            and sample.source.file_hash is None
            and (sample.nodes, sample.ranks) == (self._scale.nodes, self._scale.ranks)
            and (sample.dtype, sample.redop, sample.root) == conditions(sample.collective)
            and not (sample.in_place or sample.graph)
        )

    def _sample(self, key: PointKey, point: BenchPoint, at: str) -> Sample:
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
            registered=key.calls.registered,
            group_calls=key.calls.group_calls,
            pipe_ops=max(1, point.seen.pipe_ops) if point.seen else 1,
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

    def _failure(self, key: PointKey, point: BenchPoint, at: str) -> FailedPoint:
        return FailedPoint(
            collective=key.collective,
            nodes=self._scale.nodes,
            ranks=self._scale.ranks,
            bytes=key.bytes,
            choice=key.choice,
            round=key.round,
            repeat=key.repeat,
            registered=key.calls.registered,
            group_calls=key.calls.group_calls,
            kind=point.error.kind if point.error else NOT_RUN if not point.applied else "wrong",
            text=point.error.text if point.error else "",
            rank=point.error.rank if point.error else None,
            at=at,
        )


def _key(line: Sample | FailedPoint) -> PointKey:
    calls = CallKind(line.registered, line.group_calls)
    return PointKey(line.collective, line.bytes, line.choice, line.round, line.repeat, calls)


def _as_point(sample: Sample) -> BenchPoint:
    return BenchPoint(
        bytes=sample.bytes,
        choice=sample.choice,
        ran=msgspec.convert(sample.ran, ExecutedChoice, from_attributes=True)
        if sample.ran
        else None,
        round=sample.round,
        repeat=sample.repeat,
        iterations=sample.iterations,
        time_us=sample.time_us,
        wrong=sample.wrong,
    )


def _what_it_was(choice: Choice, ran: Choice | None) -> AnyChoice:
    """Return what to record where NCCL did not apply `choice`: a part of it, or the default."""
    bare = choice.without_channels()
    if choice != bare and ran is not None and ran.without_channels() == bare:
        return bare
    return DEFAULT

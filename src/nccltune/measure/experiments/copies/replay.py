# SPDX-License-Identifier: Apache-2.0
"""Replay recorded processes instead of measuring on GPUs.

For each process that the comparison starts, one of the recorded processes with the same carrier is
drawn at random. Each timing is drawn from that process's timings of the same size.
"""

import contextlib
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from nccltune.measure.bench.conversation import (
    SCHEMA_VERSION,
    Abilities,
    BenchGpu,
    BenchPoint,
    Hello,
    Measure,
    Nccl,
    PointError,
)
from nccltune.measure.experiments.copies.processes import BenchProcess, Starter
from nccltune.measure.experiments.copies.record import (
    ProcessLine,
    ProcessRecord,
    ProcessSample,
    RecordKind,
)
from nccltune.measure.experiments.copies.settings import Carrier
from nccltune.model.collective import Collective
from nccltune.model.errors import LaunchError, StudyError
from nccltune.study.files import Study


class _Replayed:
    def __init__(
        self, hello: Hello, run: ProcessLine, times: dict[int, list[ProcessSample]], seed: str
    ) -> None:
        self.hello = hello
        self._run = run
        self._times = times
        self._seed = seed

    @property
    def recorded_s(self) -> float | None:
        return self._run.seconds

    @property
    def carried(self) -> dict[str, int] | None:
        return self._run.carried

    def measure(self, request: Measure) -> Iterator[list[BenchPoint]]:
        """Yield a drawn timing for each size, or the error `unsupported`."""
        yield [self._draw(request, size) for size in request.bytes]

    def _draw(self, request: Measure, size: int) -> BenchPoint:
        recorded = self._times.get(size)
        if not recorded:
            error = PointError("unsupported", "this size was not recorded")
            return BenchPoint(bytes=size, round=request.first_round, error=error)
        name = f"{self._seed} {request.collective} {size} {request.first_round}"
        sample = random.Random(name).choice(recorded)  # noqa: S311 - a draw, not a secret
        return BenchPoint(
            bytes=size,
            round=request.first_round,
            time_us=sample.time_us,
            load_us=sample.load_slower,
            load_alone_us=None if sample.load_slower is None else 1.0,
            iterations=sample.iterations,
            wrong=sample.wrong,
        )


def replay(recording: Path, seed: int, kept: RecordKind) -> Starter:
    """Return a starter of processes drawn from the study `recording`. Raises StudyError.

    The starter raises LaunchError for a carrier that was not recorded.
    """
    study = Study.open(recording)
    runs = ProcessRecord(study, kept)
    samples = runs.samples.read()
    lines = [line for line in runs.lines.read() if line.error is None]
    if not samples or not lines:
        raise StudyError(
            f"holds no recorded {kept.what}",
            where=str(recording),
            hint=f"record one on a machine with GPUs: nccltune {kept.verb} -o STUDY",
        )
    times: dict[int, dict[int, list[ProcessSample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if sample.time_us is not None:
            times[sample.process][sample.bytes].append(sample)
    hello = _hello(study, samples)

    @contextlib.contextmanager
    def start(carrier: Carrier, process: int) -> Iterator[BenchProcess]:
        found = [line for line in lines if line.carrier is carrier and line.process in times]
        if not found:
            raise LaunchError(f"{carrier} was not recorded")
        name = f"{seed} {process}"
        line = random.Random(name).choice(found)  # noqa: S311 - a draw, not a secret
        yield _Replayed(hello, line, times[line.process], name)

    return start


def _hello(study: Study, samples: list[ProcessSample]) -> Hello:
    first = samples[0]
    platform = study.platform()
    collectives = {sample.collective for sample in samples}
    return Hello(
        schema_version=SCHEMA_VERSION,
        version=first.source.version or "unknown",
        backend="replay",
        replay=study.name,
        nccl=Nccl(version=first.source.nccl_version, came_from="recording"),
        nodes=first.nodes,
        ranks=first.ranks,
        gpus=[BenchGpu(rank, platform.gpu) for rank in range(first.ranks)],
        can=Abilities(
            collectives=[item.value for item in Collective if item in collectives],
            load=any(sample.load is not None for sample in samples),
        ),
    )

# SPDX-License-Identifier: Apache-2.0
"""Recorded processes instead of GPUs: a process is one of those recorded with its settings, and
each of its timings is drawn from those that one made of the same call."""

import contextlib
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from nccltune.measure.conversation import (
    SCHEMA_VERSION,
    Abilities,
    Gpu,
    Hello,
    Measure,
    Nccl,
    Point,
    PointError,
)
from nccltune.measure.p2p.effective import Effective
from nccltune.measure.p2p.runs import P2P, Kept, P2pRun, P2pSample, Runs
from nccltune.measure.p2p.session import Process, Starter
from nccltune.measure.p2p.settings import Settings
from nccltune.measure.p2p.workload import Call
from nccltune.model.collective import Collective
from nccltune.model.errors import LaunchError, StudyError
from nccltune.model.study import Study


class _Replayed:
    """One recorded process."""

    def __init__(
        self, hello: Hello, run: P2pRun, times: dict[Call, list[P2pSample]], seed: str
    ) -> None:
        self.hello = hello
        self._run = run
        self._times = times
        self._seed = seed

    @property
    def recorded_s(self) -> float | None:
        """What it took when it was recorded."""
        return self._run.seconds

    @property
    def carried(self) -> dict[str, int] | None:
        """What was counted when it was recorded."""
        return self._run.carried

    def effective(self) -> Effective | None:
        """What NCCL made of the settings."""
        return self._run.effective

    def measure(self, request: Measure) -> Iterator[list[Point]]:
        """Draw a timing of every call; a call that was not recorded is unsupported."""
        yield [self._draw(request, size) for size in request.bytes]

    def _draw(self, request: Measure, size: int) -> Point:
        recorded = self._times.get((request.collective, size))
        if not recorded:
            error = PointError("unsupported", "this size was not recorded")
            return Point(bytes=size, round=request.first_round, error=error)
        name = f"{self._seed} {request.collective} {size} {request.first_round}"
        sample = random.Random(name).choice(recorded)  # noqa: S311 - a draw, not a secret
        return Point(
            bytes=size,
            round=request.first_round,
            time_us=sample.time_us,
            load_us=sample.load_slower,
            load_alone_us=None if sample.load_slower is None else 1.0,
            traffic_us=sample.traffic_us,
            traffic_alone_us=sample.traffic_alone_us,
            iterations=sample.iterations,
            wrong=sample.wrong,
        )


def replay(recording: Path, seed: int, kept: Kept = P2P) -> Starter:
    """A starter that draws from the processes recorded in a study; raises StudyError where it holds
    none of that kind. Settings that were not recorded cannot be started."""
    study = Study.open(recording)
    runs = Runs(study, kept)
    samples = runs.samples()
    lines = [line for line in runs.lines() if line.error is None]
    if not samples or not lines:
        raise StudyError(
            f"holds no recorded {kept.what}",
            where=str(recording),
            hint=f"record one on a machine with GPUs: nccltune sweep {kept.option} -o STUDY",
        )
    times: dict[int, dict[Call, list[P2pSample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if sample.time_us is not None:
            times[sample.process][sample.collective, sample.bytes].append(sample)
    recorded: dict[Settings, list[P2pRun]] = defaultdict(list)
    for line in lines:
        recorded[Settings.of(line.settings)].append(line)
    hello = _hello(study, samples)

    @contextlib.contextmanager
    def start(settings: Settings, process: int) -> Iterator[Process]:
        found = [line for line in recorded[settings] if line.process in times]
        if not found:
            raise LaunchError(f"{settings.label} was not recorded")
        name = f"{seed} {process}"
        line = random.Random(name).choice(found)  # noqa: S311 - a draw, not a secret
        yield _Replayed(hello, line, times[line.process], name)

    return start


def _hello(study: Study, samples: list[P2pSample]) -> Hello:
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
        gpus=[Gpu(rank, platform.gpu) for rank in range(first.ranks)],
        can=Abilities(
            collectives=[item.value for item in Collective if item in collectives],
            load=any(sample.load is not None for sample in samples),
            traffic=any(sample.traffic is not None for sample in samples),
        ),
    )

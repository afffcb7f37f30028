# SPDX-License-Identifier: Apache-2.0
"""A simulated machine on which settings of send/recv matter."""

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from nccltune.measure.bench.conversation import Abilities, BenchPoint, Hello, Measure, PointError
from nccltune.measure.engine.process_record import ProcessRecord
from nccltune.measure.engine.scheduler import ExperimentStatus
from nccltune.measure.engine.settings import DEFAULT, Effective, Settings
from nccltune.measure.engine.settings_experiment import BenchProcess
from nccltune.measure.experiments.p2p.settings import BUFFER, CHUNK, MIN_CHANNELS
from nccltune.model.collective import Collective
from nccltune.model.errors import LaunchError
from tests.unit.measure.fakes import hello

K, M = 1 << 10, 1 << 20
Driven = TypeVar("Driven")
Model = Callable[[Settings, Collective, int], float]
"""The true time in us of a call."""


def four_gpus(settings: Settings, collective: Collective, size: int) -> float:
    """Return times like those of 4 H200: more channels help from 4 MiB to 128 MiB, a smaller chunk
    helps a little more, and a small buffer slows all-reduce down."""
    values = settings.numbers
    time_us = 8 + size / 150e3
    if collective is not Collective.ALLREDUCE and 4 * M <= size <= 128 * M:
        channels = values.get(MIN_CHANNELS, 32)
        time_us /= {64: 1.5}.get(channels, 1.0)
        if values.get(CHUNK) == 256 * K:
            time_us /= 1.15
    if collective is Collective.ALLREDUCE and values.get(BUFFER, 4 * M) < 4 * M:
        time_us *= 1.2
    return time_us


def nothing_matters(settings: Settings, collective: Collective, size: int) -> float:
    return 8 + size / 150e3


@dataclass
class Machine:
    """Starts processes that time calls by `model`.

    There is noise from call to call and from process to process (`luck`), and a slow drift.
    `before` is called with the number of the timing.
    """

    model: Model = four_gpus
    noise: float = 0.003
    luck: float = 0.004
    drift: float = 0.0
    seed: int = 0
    channels: int | None = 32
    refused: Callable[[Settings], bool] = lambda _: False
    wrong: Callable[[Settings], bool] = lambda _: False
    too_large: int = 1 << 40
    before: Callable[[int], None] = lambda _: None
    nodes: int = 1
    started: list[Settings] = field(default_factory=list)
    measured: int = 0

    @property
    def hello(self) -> Hello:
        collectives = ["allreduce", "sendrecv", "alltoall"]
        can = Abilities(collectives=collectives)
        return hello(nodes=self.nodes, can=can)

    @contextlib.contextmanager
    def start(self, settings: Settings, process: int) -> Iterator[BenchProcess]:
        self.started.append(settings)
        if self.refused(settings):
            raise LaunchError("NCCL: unhandled system error")
        yield _Running(self, settings, process)

    def first(self) -> BenchProcess:
        """Return the default process that an experiment gets."""
        return _Running(self, DEFAULT, 0)


class _Running:
    recorded_s = None
    carried = None

    def __init__(self, machine: Machine, settings: Settings, process: int) -> None:
        self.machine = machine
        self.hello = machine.hello
        self._settings = settings
        self._process: int | None = process

    def effective(self) -> Effective | None:
        if self.machine.channels is None:
            return None
        channels = max(self.machine.channels, self._settings.numbers.get(MIN_CHANNELS, 1))
        return Effective(24, channels, channels, self._settings.numbers.get(CHUNK, 512 * K))

    def measure(self, request: Measure) -> Iterator[list[BenchPoint]]:
        """Yield all available points at a time, as the real bench does, also those that arrived
        before an error."""
        points: list[BenchPoint] = []
        try:
            points.extend(self._point(request, size) for size in request.bytes)
        finally:
            yield points

    def _point(self, request: Measure, size: int) -> BenchPoint:
        machine = self.machine
        machine.before(machine.measured)
        machine.measured += 1
        if size > machine.too_large:
            return BenchPoint(bytes=size, round=request.first_round, error=PointError("memory"))
        exact = machine.model(self._settings, request.collective, size)
        luck = random.Random(f"{machine.seed} {self._settings.label} {len(machine.started)}")
        now = random.Random(f"{machine.seed} {machine.measured}")
        factor = luck.gauss(0, machine.luck) + now.gauss(0, machine.noise)
        factor += machine.drift * len(machine.started)
        return BenchPoint(
            bytes=size,
            round=request.first_round,
            iterations=request.iterations,
            time_us=exact * math.exp(factor),
            wrong=(7 if machine.wrong(self._settings) else 0) if request.check else None,
        )


class StopError(Exception):
    pass


def stop_at(number: int) -> Callable[[int], None]:
    """Return a `before` of a machine that ends the run at a number of timings."""

    def stop(now: int) -> None:
        if now == number:
            raise StopError

    return stop


def driver(
    kind: Callable[..., Driven],
    record: ProcessRecord,
    machine: Machine,
    wanted: object,
    seen: list[ExperimentStatus] | None = None,
) -> Driven:
    """Return an experiment on a machine, a second of whose clock passes at each look."""
    clock = iter(range(100_000))
    on_status = seen.append if seen is not None else lambda _: None
    return kind(machine.start, machine.first(), record, wanted, on_status, now=lambda: next(clock))

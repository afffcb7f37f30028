# SPDX-License-Identifier: Apache-2.0
"""A simulated machine on which NCCL or a copy engine is faster, by size."""

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from nccltune.measure.bench.conversation import Abilities, BenchPoint, Hello, Measure, PointError
from nccltune.measure.engine.scheduler import ExperimentStatus
from nccltune.measure.experiments.copies.processes import BenchProcess
from nccltune.measure.experiments.copies.record import ProcessRecord
from nccltune.measure.experiments.copies.settings import Carrier
from nccltune.model.errors import LaunchError
from tests.unit.measure.fakes import hello

K, M = 1 << 10, 1 << 20
Driven = TypeVar("Driven")
Model = Callable[[Carrier, int], float]
"""The true time in us of a message of this size."""


def nothing_matters(carrier: Carrier, size: int) -> float:
    return 8 + size / 150e3


@dataclass
class Machine:
    """Starts processes that time calls by `model`.

    There is noise from call to call and from process to process (`luck`), and a slow drift.
    `before` is called with the number of the timing.
    """

    model: Model = nothing_matters
    noise: float = 0.003
    luck: float = 0.004
    drift: float = 0.0
    seed: int = 0
    refused: Callable[[Carrier], bool] = lambda _: False
    wrong: Callable[[Carrier], bool] = lambda _: False
    too_large: int = 1 << 40
    before: Callable[[int], None] = lambda _: None
    nodes: int = 1
    started: list[Carrier] = field(default_factory=list)
    measured: int = 0

    @property
    def hello(self) -> Hello:
        return hello(nodes=self.nodes, can=Abilities(collectives=["allreduce", "sendrecv"]))

    @contextlib.contextmanager
    def start(self, carrier: Carrier, process: int) -> Iterator[BenchProcess]:  # noqa: ARG002
        self.started.append(carrier)
        if self.refused(carrier):
            raise LaunchError("NCCL: unhandled system error")
        yield _Running(self, carrier)

    def first(self) -> BenchProcess:
        """Return the default process that an experiment gets."""
        return _Running(self, Carrier.NATIVE)


class _Running:
    recorded_s = None
    carried = None

    def __init__(self, machine: Machine, carrier: Carrier) -> None:
        self.machine = machine
        self.hello = machine.hello
        self._carrier = carrier

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
        exact = machine.model(self._carrier, size)
        luck = random.Random(f"{machine.seed} {self._carrier} {len(machine.started)}")
        now = random.Random(f"{machine.seed} {machine.measured}")
        factor = luck.gauss(0, machine.luck) + now.gauss(0, machine.noise)
        factor += machine.drift * len(machine.started)
        return BenchPoint(
            bytes=size,
            round=request.first_round,
            iterations=request.iterations,
            time_us=exact * math.exp(factor),
            wrong=(7 if machine.wrong(self._carrier) else 0) if request.check else None,
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

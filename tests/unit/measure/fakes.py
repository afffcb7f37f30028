# SPDX-License-Identifier: Apache-2.0
"""A bench inside this process, to test what a sweep does with its answers."""

from collections import deque
from collections.abc import Callable, Iterator

from nccltune.measure.bench.conversation import (
    Abilities,
    BenchGpu,
    BenchPoint,
    Hello,
    Measure,
    Nccl,
    PointError,
    TableRequest,
    TableRow,
    TunerInputs,
)
from nccltune.model.choice import DEFAULT, AnyChoice

Times = Callable[[int, AnyChoice], float | None]


def hello(**changes: object) -> Hello:
    settings: dict[str, object] = {
        "schema_version": 1,
        "version": "0.1.0",
        "backend": "nccl",
        "nccl": Nccl("2.28.9"),
        "driver": "13.0",
        "nodes": 4,
        "ranks": 4,
        "gpus": [BenchGpu(rank, "NVIDIA H200", "abc") for rank in range(4)],
        "can": Abilities(
            collectives=["allreduce", "allgather", "reducescatter"],
            registered=True,
            group_calls=True,
        ),
        **changes,
    }
    return Hello(**settings)  # type: ignore[arg-type]


class FakeBench:
    """Answers requests with `times`, a little longer in each round.

    `before` is called before each point with the number of points so far, and may raise.
    """

    def __init__(
        self,
        times: Times,
        *,
        hello_: Hello | None = None,
        labels: tuple[str, ...] = ("ring/ll", "tree/ll"),
        before: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.hello = hello_ or hello()
        self.requests: list[Measure] = []
        self._asked: deque[Iterator[BenchPoint]] = deque()
        self.points = 0
        self._times = times
        self._labels = labels
        self._before = before

    def tables(self, request: TableRequest) -> list[TableRow]:
        seen = self._seen(request)
        return [TableRow(size, dict.fromkeys(self._labels), seen=seen) for size in request.bytes]

    @staticmethod
    def _seen(request: TableRequest | Measure) -> TunerInputs:
        """What NCCL's tuner gets, with 24 channels."""
        return TunerInputs(-(-request.group_calls // 24), request.registered)

    def ask(self, request: Measure) -> None:
        self.requests.append(request)
        self._asked.append(self._points(request))

    def answer(self) -> tuple[list[BenchPoint], bool]:
        point = next(self._asked[0], None)
        if point is not None:
            return [point], False
        self._asked.popleft()
        return [], True

    def _points(self, request: Measure) -> Iterator[BenchPoint]:
        for size in request.bytes:
            for choice in request.choices:
                for repeat in range(request.default_repeats if choice == DEFAULT else 1):
                    self._before(self.points)
                    self.points += 1
                    yield self._point(request, size, choice, repeat)

    def _point(self, request: Measure, size: int, choice: AnyChoice, repeat: int) -> BenchPoint:
        time_us = self._times(size, choice)
        error = PointError("unsupported", "not here") if time_us is None else None
        if time_us is not None:
            time_us *= 1 + 0.001 * request.first_round + 0.0005 * repeat
        return BenchPoint(
            bytes=size,
            choice=choice,
            seen=None if error else self._seen(request),
            round=request.first_round,
            repeat=repeat,
            iterations=request.iterations,
            time_us=time_us,
            wrong=0 if request.check and not error else None,
            error=error,
        )

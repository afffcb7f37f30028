# SPDX-License-Identifier: Apache-2.0
"""Run the processes of a trial with our own bench: collectives by size, with NCCL's default
choice."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from nccltune.analyze.stats import median
from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.bench.conditions import TOOL, conditions
from nccltune.measure.bench.conversation import BenchPoint, Hello
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.workload import Call, Workload
from nccltune.measure.experiments.ab.experiment import ProcessResult
from nccltune.measure.experiments.ab.facts import logs_of_start, read_facts
from nccltune.measure.experiments.ab.settings import LIBRARY, SettingChanges
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, PlatformError
from nccltune.model.sample import Sample, Source

FACTOR = 4
"""Ratio of each size to the one before: effects of settings change smoothly."""


class BenchRunner:
    """Runs the bench with the options in `launch`; it times `collectives` from `low` to `high`.

    `tried` are searched for in NCCL's log. Raises InputError if a setting is to be unset: the bench
    can only set variables.
    """

    def __init__(
        self,
        launch: Launch,
        collectives: Sequence[Collective],
        low: int,
        high: int,
        tried: SettingChanges,
        *,
        program: Sequence[str] | None = None,
    ) -> None:
        taken = [name for name, value in tried.items() if value is None]
        if taken:
            raise InputError(
                f"{taken[0]} cannot be unset for our bench",
                where="‹unset›",
                hint="name a program of nccl-tests: nccltune ab --unset ... -- all_reduce_perf",
            )
        self.launch = launch
        self._collectives = tuple(collectives)
        self._low, self._high = low, high
        self._tried = tried
        self._program = program
        self._known_us: dict[Call, float] = {}

    def run(
        self,
        settings: SettingChanges,
        number: int,
        keep: Callable[[Iterable[Sample]], None],
        *,
        choices: bool = False,  # noqa: ARG002 - the bench always has them
    ) -> ProcessResult:
        """Run one process; the times of the first decide how many calls make a timing.

        Raises the errors of `Bench`, and PlatformError for a collective that it cannot measure.
        """
        times: dict[Call, list[float]] = {}
        error: str | None = None
        with logs_of_start(self.launch.with_launcher) as logs:
            plain = {key: value for key, value in settings.items() if value is not None}
            library = plain.pop(LIBRARY, None)
            launch = self.launch._replace(nccl=Path(library)) if library else self.launch
            with Bench(launch, program=self._program, settings=plain | logs.settings) as bench:
                hello = bench.hello
                for request in self._workload(hello).requests(self._known_us, number):
                    for points in bench.measure(request):
                        samples = list(_samples(points, request.collective, hello))
                        keep(samples)
                        for sample in samples:
                            call = (sample.collective, sample.bytes)
                            times.setdefault(call, []).append(sample.time_us)
                        error = error or _error(points, request.collective)
            logs.fetch()
            facts = read_facts(logs.folder, self._tried)
        if not self._known_us:
            self._known_us = {call: median(values) for call, values in times.items()}
        return ProcessResult(hello, facts, error)

    def _workload(self, hello: Hello) -> Workload:
        missing = [item.value for item in self._collectives if item.value not in _able(hello)]
        if missing:
            raise PlatformError(f"the bench cannot measure {', '.join(missing)} here")
        return Workload(
            {
                item: Grid(item, hello.ranks, self._low, self._high).every(FACTOR)
                for item in self._collectives
            }
        )


def _able(hello: Hello) -> list[str]:
    return hello.can.collectives or [item.value for item in Collective]


def _error(points: Sequence[BenchPoint], collective: Collective) -> str | None:
    for point in points:
        if point.wrong:
            return (
                f"gave wrong results: {point.wrong} elements of {collective.prose} at "
                f"{point.bytes} bytes"
            )
        if point.error is not None:
            return f"failed at {point.bytes} bytes of {collective.prose}: {point.error.text}"
    return None


def _samples(
    points: Iterable[BenchPoint], collective: Collective, hello: Hello
) -> Iterator[Sample]:
    dtype, redop, root = conditions(collective)
    hosts = [gpu.host_hash for gpu in hello.gpus if gpu.host_hash]
    for point in points:
        if point.time_us is None or point.error is not None:
            continue
        yield Sample(
            study="",
            collective=collective,
            bytes=point.bytes,
            dtype=dtype,
            redop=redop,
            root=root,
            nodes=hello.nodes,
            ranks=hello.ranks,
            choice=DEFAULT,
            ran=point.ran.choice() if point.ran else None,
            repeat=point.round,
            iterations=point.iterations,
            time_us=point.time_us,
            wrong=point.wrong,
            source=Source(
                tool=TOOL,
                version=hello.version,
                nccl_version=hello.nccl.version,
                host_hash=hosts[0] if hosts else None,
            ),
        )

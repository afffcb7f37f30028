# SPDX-License-Identifier: Apache-2.0
"""Run the processes of a trial with our own bench: collectives by size, with NCCL's default
choice."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from nccltune.analyze.stats import median
from nccltune.measure.adaptive.grid import Grid
from nccltune.measure.bench.conditions import PLAIN, TOOL, CallKind, conditions
from nccltune.measure.bench.conversation import BenchPoint, Hello, Measure
from nccltune.measure.bench.identity import dump_settings
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

    Every process makes all kinds of `calls`, one after the other.
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
        calls: Sequence[CallKind] = (PLAIN,),
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
        self._calls = calls
        self.hardware: Path | None = None
        """Where NCCL writes the topology, if anywhere."""
        self._known_us: dict[CallKind, dict[Call, float]] = {}

    def run(
        self,
        settings: SettingChanges,
        number: int,
        keep: Callable[[Iterable[Sample]], None],
        *,
        choices: bool = False,
    ) -> ProcessResult:
        """Run one process; the times of the first decide how many calls make a timing.

        The bench always has the choices; with `choices` NCCL also writes `hardware`.
        Raises the errors of `Bench`, and PlatformError for a collective that it cannot measure.
        """
        times: dict[CallKind, dict[Call, list[float]]] = {kind: {} for kind in self._calls}
        error: str | None = None
        with logs_of_start(self.launch.with_launcher) as logs:
            plain = {key: value for key, value in settings.items() if value is not None}
            library = plain.pop(LIBRARY, None)
            launch = self.launch._replace(nccl=Path(library)) if library else self.launch
            plain |= {**logs.settings, **dump_settings(self.hardware if choices else None)}
            with Bench(launch, program=self._program, settings=plain) as bench:
                hello = bench.hello
                for kind, request in self._requests(hello, number):
                    for points in bench.measure(request):
                        samples = list(_samples(points, request, hello))
                        keep(samples)
                        for sample in samples:
                            call = (sample.collective, sample.bytes)
                            times[kind].setdefault(call, []).append(sample.time_us)
                        error = error or _error(points, request.collective, kind)
            logs.fetch()
            facts = read_facts(logs.folder, self._tried)
        if not self._known_us:
            self._known_us = {
                kind: {call: median(values) for call, values in found.items()}
                for kind, found in times.items()
            }
        return ProcessResult(hello, facts, error)

    def _requests(self, hello: Hello, number: int) -> Iterator[tuple[CallKind, Measure]]:
        able = hello.can.collectives or list(Collective)
        missing = [item.value for item in self._collectives if item.value not in able]
        for kind in self._calls:
            if hello.can.registered < kind.registered or hello.can.graph < kind.graph:
                missing.append(f"calls ({kind.title})")
        if missing:
            raise PlatformError(f"the bench cannot measure {', '.join(missing)} here")
        sizes = {
            item: Grid(item, hello.ranks, self._low, self._high).every(FACTOR)
            for item in self._collectives
        }
        for kind in self._calls:
            known = self._known_us.get(kind, {})
            for request in Workload(sizes, kind=kind).requests(known, number):
                yield kind, request


def _error(points: Sequence[BenchPoint], collective: Collective, kind: CallKind) -> str | None:
    what = f"{collective.prose} ({kind.title})" if kind.title else collective.prose
    for point in points:
        if point.wrong:
            return f"gave wrong results: {point.wrong} elements of {what} at {point.bytes} bytes"
        if point.error is not None:
            return f"failed at {point.bytes} bytes of {what}: {point.error.text}"
    return None


def _samples(points: Iterable[BenchPoint], request: Measure, hello: Hello) -> Iterator[Sample]:
    collective = request.collective
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
            registered=request.registered,
            graph=request.graph,
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

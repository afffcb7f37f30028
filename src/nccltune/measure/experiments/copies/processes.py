# SPDX-License-Identifier: Apache-2.0
"""Start the processes of a comparison, or take them from an earlier session, and record them.

They run on GPUs, with the library preloaded but for NCCL alone, or are drawn from a recording.
"""

import contextlib
import os
import random
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

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
from nccltune.measure.bench.process import Bench, Launch
from nccltune.measure.engine.scheduler import ProcessTimes
from nccltune.measure.engine.workload import Workload
from nccltune.measure.experiments.copies.record import (
    COMPUTE,
    ProcessLine,
    ProcessRecord,
    ProcessRun,
    ProcessSample,
    RecordKind,
    as_run,
    sample_of,
)
from nccltune.measure.experiments.copies.settings import (
    CONNECTIONS,
    ENOUGH_CONNECTIONS,
    ON,
    Carrier,
)
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, PlatformError, StudyError
from nccltune.study.files import Study


class BenchProcess(Protocol):
    """A running bench whose processes have the carrier to measure."""

    @property
    def hello(self) -> Hello:
        """Return the first answer of the bench."""

    @property
    def recorded_s(self) -> float | None:
        """Return how long the recorded process took, in seconds; None if this is no replay."""

    @property
    def carried(self) -> Mapping[str, int] | None:
        """Return the messages by carrier, after the end; None without the send/recv library."""

    def measure(self, request: Measure) -> Iterator[list[BenchPoint]]:
        """Yield the points of a request as they arrive, like `Bench.measure`."""


Starter = Callable[[Carrier, int], AbstractContextManager[BenchProcess]]
"""Starts a bench with the given carrier. The number is that of the process in the study."""


class CopyProcesses:
    """The processes of one study, of which `first` runs already, with NCCL alone.

    What failed in an earlier session is tried again. Raises StudyError for a damaged study.
    """

    def __init__(
        self,
        start: Starter,
        first: BenchProcess,
        files: ProcessRecord,
        workload: Workload,
        *,
        seed: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hello = first.hello
        self.known = 0
        """The number of processes taken from earlier sessions."""
        self._start = start
        self._first: BenchProcess | None = first
        self._files = files
        self._seed = seed
        self._now = now
        before = files.finished()
        self._recorded: dict[Carrier, list[ProcessRun]] = defaultdict(list)
        for run in before:
            if not run.line.probe and run.error is None:
                self._recorded[run.carrier].append(run)
        self._session = max((run.line.session for run in before), default=0) + 1
        self._next = files.next_process()
        self.times = ProcessTimes([run.line.seconds for run in before])
        self.probe = next((run for run in before if run.line.probe and run.error is None), None)
        """The first process, which shows how long each call takes and is not compared."""
        self._workload = workload
        if self.probe is not None:
            self._keep_measured(self.probe)

    @property
    def sizes(self) -> list[int]:
        """Return the message sizes that can be measured."""
        return list(self._workload.sizes[Collective.SENDRECV])

    def measure_probe(self) -> None:
        """Run the probe. Raises LaunchError if no size could be measured."""
        run = self.measure(Carrier.NATIVE, probe=True)
        self._keep_measured(run)
        if not self.sizes:
            raise LaunchError("no size of send/recv could be measured", hint="try smaller ‹sizes›")
        self.probe = run

    def recorded(self, carrier: Carrier) -> list[ProcessRun]:
        """Return a list that ends with the next recorded process with this carrier, if any.

        Before one with copy engines come those with NCCL alone that no pair requested: each was the
        first of a session (see `to_measure`).
        """
        left = self._recorded[carrier]
        if not left:
            return []
        run = left.pop(0)
        found = []
        while carrier is not Carrier.NATIVE and (natives := self._recorded[Carrier.NATIVE]):
            if natives[0].line.process > run.line.process:
                break
            found.append(natives.pop(0))
        found.append(run)
        self.known += len(found)
        return found

    def to_measure(self, carrier: Carrier) -> list[Carrier]:
        """Return the processes to start when `carrier` is next.

        Processes of different sessions are not compared, so each session begins with NCCL alone.
        """
        first = carrier is not Carrier.NATIVE and self._first is not None
        return [Carrier.NATIVE, carrier] if first else [carrier]

    def measure(self, carrier: Carrier, *, probe: bool = False) -> ProcessRun:
        """Run one process to its end, record it and return it with its results.

        If copy engines fail, nothing is raised; the returned process has the error.

        Raises LaunchError, PlatformError or InputError if NCCL alone does not run, LaunchError if
        it gives wrong results, StudyError for a failed write.
        """
        process, self._next = self._next, self._next + 1
        began = self._now()
        samples: list[ProcessSample] = []
        carried: Mapping[str, int] | None = None
        error: str | None = None
        recorded_s: float | None = None
        try:
            with self._started(carrier, process) as bench:
                recorded_s = bench.recorded_s
                self._measure_calls(bench, carrier, process, samples)
            carried = bench.carried
        except (LaunchError, PlatformError, InputError) as failure:
            if carrier is Carrier.NATIVE:
                raise
            error = failure.message
        seconds = self._now() - began if recorded_s is None else recorded_s
        self.times.add(seconds)
        line = ProcessLine(
            process=process,
            session=self._session,
            settings=carrier.settings,
            load=COMPUTE if self._workload.load else None,
            probe=probe,
            carried=dict(carried) if carried is not None else None,
            seconds=seconds,
            error=error,
        )
        self._files.lines.append([line])
        run = as_run(line, carrier, samples)
        if carrier is Carrier.NATIVE and run.error is not None:
            raise LaunchError(
                f"with default settings {run.error}",
                hint="fix this first: such timings are invalid",
            )
        return run

    def _keep_measured(self, probe: ProcessRun) -> None:
        self._workload = self._workload.only(_by_call(probe))

    def _measure_calls(
        self, bench: BenchProcess, carrier: Carrier, process: int, samples: list[ProcessSample]
    ) -> None:
        known_us = _by_call(self.probe) if self.probe is not None else {}
        for request in self._workload.requests(known_us, self._seed + process):
            for points in bench.measure(request):
                kept = [
                    sample_of(point, request, self.hello, self._files.study.name, process, carrier)
                    for point in points
                ]
                self._files.samples.append(kept)
                samples += kept

    def _started(self, carrier: Carrier, process: int) -> AbstractContextManager[BenchProcess]:
        if carrier is Carrier.NATIVE and self._first is not None:
            first, self._first = self._first, None
            return contextlib.nullcontext(first)
        return self._start(carrier, process)


def _by_call(run: ProcessRun) -> dict[tuple[Collective, int], float]:
    return {(Collective.SENDRECV, size): time for size, time in run.times_us.items()}


BY_COPY_ENGINE = "copy engine"
"""Prefix of the carrier names that the library uses for messages by copy engine."""
_WARNING = re.compile(r"nccltune sendrecv WARN (.+)")
_COUNT = re.compile(r"nccltune sendrecv: process \d+: (.+): (\d+) messages, \d+ bytes")


class RunningBench:
    """A `BenchProcess` on the GPUs of this machine."""

    recorded_s = None
    carried: Mapping[str, int] | None = None

    def __init__(self, bench: Bench) -> None:
        self.hello = bench.hello
        self.measure = bench.measure


def on_gpus(launch: Launch, library: Path, *, program: Sequence[str] | None = None) -> Starter:
    """Return a starter of `nccltune-bench`, with `library` preloaded but for NCCL alone.

    The first process must be with NCCL alone: it reports the path of NCCL. Raises InputError for a
    missing library. The starter raises the errors of `Bench`, and LaunchError if copy engines carry
    no message or a setting is refused.
    """
    if not library.is_file():
        raise InputError(
            "no such library",
            where=str(library),
            hint="‹library› names libnccltune-sendrecv.so; left out, it is the installed one",
        )
    library = library.absolute()
    nccl: str | None = str(launch.nccl) if launch.nccl is not None else None

    @contextlib.contextmanager
    def start(carrier: Carrier, process: int) -> Iterator[BenchProcess]:  # noqa: ARG001
        nonlocal nccl
        if carrier is Carrier.NATIVE:
            # Turn the library off, in case the shell preloads it.
            with Bench(launch, program=program, settings={ON: "0"}) as bench:
                nccl = nccl or bench.hello.nccl.path
                yield RunningBench(bench)
            return
        with tempfile.TemporaryDirectory(prefix="nccltune-") as name:
            counts = Path(name) / "messages"
            # The bench opens NCCL by path and calls only functions of that file. So pass the
            # library's path as the path of NCCL. Also preload the library, as users do for programs
            # that are linked with NCCL.
            variables = preloaded(library, nccl, os.environ)
            variables |= {name: str(value) for name, value in carrier.settings.items()}
            variables["NCCLTUNE_SENDRECV_STATS"] = str(counts)
            ours = launch._replace(nccl=library)
            with Bench(ours, program=program, settings=variables) as bench:
                running = RunningBench(bench)
                yield running
            running.carried = _carried(counts, bench.stderr_tail, carrier)

    return start


def preloaded(library: Path, nccl: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that put `library` before NCCL at `nccl`, or where it finds one."""
    others = environment.get("LD_PRELOAD")
    variables = {"LD_PRELOAD": f"{library}:{others}" if others else str(library)}
    variables[CONNECTIONS] = environment.get(CONNECTIONS) or ENOUGH_CONNECTIONS
    if nccl is not None:
        variables["NCCLTUNE_SENDRECV_NCCL"] = nccl
    return variables


def _carried(counts: Path, stderr_tail: str, carrier: Carrier) -> dict[str, int]:
    """Return the messages by carrier from the file `counts`.

    Raises LaunchError if copy engines carried none or a setting was refused: the process then did
    not measure what the settings request.
    """
    warnings = list(dict.fromkeys(_WARNING.findall(stderr_tail)))
    for warning in warnings:
        if any(re.search(rf"\b{name}\b", warning) for name in carrier.settings):
            raise LaunchError(f"the library refused a setting: {warning}")
    if not counts.is_file():
        raise LaunchError("the library reported no messages: the bench did not load it")
    found = count_messages(counts.read_text(encoding="utf-8", errors="replace"))
    if not any(carrier.startswith(BY_COPY_ENGINE) for carrier in found):
        counted = [f"{carrier}: {messages}" for carrier, messages in found.items()]
        details = "; ".join([*counted, *warnings]) or "none at all"
        raise LaunchError(f"copy engines carried no message ({details})")
    return found


def count_messages(text: str) -> dict[str, int]:
    """Return the messages by carrier in a file of `NCCLTUNE_SENDRECV_STATS`, of all processes."""
    found: dict[str, int] = {}
    for carrier, messages in _COUNT.findall(text):
        found[carrier] = found.get(carrier, 0) + int(messages)
    return found


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

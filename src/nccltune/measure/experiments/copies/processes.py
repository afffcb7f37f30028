# SPDX-License-Identifier: Apache-2.0
"""Start the processes of a comparison, or take them from an earlier session, and record them."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from nccltune.measure.bench.conversation import BenchPoint, Hello, Measure
from nccltune.measure.engine.scheduler import ProcessTimes
from nccltune.measure.engine.workload import Workload
from nccltune.measure.experiments.copies.record import (
    COMPUTE,
    ProcessLine,
    ProcessRecord,
    ProcessRun,
    ProcessSample,
    as_run,
    sample_of,
)
from nccltune.measure.experiments.copies.settings import Carrier
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, LaunchError, PlatformError


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

# SPDX-License-Identifier: Apache-2.0
"""Executor: one process for each set of settings.

`SettingsProcesses` starts processes one after the other and records every timing. Results of
earlier sessions (runs of the nccltune command) are used before a new process is started. The
experiment decides which settings run next.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from nccltune.measure.bench.conversation import BenchPoint, Hello, Measure
from nccltune.measure.bench.process import Bench
from nccltune.measure.engine.process_record import (
    COMPUTE,
    ProcessLine,
    ProcessRecord,
    ProcessRun,
    ProcessSample,
    as_run,
    sample_of,
)
from nccltune.measure.engine.scheduler import ProcessTimes
from nccltune.measure.engine.settings import DEFAULT, Effective, Settings, read_effective
from nccltune.measure.engine.workload import RACED, Workload
from nccltune.model.errors import InputError, LaunchError, PlatformError


class BenchProcess(Protocol):
    """A running bench whose processes have the settings to measure."""

    @property
    def hello(self) -> Hello:
        """Return the first answer of the bench."""

    @property
    def recorded_s(self) -> float | None:
        """Return how long the recorded process took, in seconds; None if this is no replay."""

    @property
    def carried(self) -> Mapping[str, int] | None:
        """Return the messages by carrier, after the end; None without the send/recv library."""

    def effective(self) -> Effective | None:
        """Return the effective settings from NCCL's log; None if the log does not name them."""

    def measure(self, request: Measure) -> Iterator[list[BenchPoint]]:
        """Yield the points of a request as they arrive, like `Bench.measure`."""


class RunningBench:
    """A `BenchProcess` on the GPUs of this machine; `folder` has NCCL's log, if any."""

    recorded_s = None
    carried: Mapping[str, int] | None = None

    def __init__(self, bench: Bench, folder: Path | None = None) -> None:
        self._folder = folder
        self.hello = bench.hello
        self.measure = bench.measure

    def effective(self) -> Effective | None:
        """Return the effective settings from NCCL's log; None without a log."""
        return read_effective(self._folder) if self._folder is not None else None


Starter = Callable[[Settings, int], AbstractContextManager[BenchProcess]]
"""Starts a bench with the given settings. The number is that of the process in the study."""


class SettingsProcesses:
    """The processes of one study, of which `first` runs already, with the default settings.

    With `retry`, settings that failed in an earlier session are tried again. Raises PlatformError
    for a workload that the bench cannot measure, StudyError for a damaged study.
    """

    def __init__(
        self,
        start: Starter,
        first: BenchProcess,
        files: ProcessRecord,
        workload: Workload,
        *,
        seed: int,
        retry: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hello = first.hello
        _check_workload(workload, first.hello)
        self.known = 0
        """The number of processes taken from earlier sessions."""
        self._start = start
        self._first: BenchProcess | None = first
        self._files = files
        self._seed = seed
        self._now = now
        before = files.finished()
        self._recorded: dict[Settings, list[ProcessRun]] = defaultdict(list)
        for run in before:
            if not run.probe and not (retry and run.error is not None):
                self._recorded[run.settings].append(run)
        self._session = max((run.session for run in before), default=0) + 1
        self._next = files.next_process()
        self.times = ProcessTimes([run.seconds for run in before])
        self.probe = next((run for run in before if run.probe and run.error is None), None)
        """The first process, which shows how long each call takes and is not compared."""
        self.workload = workload if self.probe is None else workload.only(self.probe.times_us)

    def measure_probe(self) -> None:
        """Run the probe. Raises LaunchError if no size of send/recv could be measured."""
        run = self.measure(DEFAULT, probe=True)
        self.workload = self.workload.only(run.times_us)
        if not self.workload.sizes[RACED]:
            raise LaunchError("no size of send/recv could be measured", hint="try smaller ‹sizes›")
        self.probe = run

    def recorded(self, settings: Settings) -> list[ProcessRun]:
        """Return a list that ends with the next recorded process with these settings, if any.

        Before a candidate come defaults that the plan did not request (see `to_measure`).
        """
        left = self._recorded[settings]
        if not left:
            return []
        run = left.pop(0)
        found = []
        while settings != DEFAULT and (defaults := self._recorded[DEFAULT]):
            # Each of these defaults was the first process of a session. It was started for the
            # candidate that ran next, so return it together with that candidate.
            if defaults[0].process > run.process:
                break
            found.append(defaults.pop(0))
        found.append(run)
        self.known += len(found)
        return found

    def to_measure(self, settings: Settings) -> list[Settings]:
        """Return the settings of the processes to start when the plan requests `settings`.

        Processes of different sessions are not compared, so each session needs its own default.
        Before the first candidate of a session, a default is therefore added.
        """
        first = settings != DEFAULT and self._first is not None
        return [DEFAULT, settings] if first else [settings]

    def measure(self, settings: Settings, *, probe: bool = False) -> ProcessRun:
        """Run one process to its end, record it and return it with its results.

        If a candidate fails, nothing is raised; the returned process has the error.

        Raises LaunchError, PlatformError or InputError if the default does not run, LaunchError if
        the default gives wrong results, StudyError for a failed write.
        """
        process, self._next = self._next, self._next + 1
        began = self._now()
        samples: list[ProcessSample] = []
        made: Effective | None = None
        carried: Mapping[str, int] | None = None
        error: str | None = None
        recorded_s: float | None = None
        try:
            with self._started(settings, process) as bench:
                recorded_s = bench.recorded_s
                self._measure_calls(bench, settings, process, samples)
                made = bench.effective()
            carried = bench.carried
        except (LaunchError, PlatformError, InputError) as failure:
            if settings == DEFAULT:
                raise
            error = failure.message
        seconds = self._now() - began if recorded_s is None else recorded_s
        self.times.add(seconds)
        line = ProcessLine(
            process=process,
            session=self._session,
            settings=settings.recorded,
            load=COMPUTE if self.workload.load else None,
            probe=probe,
            effective=made,
            carried=dict(carried) if carried is not None else None,
            seconds=seconds,
            error=error,
        )
        self._files.lines.append([line])
        run = as_run(line, samples)
        if settings == DEFAULT and run.error is not None:
            raise LaunchError(
                f"with default settings {run.error}",
                hint="fix this first: such timings are invalid",
            )
        return run

    def _measure_calls(
        self, bench: BenchProcess, settings: Settings, process: int, samples: list[ProcessSample]
    ) -> None:
        known_us = self.probe.times_us if self.probe is not None else {}
        for request in self.workload.requests(known_us, self._seed + process):
            for points in bench.measure(request):
                kept = [
                    sample_of(point, request, self.hello, self._files.study.name, process, settings)
                    for point in points
                ]
                self._files.samples.append(kept)
                samples += kept

    def _started(self, settings: Settings, process: int) -> AbstractContextManager[BenchProcess]:
        if settings == DEFAULT and self._first is not None:
            first, self._first = self._first, None
            return contextlib.nullcontext(first)
        return self._start(settings, process)


def _check_workload(workload: Workload, hello: Hello) -> None:
    if RACED.value not in hello.can.collectives:
        raise PlatformError("the bench cannot measure send/recv here")
    if workload.load and not hello.can.load:
        raise PlatformError(
            "the bench cannot compute beside the calls here", hint="leave ‹load› out"
        )

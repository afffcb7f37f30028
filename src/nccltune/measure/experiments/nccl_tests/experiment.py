# SPDX-License-Identifier: Apache-2.0
"""The sweep with nccl-tests.

Each round has one process for every choice, the default included, in shuffled order. Before the
first round, a *probe* of each choice shows whether the choice runs (`probe.py`).

samples.jsonl      every timing, with the round of its process
nccl-tests.jsonl   the result of every probe, and the reason if a choice is left out
"""

import math
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from nccltune.measure.bench.conversation import SCHEMA_VERSION, BenchGpu, Hello, Nccl
from nccltune.measure.engine.program import InterruptedProgram, run_program
from nccltune.measure.engine.record import LineFile, timestamp
from nccltune.measure.engine.scheduler import (
    FIRST_GUESS_S,
    Budget,
    CallTask,
    ExperimentStatus,
    Scheduler,
    StatusCallback,
    ignore_status,
    sequential_source,
)
from nccltune.measure.experiments.nccl_tests.binaries import (
    FACTOR,
    NcclTestsSite,
    environment,
    possible,
)
from nccltune.measure.experiments.nccl_tests.probe import ProbedRun, probe, read_output
from nccltune.model.choice import DEFAULT, AnyChoice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.errors import LaunchError
from nccltune.model.sample import Purpose, Sample, Source
from nccltune.study.files import Study

TOOL = "nccl-tests"
_LEAST_LIMIT_S = 300.0
_LIMIT_FACTOR = 20.0
"""A process hangs if it takes this many times longer than the last of its choice."""


class NcclTestsScope(NamedTuple):
    """What to sweep, in how many rounds; `seed` shuffles the processes of a round."""

    collectives: Sequence[Collective]
    low: int
    high: int
    rounds: int
    budget_s: float | None = None
    seed: int = 1


class ChoiceProcess(NamedTuple):
    """A process: one choice of one collective in one round, at sizes from `low` to `high` bytes."""

    round: int
    collective: Collective
    choice: AnyChoice
    low: int
    high: int


class NcclTestsOutcome(NamedTuple):
    """How a sweep ended, with new and `known` timings, and why choices are `left_out`."""

    reason: str
    points: int
    known: int
    seconds: float
    left_out: list[tuple[Collective, AnyChoice, str]]


class NcclTestsExperiment:
    """One sweep with the binaries of one site, whose processes have the environment `base`."""

    def __init__(
        self,
        site: NcclTestsSite,
        wanted: NcclTestsScope,
        study: Study,
        base: Mapping[str, str],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._site = site
        self._wanted = wanted
        self._study = study
        self._base = base
        self._now = now
        self._started = now()
        self._scheduler = Scheduler(Budget(wanted.budget_s, self._spent_s))
        self._probe_lines = LineFile(study, "nccl-tests.jsonl", ProbedRun)
        self._sample_lines = LineFile(study, study.samples_path.name, Sample)
        self._probes: dict[tuple[Collective, AnyChoice], ProbedRun] = {}
        self._kept: set[tuple[Collective, AnyChoice]] = set()
        self._seconds: dict[tuple[Collective, AnyChoice], float] = {}
        self._points = 0
        self._known: dict[tuple[Collective, AnyChoice, int], set[int]] = defaultdict(set)
        self._reused = 0

    def hello(self) -> Hello:
        """Return the platform of this sweep, from a probe of the default; write nothing.

        Raises LaunchError if the default does not run, PlatformError without a binary, InputError
        for unknown nodes.
        """
        first = self._probe(self._wanted.collectives[0], DEFAULT)
        return Hello(
            schema_version=SCHEMA_VERSION,
            version=first.tests_version or "unknown",
            backend=TOOL,
            nccl=Nccl(version=first.nccl_version),
            nodes=first.nodes or 1,
            ranks=first.ranks or 1,
            gpus=[BenchGpu(rank, first.gpu) for rank in range(first.ranks or 1)],
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of a process with the default."""
        return environment(self._base, DEFAULT)

    @property
    def emulated_nodes(self) -> bool:
        """Return whether one host emulates several nodes."""
        return any(item.emulated_nodes for item in self._probes.values())

    def outcome_so_far(self, reason: str) -> NcclTestsOutcome:
        """Return the outcome so far, with the given reason for the end."""
        left_out = [
            (item.collective, item.choice, item.error)
            for item in self._probes.values()
            if item.error is not None
        ]
        return NcclTestsOutcome(reason, self._points, self._reused, self._spent_s(), left_out)

    def plan(self) -> list[ChoiceProcess]:
        """Return the processes of all rounds that are not recorded, in order."""
        return [task for number in range(self._wanted.rounds) for task in self._round(number)]

    def choices(self, collective: Collective) -> list[AnyChoice]:
        """Return the default and the legal choices of a collective, or all if NCCL lists none."""
        offered = self._probe(collective, DEFAULT).usable or possible(collective)
        return [DEFAULT, *sorted(offered, key=lambda choice: choice.label)]

    def load_recorded(self) -> None:
        """Read the probes and timings of this sweep that the study already has."""
        recorded: dict[tuple[Collective, AnyChoice], ProbedRun] = {}
        for item in self._probe_lines.stream():
            if self._covers(item):
                recorded[item.collective, item.choice] = item
        for key, item in recorded.items():
            if self._probes.setdefault(key, item) == item:
                self._kept.add(key)
        hello = self.hello()
        for sample in self._sample_lines.stream():
            if self._is_ours(sample, hello):
                known = self._known[sample.collective, sample.choice, sample.round]
                known.add(sample.bytes)
                self._reused += 1

    def run(self, on_status: StatusCallback = ignore_status) -> NcclTestsOutcome:
        """Measure until all rounds are complete or the budget is spent; all is in the study.

        Raises LaunchError if the default fails or is wrong, StudyError, and the errors of `hello`.
        """
        return self.outcome_so_far(self._scheduler.run([sequential_source(self._tasks(on_status))]))

    def _tasks(self, on_status: StatusCallback) -> Iterator[Sequence[CallTask]]:
        """Yield the tasks: first a probe of every choice, then the processes of all rounds."""
        for collective in self._wanted.collectives:
            for choice in self.choices(collective):
                keep = partial(self._keep_probe, collective, choice)
                if (collective, choice) in self._probes:
                    keep()
                else:
                    yield [CallTask(self._mean_s(), keep)]
        tasks = self.plan()
        for at, task in enumerate(tasks):
            if self._is_left_out(task):
                continue
            ahead = [item for item in tasks[at:] if not self._is_left_out(item)]
            left_s = math.fsum(self._expected_s(item) for item in ahead)
            what = f"{task.collective.value} {choice_label(task.choice)} round {task.round}"
            on_status(
                ExperimentStatus(at + 1, len(tasks), what, spent_s=self._spent_s(), left_s=left_s)
            )
            yield [CallTask(self._expected_s(task), partial(self._measure, task))]

    def _round(self, number: int) -> Iterator[ChoiceProcess]:
        """Yield the processes of one round that are not recorded, in order."""
        pairs = [
            (collective, choice)
            for collective in self._wanted.collectives
            for choice in self.choices(collective)
        ]
        # The random number only decides an order, so it needs no secure generator.
        random.Random(f"{self._wanted.seed} {number}").shuffle(pairs)  # noqa: S311
        for collective, choice in pairs:
            seen = self._probes.get((collective, choice))
            if seen is None:
                yield ChoiceProcess(number, collective, choice, self._wanted.low, self._wanted.high)
                continue
            missing = {item.bytes for item in seen.seen if item.choice == choice} - self._known[
                collective, choice, number
            ]
            if seen.error is None and missing:
                low, high = self._asked(min(missing)), self._asked(max(missing))
                yield ChoiceProcess(number, collective, choice, low, high)

    def _asked(self, size: int) -> int:
        """Return the size to request so that nccl-tests, which rounds down, measures `size`."""
        asked = self._wanted.low
        while asked < size:
            asked *= FACTOR
        return asked

    def _probe(self, collective: Collective, choice: AnyChoice) -> ProbedRun:
        """Return the probe of a choice, run if there is none. Raises LaunchError for the
        default."""
        key = (collective, choice)
        if key not in self._probes:
            self._probes[key] = probe(
                self._site,
                collective,
                choice,
                self._wanted.low,
                self._wanted.high,
                base=self._base,
                limit_s=self._limit_s(key),
            )
        found = self._probes[key]
        if choice == DEFAULT and found.error is not None:
            tried = self._site.command(collective, 1024, 1024, variables=self.environment())
            raise LaunchError(
                f"{self._site.binary(collective).name} with NCCL's default {found.error}",
                hint=f"try it: {' '.join(tried)}",
            )
        return found

    def _keep_probe(self, collective: Collective, choice: AnyChoice) -> None:
        self._keep(self._probe(collective, choice))

    def _keep(self, item: ProbedRun) -> None:
        key = (item.collective, item.choice)
        if key not in self._kept:
            self._probe_lines.append([item])
            self._kept.add(key)

    def _covers(self, item: ProbedRun) -> bool:
        """Return whether a recorded probe is of this range: in another, other choices run."""
        return (item.low, item.high) == (self._wanted.low, self._wanted.high)

    def _measure(self, task: ChoiceProcess) -> None:
        key = (task.collective, task.choice)
        began = self._now()
        at = timestamp()
        variables = environment(self._base, task.choice)
        command = self._site.command(
            *(task.collective, task.low, task.high),
            *("-c", "0" if task.round else "1"),
            variables=variables,
        )
        try:
            ended = run_program(command, variables, self._limit_s(key))
        except InterruptedProgram as stop:
            self._append(task, stop.output, at)
            raise
        self._seconds[key] = self._now() - began
        wrong = self._append(task, ended.output, at)
        if wrong:
            self._failed(task, f"gave wrong results: {wrong} rows with wrong elements")
        elif not ended.succeeded:
            self._failed(task, ended.sentence())

    def _append(self, task: ChoiceProcess, output: bytes, at: str) -> int:
        """Record the rows of a process started `at`; return the number of wrong ones."""
        samples, _ = read_output(output, task.collective, task.choice, study=self._study.name)
        seen = self._probes[task.collective, task.choice]
        by_size = {item.bytes: item for item in seen.seen}
        known = set(self._known[task.collective, task.choice, task.round])
        first = self.hello()
        process = secrets.token_hex(8)
        kept = []
        for sample in samples:
            if sample.bytes in known:
                continue
            what = by_size.get(sample.bytes)
            choice = what.choice if what else task.choice
            self._known[task.collective, choice, task.round].add(sample.bytes)
            kept.append(
                msgspec.structs.replace(
                    sample,
                    nodes=first.nodes,
                    ranks=first.ranks,
                    choice=choice,
                    ran=what.ran if what else None,
                    round=task.round,
                    source=msgspec.structs.replace(
                        sample.source,
                        nccl_version=first.nccl.version,
                        file_hash=None,
                        process=process,
                        in_rounds=True,
                    ),
                    at=at,
                )
            )
        if kept:
            self._sample_lines.append(kept)
            self._points += len(kept)
        return sum(bool(sample.wrong) for sample in samples)

    def _failed(self, task: ChoiceProcess, words: str) -> None:
        """Leave out the choice of a failed process. Raises LaunchError for the default."""
        where = self._site.binary(task.collective).name
        if task.choice == DEFAULT:
            raise LaunchError(
                f"{where} with NCCL's default {words}",
                hint="the timings are kept; the same command continues",
            )
        key = (task.collective, task.choice)
        self._probes[key] = msgspec.structs.replace(self._probes[key], error=words)
        self._kept.discard(key)
        self._keep(self._probes[key])

    def _is_ours(self, sample: Sample, hello: Hello) -> bool:
        """Return whether a sample is of such a sweep, and not imported (with a `file_hash`)."""
        source: Source = sample.source
        return (
            source.tool == TOOL
            and source.purpose is Purpose.TUNE
            and source.file_hash is None
            and not sample.in_place
            and (sample.nodes, sample.ranks) == (hello.nodes, hello.ranks)
        )

    def _expected_s(self, task: ChoiceProcess) -> float:
        known = self._seconds
        own = known.get((task.collective, task.choice))
        return self._mean_s() if own is None else own

    def _mean_s(self) -> float:
        known = self._seconds
        return math.fsum(known.values()) / len(known) if known else FIRST_GUESS_S

    def _spent_s(self) -> float:
        return self._now() - self._started

    def _is_left_out(self, task: ChoiceProcess) -> bool:
        return self._probes[task.collective, task.choice].error is not None

    def _limit_s(self, key: tuple[Collective, AnyChoice]) -> float:
        return max(_LEAST_LIMIT_S, _LIMIT_FACTOR * self._seconds.get(key, 0.0))

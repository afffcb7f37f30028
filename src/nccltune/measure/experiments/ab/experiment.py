# SPDX-License-Identifier: Apache-2.0
"""A trial of settings: rounds of two processes, one with the settings and one without.

In every second round the order of the two processes is drawn at random. In the round after it the
order is reversed, so that drift affects both sides equally. The first process of a trial is a
probe, which is not compared.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from nccltune.measure.bench.conversation import Hello
from nccltune.measure.engine.record import timestamp
from nccltune.measure.engine.scheduler import (
    Budget,
    CallTask,
    ExperimentStatus,
    ProcessTimes,
    Scheduler,
    StatusCallback,
    ignore_status,
    sequential_source,
)
from nccltune.measure.experiments.ab.facts import StartFacts
from nccltune.measure.experiments.ab.runs import SIDES, SettingTrial, Side, TrialFiles, TrialRun
from nccltune.measure.experiments.ab.settings import LIBRARY, SettingChanges
from nccltune.measure.experiments.ab.speed import JobSpeed, UnreadSpeedError
from nccltune.model.choice import DEFAULT
from nccltune.model.errors import InputError, LaunchError, PlatformError
from nccltune.model.sample import Purpose, Sample
from nccltune.model.scale import count

WITH = "with it"
"""How the status names the side with the settings."""


class ProcessResult(NamedTuple):
    """The result of a process: None for a `hello` if it did not start, and `facts` without a log.

    hello       the platform that the process ran on; None if it did not start
    facts       the effective settings of NCCL; None without a log
    error       the reason if the process does not count
    recorded_s  in a replay, how long the recorded process took, in seconds
    speed       how fast a job was; None for a program that prints timings
    """

    hello: Hello | None
    facts: StartFacts | None = None
    error: str | None = None
    recorded_s: float | None = None
    speed: JobSpeed | None = None


class TrialRunner(Protocol):
    """Runs one process from its start to its end."""

    def run(
        self,
        settings: SettingChanges,
        number: int,
        keep: Callable[[Iterable[Sample]], None],
        *,
        choices: bool = False,
    ) -> ProcessResult:
        """Run process `number` (two a round) with these settings; pass timings to `keep`.

        With `choices` they have what NCCL ran; its log may slow the process down. Raises
        LaunchError, PlatformError or InputError if it cannot be started, which ends a trial if the
        settings are the default, and else is their result.
        """


class TrialScope(NamedTuple):
    """How much to measure: a number of rounds, and a limit in seconds. `seed` decides the order."""

    rounds: int
    budget_s: float | None = None
    seed: int = 1


class TrialOutcome(NamedTuple):
    """How a trial ended: `reason` is `done`, `budget`, `failed` or `interrupted`.

    In `rounds` both sides ran to their end; `known` of these are from earlier runs. `error` is that
    of the proposed settings, if any.
    """

    reason: str
    rounds: list[int]
    known: int
    processes: int
    seconds: float
    error: str | None = None
    default_facts: StartFacts | None = None
    set_facts: StartFacts | None = None


class TrialExperiment:
    """One trial in one study; `anew` ignores rounds of earlier runs. Raises StudyError.

    The settings of a `job` fail only at its second failed start, and a round of which one side ran
    is completed.
    """

    def __init__(
        self,
        runner: TrialRunner,
        runs: TrialFiles,
        trial: SettingTrial,
        scope: TrialScope,
        *,
        anew: bool = False,
        job: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._runs = runs
        self._trial = trial
        self._scope = scope
        self._anew = anew
        self._job = job
        self._now = now
        self._lines, self._next_round = self._read()
        self._known = len(self._rounds())
        self._times = ProcessTimes([line.seconds for line in self._lines if not line.error])
        budget = Budget(scope.budget_s, lambda: self._times.spent_s)
        self._scheduler = Scheduler(budget)
        self.probed: dict[Side, tuple[ProcessResult, list[Sample]]] = {}
        """The results of `probe`."""

    def probe(self) -> Hello | None:
        """Run the first process, a default (of two libraries, both, with choices logged).

        Return its platform; None, without a run, if nothing is left to measure. Raises LaunchError
        if it fails or prints no timing, InputError if it has one rank, and the errors of
        `TrialRunner.run`.
        """
        if len(self._rounds()) >= self._scope.rounds or self._error() is not None:
            return None
        number, releases = self._take_round(), self._trial.compares_releases
        for side in SIDES if releases else SIDES[:1]:
            kept: list[Sample] = []
            ran, seconds = self._run(side, number, kept.extend, choices=releases)
            if ran.error is None and not kept:
                ran = ran._replace(error="gave no timing: is it a program of nccl-tests?")
            if side == "default":
                self._check_default(ran)
            if ran.error is None and all(sample.ranks == 1 for sample in kept):
                raise InputError(
                    "it ran as one rank, which has no peer to communicate with",
                    hint="give the program its GPUs (-g 4), or name a ‹launcher›",
                )
            self.probed[side] = ran, kept
            line = self._line(side, number, ran, seconds)
            self._lines.append(msgspec.structs.replace(line, probe=True, choices=releases))
        return self.probed["default"][0].hello

    def keep_probe(self) -> None:
        """Write the results of `probe` to the study, which must exist and be locked.

        Another trial may have ended since, so rounds are counted anew. Raises StudyError.
        """
        probes = self._lines[len(self._lines) - len(self.probed) :]
        self._lines, self._next_round = self._read()
        self._known = len(self._rounds())
        if not probes:
            return
        number = self._take_round()
        probes = [msgspec.structs.replace(line, round=number) for line in probes]
        for line, (_, kept) in zip(probes, self.probed.values(), strict=True):
            self._keep(kept, number, line.side)
        self._runs.lines.append(probes)
        self._lines += probes

    def run(
        self, on_status: StatusCallback = ignore_status, *, rounds: int | None = None
    ) -> TrialOutcome:
        """Measure until all rounds are complete, the settings fail or the budget is spent.

        `rounds` replaces the number of the scope, so that a trial can be judged and then go on.

        All timings are in the study when this returns or raises. Raises LaunchError, PlatformError
        or InputError if the default does not run, StudyError for a failed write.
        """
        if rounds is not None:
            self._scope = self._scope._replace(rounds=rounds)
        reason = self._scheduler.run([sequential_source(self._tasks(on_status))])
        return self.outcome_so_far("failed" if reason == "done" and self._error() else reason)

    def outcome_so_far(self, reason: str) -> TrialOutcome:
        """Return the outcome so far, with the given reason for the end."""
        return TrialOutcome(
            reason=reason,
            rounds=self._rounds(),
            known=self._known,
            processes=self._times.processes,
            seconds=self._times.spent_s,
            error=self._error(),
            default_facts=self._facts("default"),
            set_facts=self._facts("set"),
        )

    @property
    def speeds(self) -> list[tuple[JobSpeed, JobSpeed]]:
        """Return the speeds of a job, without and with the settings, of every complete round."""
        found = {(line.round, line.side): line.speed for line in self._compared()}
        pairs = ((found[at, "default"], found[at, "set"]) for at in self._rounds())
        return [(before, after) for before, after in pairs if before and after]

    @property
    def ended(self) -> int:
        """Return the number of starts of a job that count, with that of half a round."""
        return 2 * len(self._rounds()) + bool(self._halves())

    @property
    def seconds_to_come(self) -> float:
        """Return about how long the remaining rounds take, in seconds."""
        return 2 * (self._scope.rounds - len(self._rounds())) * self._times.expected_s

    def order(self, index: int) -> tuple[Side, Side]:
        """Return the order of the two sides in a round. `index` counts the rounds of the trial."""
        # The random number only decides an order, so it needs no secure generator.
        flip = random.Random(f"{self._scope.seed} {index // 2}").random() < 0.5  # noqa: S311
        return (SIDES[1], SIDES[0]) if flip ^ (index % 2 == 1) else SIDES

    def _round(self, on_status: StatusCallback) -> None:
        """Run both processes of the next round; one that is interrupted is not completed later,
        except that of a job, whose starts are long."""
        sides: Sequence[Side] = self.order(len(self._rounds()))
        if halves := self._halves():
            number = max(halves)
            sides = [side for side in sides if side != halves[number]]
        else:
            number = self._take_round()
        for side in sides:
            on_status(self._status(side))
            ran, seconds = self._run(side, number, lambda new: self._keep(new, number, side))  # noqa: B023
            if side == "default":
                self._check_default(ran)
            line = self._line(side, number, ran, seconds)
            self._lines.append(line)
            self._runs.lines.append([line])
            if ran.error is not None:
                return

    def _tasks(self, on_status: StatusCallback) -> Iterator[Sequence[CallTask]]:
        while len(self._rounds()) < self._scope.rounds and self._error() is None:
            yield [CallTask(2 * self._times.expected_s, partial(self._round, on_status))]

    def _read(self) -> tuple[list[TrialRun], int]:
        every = self._runs.lines.read()
        used = [line.round for line in every] + [one.round for one in self._runs.samples()]
        own = [] if self._anew else [line for line in every if line.trial == self._trial.key]
        return own, max(used, default=-1) + 1

    def _take_round(self) -> int:
        number, self._next_round = self._next_round, self._next_round + 1
        return number

    def _run(
        self,
        side: Side,
        number: int,
        keep: Callable[[Iterable[Sample]], None],
        *,
        choices: bool = False,
    ) -> tuple[ProcessResult, float]:
        began = self._now()
        start = 2 * (number + 1) + SIDES.index(side)
        try:
            ran = self._runner.run(self._trial.of(side), start, keep, choices=choices)
        except (LaunchError, PlatformError, InputError) as failure:
            # A job that printed something else has not failed.
            if side == "default" or isinstance(failure, UnreadSpeedError):
                raise
            ran = ProcessResult(None, error=failure.message)
        seconds = self._now() - began if ran.recorded_s is None else ran.recorded_s
        self._times.add(seconds)
        return ran, seconds

    def _keep(self, samples: Iterable[Sample], number: int, side: Side) -> None:
        at = timestamp()
        self._runs.timings.append(
            msgspec.structs.replace(
                sample,
                study=self._runs.study.name,
                choice=DEFAULT,
                settings=self._trial.of(side),
                round=number,
                source=msgspec.structs.replace(sample.source, purpose=Purpose.AB, file_hash=None),
                at=at,
            )
            for sample in samples
        )

    def _check_default(self, ran: ProcessResult) -> None:
        if ran.error is not None:
            library = self._trial.of("default").get(LIBRARY)
            which = "without the settings" if library is None else f"with {library}"
            first = "without them" if library is None else "with this library"
            hint = f"make the program work {first} first"
            ended = sum(line.side == "default" for line in self._compared())
            if self._job and ended:
                hint = f"it ended well {count(ended, 'time')} before; the same command goes on"
            raise LaunchError(f"{which} it {ran.error}", hint=hint)

    def _line(self, side: Side, number: int, ran: ProcessResult, seconds: float) -> TrialRun:
        return TrialRun(
            trial=self._trial.key,
            settings=self._trial.of(side),
            side=side,
            round=number,
            seconds=seconds,
            facts=ran.facts,
            speed=ran.speed,
            error=ran.error,
            at=timestamp(),
        )

    def _rounds(self) -> list[int]:
        """Return the rounds in which both sides ran to their end."""
        done = {
            side: {line.round for line in self._compared() if line.side == side} for side in SIDES
        }
        return sorted(done["default"] & done["set"])

    def _halves(self) -> dict[int, Side]:
        """Return the rounds of a job of which only one side ran, with that side."""
        ran = {line.round: line.side for line in self._compared()} if self._job else {}
        return {number: ran[number] for number in ran.keys() - set(self._rounds())}

    def _compared(self) -> Sequence[TrialRun]:
        return [line for line in self._lines if not line.probe and line.error is None]

    def _error(self) -> str | None:
        """Return the error of the settings, which are then not tried again; None without one."""
        errors = self.failures
        return errors[0] if len(errors) > self._job else None

    @property
    def failures(self) -> list[str]:
        """Return the errors of the starts with the settings."""
        return [line.error for line in self._lines if line.side == "set" and line.error]

    def _facts(self, side: Side) -> StartFacts | None:
        return next((line.facts for line in self._lines if line.side == side and line.facts), None)

    def _status(self, side: Side) -> ExperimentStatus:
        library = self._trial.of(side).get(LIBRARY)
        return ExperimentStatus(
            process=self._times.processes + 1,
            processes=2 * self._scope.rounds + 1,
            what=library or (WITH if side == "set" else "without it"),
            spent_s=self._times.spent_s,
            left_s=self.seconds_to_come,
        )

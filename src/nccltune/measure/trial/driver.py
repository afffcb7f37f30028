# SPDX-License-Identifier: Apache-2.0
"""Carries a trial out: rounds of two processes, one with the settings and one without, and the
study that keeps every timing of them.

Who comes first in a round is drawn for every other round and turned round in the next, so that what
drifts hits both alike. The first process of all only looks: it is not compared.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import msgspec

from nccltune.measure.conversation import Hello
from nccltune.measure.trial.facts import Facts
from nccltune.measure.trial.runs import SIDES, Runs, Side, Trial, TrialRun
from nccltune.measure.trial.settings import Settings
from nccltune.model.choice import DEFAULT
from nccltune.model.errors import InputError, LaunchError, PlatformError
from nccltune.model.sample import TRYING, Sample

FIRST_GUESS_S = 10.0
"""About how long a process takes, before one has run."""


class Ran(NamedTuple):
    """What became of a process: what is known of where it ran, what NCCL made of its settings, and
    why it does not count, if so. `recorded_s` is what it took when it was recorded."""

    hello: Hello | None
    facts: Facts | None = None
    error: str | None = None
    recorded_s: float | None = None


class Runner(Protocol):
    """Runs one process from its start to its end."""

    def run(self, settings: Settings, number: int, keep: Callable[[Iterable[Sample]], None]) -> Ran:
        """With these settings; every timing is handed to `keep` as it comes. Starts of one round
        have the same half of their `number`. Raises LaunchError, PlatformError or InputError where
        it cannot be started at all: of the default the end of the trial, with the settings its
        result."""


class Wanted(NamedTuple):
    """How long to measure: rounds, or seconds at most."""

    rounds: int
    budget_s: float | None = None
    seed: int = 1


class Status(NamedTuple):
    """Where a trial stands: the process that runs now, of how many."""

    process: int
    processes: int
    side: Side
    left_s: float


class Outcome(NamedTuple):
    """How it ended: `reason` is `done`, `budget`, `failed` or `interrupted`. `rounds` are those of
    both sides, `known` of them from before; `error` is what happened with the settings."""

    reason: str
    rounds: list[int]
    known: int
    processes: int
    seconds: float
    error: str | None = None
    default_facts: Facts | None = None
    set_facts: Facts | None = None


class _OutOfBudgetError(Exception):
    pass


class Driver:
    """One trial in one study. `now` is a clock in seconds."""

    def __init__(
        self,
        runner: Runner,
        runs: Runs,
        trial: Trial,
        wanted: Wanted,
        told: Callable[[Status], None] = lambda _: None,
        *,
        anew: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._runs = runs
        self._trial = trial
        self._wanted = wanted
        self._told = told
        self._now = now
        every = runs.lines()
        self._lines = [] if anew else [line for line in every if line.trial == trial.key]
        used = [line.round for line in every] + [sample.round for sample in runs.samples()]
        self._next_round = max(used, default=-1) + 1
        self._known = len(self._rounds())
        self._seconds = [line.seconds for line in self._lines if not line.error]
        self._spent_s = 0.0
        self._processes = 0
        self._looked: list[Sample] = []

    def look(self) -> Hello | None:
        """Run a default first, and say what it ran on; it is not compared, and written by
        `keep_look`. None where there is nothing left to measure. Raises LaunchError where it does
        not run or prints no timing, InputError where it is one rank."""
        if len(self._rounds()) >= self._wanted.rounds or self._error() is not None:
            return None
        number, self._next_round = self._next_round, self._next_round + 1
        ran, seconds = self._run("default", self._looked.extend)
        if ran.error is None and not self._looked:
            ran = ran._replace(error="gave no timing: is it a program of nccl-tests?")
        self._check_default(ran)
        if all(sample.ranks == 1 for sample in self._looked):
            raise InputError(
                "it ran as one rank, which has nobody to talk to",
                hint="give the program its GPUs (-g 4), or name a --launcher",
            )
        self._seconds.append(seconds)
        self._lines.append(self._line("default", number, ran, seconds, look=True))
        return ran.hello

    def keep_look(self) -> None:
        """Write what `look` has measured into the study, which is there now."""
        if self._looked:
            line = self._lines[-1]
            self._keep(self._looked, line.round, "default")
            self._runs.end(line)

    def run(self) -> Outcome:
        """Measure until there are enough rounds. What is measured is in the study when this returns
        or raises."""
        try:
            while len(self._rounds()) < self._wanted.rounds and self._error() is None:
                self._round()
        except _OutOfBudgetError:
            return self.outcome("budget")
        return self.outcome("done" if self._error() is None else "failed")

    def outcome(self, reason: str) -> Outcome:
        """How far it has come."""
        return Outcome(
            reason=reason,
            rounds=self._rounds(),
            known=self._known,
            processes=self._processes,
            seconds=self._spent_s,
            error=self._error(),
            default_facts=self._facts("default"),
            set_facts=self._facts("set"),
        )

    @property
    def seconds_to_come(self) -> float:
        """About how long it takes from here."""
        return 2 * (self._wanted.rounds - len(self._rounds())) * self._expected_s()

    def order(self, index: int) -> tuple[Side, Side]:
        """Who runs first in the round of this index in the trial."""
        # An order, not a secret.
        flip = random.Random(f"{self._wanted.seed} {index // 2}").random() < 0.5  # noqa: S311
        return (SIDES[1], SIDES[0]) if flip ^ (index % 2 == 1) else SIDES

    def _round(self) -> None:
        if not self._affordable():
            raise _OutOfBudgetError
        # A round that was cut short stays without its other side: neighbours in time are compared.
        number, self._next_round = self._next_round, self._next_round + 1
        for side in self.order(len(self._rounds())):
            self._tell(side)
            ran, seconds = self._run(side, lambda new: self._keep(new, number, side))  # noqa: B023
            if side == "default":
                self._check_default(ran)
            self._seconds.append(seconds)
            line = self._line(side, number, ran, seconds)
            self._lines.append(line)
            self._runs.end(line)
            if ran.error is not None:
                return

    def _run(self, side: Side, keep: Callable[[Iterable[Sample]], None]) -> tuple[Ran, float]:
        """Run one process: what became of it, and seconds."""
        began = self._now()
        number = 2 * self._next_round + SIDES.index(side)
        try:
            ran = self._runner.run(self._trial.of(side), number, keep)
        except (LaunchError, PlatformError, InputError) as failure:
            if side == "default":
                raise
            ran = Ran(None, error=failure.message)
        seconds = self._now() - began if ran.recorded_s is None else ran.recorded_s
        self._spent_s += seconds
        self._processes += 1
        return ran, seconds

    def _keep(self, samples: Iterable[Sample], number: int, side: Side) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._runs.keep(
            msgspec.structs.replace(
                sample,
                study=self._runs.study.name,
                choice=DEFAULT,
                settings=self._trial.of(side),
                round=number,
                source=msgspec.structs.replace(
                    sample.source, tool=f"{sample.source.tool}{TRYING}", file_hash=None
                ),
                at=at,
            )
            for sample in samples
        )

    def _check_default(self, ran: Ran) -> None:
        if ran.error is not None:
            raise LaunchError(
                f"without the settings it {ran.error}",
                hint="it has to work as it is first",
            )

    def _line(
        self, side: Side, number: int, ran: Ran, seconds: float, *, look: bool = False
    ) -> TrialRun:
        return TrialRun(
            trial=self._trial.key,
            settings=self._trial.of(side),
            side=side,
            round=number,
            look=look,
            seconds=seconds,
            facts=ran.facts,
            error=ran.error,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _rounds(self) -> list[int]:
        """The rounds of which both sides came to their end."""
        done = {
            side: {line.round for line in self._compared() if line.side == side} for side in SIDES
        }
        return sorted(done["default"] & done["set"])

    def _compared(self) -> Sequence[TrialRun]:
        return [line for line in self._lines if not line.look and line.error is None]

    def _error(self) -> str | None:
        """What happened with the settings: it is their result, and not tried again."""
        return next((line.error for line in self._lines if line.side == "set" and line.error), None)

    def _facts(self, side: Side) -> Facts | None:
        return next((line.facts for line in self._lines if line.side == side and line.facts), None)

    def _affordable(self) -> bool:
        budget = self._wanted.budget_s
        return budget is None or self._spent_s + 2 * self._expected_s() <= budget

    def _expected_s(self) -> float:
        return math.fsum(self._seconds) / len(self._seconds) if self._seconds else FIRST_GUESS_S

    def _tell(self, side: Side) -> None:
        status = Status(self._processes, 2 * self._wanted.rounds + 1, side, self.seconds_to_come)
        self._told(status)

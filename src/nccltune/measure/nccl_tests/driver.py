# SPDX-License-Identifier: Apache-2.0
"""The sweep with nccl-tests: rounds of processes in shuffled order, the default in each round.

samples.jsonl      every timing; its round is that of its process
nccl-tests.jsonl   what the first looks found, and what was left out
"""

import math
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.measure.conversation import SCHEMA_VERSION, Gpu, Hello, Nccl
from nccltune.measure.nccl_tests.binaries import FACTOR, Site, environment, possible
from nccltune.measure.nccl_tests.look import Look, look, read_output
from nccltune.measure.nccl_tests.program import InterruptedProgram, run_program
from nccltune.model.choice import DEFAULT, AnyChoice, choice_label
from nccltune.model.collective import Collective
from nccltune.model.errors import LaunchError
from nccltune.model.sample import Sample, Source
from nccltune.model.study import Study

TOOL = "nccl-tests"
FIRST_GUESS_S = 6.0
"""About how long a process takes, before one has run."""
_LEAST_LIMIT_S = 300.0
_LIMIT_FACTOR = 20.0
"""A process that takes this many times longer than others is stuck."""


class Wanted(NamedTuple):
    """What to sweep: collectives, sizes from `low` to `high` bytes, and how often."""

    collectives: Sequence[Collective]
    low: int
    high: int
    rounds: int
    budget_s: float | None = None
    seed: int = 1


class Task(NamedTuple):
    """A process: one choice of one collective in one round, from one size to another."""

    round: int
    collective: Collective
    choice: AnyChoice
    low: int
    high: int


class Status(NamedTuple):
    """Where a sweep stands; `task` ends next. `done` of `processes` have run."""

    spent_s: float
    left_s: float
    done: int
    processes: int
    task: Task


class Outcome(NamedTuple):
    """How a sweep ended: `reason` is `done` or `budget`; `points` are new timings, `known` those
    from before; `left_out` names choices that did not run, with the reason."""

    reason: str
    points: int
    known: int
    seconds: float
    left_out: list[tuple[Collective, AnyChoice, str]]


class _OutOfBudgetError(Exception):
    pass


class NcclTests:
    """One sweep of one site. `base` is the environment, `now` a clock in seconds."""

    def __init__(
        self,
        site: Site,
        wanted: Wanted,
        study: Study,
        base: Mapping[str, str],
        told: Callable[[Status], None] = lambda _: None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._site = site
        self._wanted = wanted
        self._study = study
        self._base = base
        self._told = told
        self._now = now
        self._started = now()
        self._looks: dict[tuple[Collective, AnyChoice], Look] = {}
        self._kept: set[tuple[Collective, AnyChoice]] = set()
        self._seconds: dict[tuple[Collective, AnyChoice], float] = {}
        self._points = 0
        self._known: dict[tuple[Collective, AnyChoice, int], set[int]] = defaultdict(set)
        self._reused = 0

    @property
    def looks_path(self) -> Path:
        """`nccl-tests.jsonl`."""
        return self._study.path / "nccl-tests.jsonl"

    def hello(self) -> Hello:
        """What this runs on, by a look at the default; nothing is written yet. Raises LaunchError
        where it does not run."""
        first = self._look(self._wanted.collectives[0], DEFAULT)
        return Hello(
            schema_version=SCHEMA_VERSION,
            version=first.tests_version or "unknown",
            backend=TOOL,
            nccl=Nccl(version=first.nccl_version),
            nodes=first.nodes or 1,
            ranks=first.ranks or 1,
            gpus=[Gpu(rank, first.gpu) for rank in range(first.ranks or 1)],
        )

    def environment(self) -> dict[str, str]:
        """The variables of a run with the default."""
        return environment(self._base, DEFAULT)

    @property
    def emulated_nodes(self) -> bool:
        """Whether "nodes" were made of one host."""
        return any(item.emulated_nodes for item in self._looks.values())

    def outcome(self, reason: str) -> Outcome:
        """How far it has come."""
        left_out = [
            (item.collective, item.choice, item.error)
            for item in self._looks.values()
            if item.error is not None
        ]
        spent = self._now() - self._started
        return Outcome(reason, self._points, self._reused, spent, left_out)

    def plan(self) -> list[Task]:
        """Every process of every round, by what is known without forcing anything."""
        return [task for number in range(self._wanted.rounds) for task in self._round(number)]

    def choices(self, collective: Collective) -> list[AnyChoice]:
        """What is run of a collective: the default, and all that NCCL says it can choose."""
        offered = self._look(collective, DEFAULT).usable or possible(collective)
        return [DEFAULT, *sorted(offered, key=lambda choice: choice.label)]

    def recall(self) -> None:
        """Take in what the study holds of this sweep."""
        recorded: dict[tuple[Collective, AnyChoice], Look] = {}
        if self.looks_path.exists():
            for item in self._study.read_lines(self.looks_path, Look):
                if self._covers(item):
                    recorded[item.collective, item.choice] = item
        for key, item in recorded.items():
            if self._looks.setdefault(key, item) == item:
                self._kept.add(key)
        hello = self.hello()
        if self._study.samples_path.exists():
            for sample in self._study.samples():
                if self._is_ours(sample, hello):
                    known = self._known[sample.collective, sample.choice, sample.round]
                    known.add(sample.bytes)
                    self._reused += 1

    def run(self) -> Outcome:
        """Measure. What is measured is in the study when this returns or raises."""
        try:
            for collective in self._wanted.collectives:
                for choice in self.choices(collective):
                    if (collective, choice) not in self._looks:
                        self._spend(self._mean_s())
                    self._keep(self._look(collective, choice))
            self._measure_all()
        except _OutOfBudgetError:
            return self.outcome("budget")
        return self.outcome("done")

    def _measure_all(self) -> None:
        tasks = self.plan()
        for at, task in enumerate(tasks):
            if self._is_left_out(task):
                continue
            ahead = [item for item in tasks[at:] if not self._is_left_out(item)]
            left = math.fsum(self._expected_s(item) for item in ahead)
            spent = self._now() - self._started
            self._told(Status(spent, left, at, len(tasks), task))
            self._measure(task)

    def _round(self, number: int) -> Iterator[Task]:
        """The processes of one round in their order, as far as there is anything to measure."""
        pairs = [
            (collective, choice)
            for collective in self._wanted.collectives
            for choice in self.choices(collective)
        ]
        # An order, not a secret.
        random.Random(f"{self._wanted.seed} {number}").shuffle(pairs)  # noqa: S311
        for collective, choice in pairs:
            seen = self._looks.get((collective, choice))
            if seen is None:
                yield Task(number, collective, choice, self._wanted.low, self._wanted.high)
                continue
            missing = {item.bytes for item in seen.seen if item.choice == choice} - self._known[
                collective, choice, number
            ]
            if seen.error is None and missing:
                low, high = self._asked(min(missing)), self._asked(max(missing))
                yield Task(number, collective, choice, low, high)

    def _asked(self, size: int) -> int:
        """The size to ask for in order to get `size`: nccl-tests rounds down to whole vectors on
        every rank."""
        asked = self._wanted.low
        while asked < size:
            asked *= FACTOR
        return asked

    def _look(self, collective: Collective, choice: AnyChoice) -> Look:
        """What a choice is, by its first run. Raises LaunchError where that is the default and
        does not run."""
        key = (collective, choice)
        if key not in self._looks:
            self._looks[key] = look(
                self._site,
                collective,
                choice,
                self._wanted.low,
                self._wanted.high,
                base=self._base,
                limit_s=self._limit_s(key),
            )
        found = self._looks[key]
        if choice == DEFAULT and found.error is not None:
            tried = self._site.command(collective, 1024, 1024, variables=self.environment())
            raise LaunchError(
                f"{self._site.binary(collective).name} with NCCL's default {found.error}",
                hint=f"try it: {' '.join(tried)}",
            )
        return found

    def _keep(self, item: Look) -> None:
        key = (item.collective, item.choice)
        if key not in self._kept:
            self._study.append_lines(self.looks_path, [item])
            self._kept.add(key)

    def _covers(self, item: Look) -> bool:
        """Whether an earlier look tells what this sweep has to know. What did not run then is
        looked at again in a new range of sizes."""
        return (item.low, item.high) == (self._wanted.low, self._wanted.high)

    def _measure(self, task: Task) -> None:
        key = (task.collective, task.choice)
        self._spend(self._expected_s(task))
        began = self._now()
        at = datetime.now(UTC).isoformat(timespec="seconds")
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
        elif not ended.well:
            self._failed(task, ended.words())

    def _append(self, task: Task, output: bytes, at: str) -> int:
        """Keep the rows that a process has written, which was started at `at`; how many of them
        hold wrong results."""
        samples, _ = read_output(output, task.collective, task.choice, study=self._study.name)
        seen = self._looks[task.collective, task.choice]
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
            self._study.append_samples(kept)
            self._points += len(kept)
        return sum(bool(sample.wrong) for sample in samples)

    def _failed(self, task: Task, words: str) -> None:
        """A process that failed: the default stops the sweep, another choice is left out."""
        where = self._site.binary(task.collective).name
        if task.choice == DEFAULT:
            raise LaunchError(
                f"{where} with NCCL's default {words}",
                hint="what was measured is kept; the same command goes on",
            )
        key = (task.collective, task.choice)
        self._looks[key] = msgspec.structs.replace(self._looks[key], error=words)
        self._kept.discard(key)
        self._keep(self._looks[key])

    def _is_ours(self, sample: Sample, hello: Hello) -> bool:
        """Whether a sample is of such a sweep here; what was imported names a file."""
        source: Source = sample.source
        return (
            source.tool == TOOL
            and source.file_hash is None
            and not sample.in_place
            and (sample.nodes, sample.ranks) == (hello.nodes, hello.ranks)
        )

    def _expected_s(self, task: Task) -> float:
        known = self._seconds
        own = known.get((task.collective, task.choice))
        return self._mean_s() if own is None else own

    def _mean_s(self) -> float:
        """About how long a process takes."""
        known = self._seconds
        return math.fsum(known.values()) / len(known) if known else FIRST_GUESS_S

    def _spend(self, seconds: float) -> None:
        """Make sure that so many more seconds are within the budget."""
        budget = self._wanted.budget_s
        if budget is not None and self._now() - self._started + seconds > budget:
            raise _OutOfBudgetError

    def _is_left_out(self, task: Task) -> bool:
        return self._looks[task.collective, task.choice].error is not None

    def _limit_s(self, key: tuple[Collective, AnyChoice]) -> float:
        return max(_LEAST_LIMIT_S, _LIMIT_FACTOR * self._seconds.get(key, 0.0))


def words_of(left_out: Sequence[tuple[Collective, AnyChoice, str]]) -> list[str]:
    """What was left out, for people."""
    return [
        f"{collective.value} {choice_label(choice)}: {why}" for collective, choice, why in left_out
    ]

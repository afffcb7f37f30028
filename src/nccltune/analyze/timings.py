# SPDX-License-Identifier: Apache-2.0
"""Samples sorted into conditions, sizes and choices.

Samples that cannot be compared are counted.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nccltune.analyze.result import Condition
from nccltune.analyze.stats import median
from nccltune.model.choice import DEFAULT, AnyChoice, Choice, choice_label
from nccltune.model.sample import Purpose, Sample
from nccltune.model.scale import Scale

Series = dict[tuple[int, int], float]
"""Time in us by (round, repeat). A round belongs to one process (see `Rounds`)."""

_ONE_PROCESS_A_CHOICE = frozenset({"nccl-tests", "raw-csv"})
"""Tools that run one choice in each process. nccltune 0.1 wrote their samples without a process id
and counted rounds by occurrence, which is no order in time."""


@dataclass(frozen=True)
class Process:
    """One start of the measuring program.

    `at` is its time in seconds since 1970. `stated_round` is the round that the user stated for it.
    Both are None if unknown.
    """

    name: str
    at: float | None = None
    stated_round: int | None = None


@dataclass
class Rounds:
    """The rounds of a study, and the process that each round belongs to.

    Rounds are numbered through all processes of a study, so timings of two processes never share
    one.
    """

    processes: list[Process] = field(default_factory=list)
    _process_of: list[int] = field(default_factory=list)
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)

    def number(self, sample: Sample) -> int:
        """Return the round number of `sample`. The first timing of a round gets a new number."""
        name = _process_name(sample)
        key = (name, sample.round)
        number = self._numbers.get(key)
        if number is None:
            place = self._places.get(name)
            if place is None:
                place = self._places[name] = len(self.processes)
                stated = sample.round if sample.source.in_rounds else None
                self.processes.append(Process(name, _seconds(sample.at), stated))
            number = self._numbers[key] = len(self._process_of)
            self._process_of.append(place)
        return number

    def process(self, number: int) -> int:
        """Return the index in `processes` of the process that round `number` belongs to.

        It is 0 for timings that were not sorted from samples.
        """
        return self._process_of[number] if number < len(self._process_of) else 0


@dataclass
class Timings:
    """All timings of one condition.

    `cells[bytes][choice]` is a series. `channels[bytes][choice]` is the largest number of channels
    that NCCL used, where it is known.
    """

    condition: Condition
    cells: dict[int, dict[AnyChoice, Series]] = field(default_factory=dict)
    samples: int = 0
    rounds_of: Rounds = field(default_factory=Rounds)
    channels: dict[int, dict[AnyChoice, int]] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """Return every measured size in ascending order."""
        return sorted(self.cells)

    @property
    def choices(self) -> list[AnyChoice]:
        """Return every measured choice: the default first, the others by label."""
        found = {choice for by_choice in self.cells.values() for choice in by_choice}
        return sorted(found, key=lambda choice: (choice != DEFAULT, choice_label(choice)))

    @property
    def rounds(self) -> int:
        """Return the largest number of rounds of any point."""
        return max(
            (
                len({round_ for round_, _ in series})
                for by_choice in self.cells.values()
                for series in by_choice.values()
            ),
            default=0,
        )

    def series(self, size: int, choice: AnyChoice) -> Series:
        """Return the timings of one point; empty if it was not measured."""
        return self.cells.get(size, {}).get(choice, {})

    def median(self, size: int, choice: AnyChoice) -> float | None:
        """Return the median time of one point in us; None if it was not measured."""
        series = self.series(size, choice)
        return median(list(series.values())) if series else None

    def log_gains(self, size: int, choice: AnyChoice) -> dict[int, float]:
        """Return for each round the log of default over `choice` time (0.1 is about 10 % faster).

        The timings of one round were made close together, so a temporary slowdown of the machine
        cancels out. Repeats within a round count as one.
        """
        default = _by_round(self.series(size, DEFAULT))
        other = _by_round(self.series(size, choice))
        return {round_: default[round_] - other[round_] for round_ in other if round_ in default}

    def note_channels(self, size: int, choice: AnyChoice, channels: int) -> None:
        """Record the number of channels that NCCL used for a choice at a size.

        The largest is kept.
        """
        seen = self.channels.setdefault(size, {})
        seen[choice] = max(channels, seen.get(choice, 0))

    @property
    def compares_processes(self) -> bool:
        """Return whether the choices and the default ran in different processes.

        Then no round compares them.
        """
        others = [choice for choice in self.choices if choice != DEFAULT]
        return bool(others) and not any(
            self.log_gains(size, choice) for size in self.cells for choice in others
        )


@dataclass
class SortedSamples:
    """The sorted samples: conditions in order, and the number of samples left out by reason.

    `doubts` are sentences on why the runs may come from several platforms. With any of them no rule
    is sure.
    """

    timings: list[Timings]
    samples: int
    wrong: dict[tuple[Condition, AnyChoice], int]
    without_scale: int
    one_rank: int
    doubts: list[str] = field(default_factory=list)


def sort_samples(samples: Iterable[Sample]) -> SortedSamples:
    """Sort samples for comparison.

    Samples with another purpose than tuning are left out. Also left out, but counted, are samples
    with wrong results (a wrong result can be fast), with an unknown scale, and with one rank. A
    sample with the (process, round, repeat) of an earlier sample of the same point becomes a
    further repeat, so no measurement is lost.

    Raises what iterating over `samples` raises: StudyError for those of a study.
    """
    found: dict[Condition, Timings] = {}
    rounds = Rounds()
    wrong: dict[tuple[Condition, AnyChoice], int] = defaultdict(int)
    without_scale = one_rank = total = 0
    for sample in samples:
        if sample.source.purpose is not Purpose.TUNE:
            continue
        total += 1
        if sample.nodes is None or sample.ranks is None:
            without_scale += 1
            continue
        if sample.ranks < 2:
            one_rank += 1
            continue
        condition = Condition(
            collective=sample.collective,
            scale=Scale(sample.nodes, sample.ranks),
            registered=sample.registered or sample.graph,
            in_place=sample.in_place,
            graph=sample.graph,
            dtype=sample.dtype,
            redop=sample.redop,
            root=sample.root,
        )
        if sample.wrong:
            wrong[condition, sample.choice] += 1
            continue
        if sample.bytes == 0:
            continue
        timings = found.get(condition)
        if timings is None:
            timings = found[condition] = Timings(condition, rounds_of=rounds)
        series = timings.cells.setdefault(sample.bytes, {}).setdefault(sample.choice, {})
        key = (rounds.number(sample), sample.repeat)
        while key in series:
            key = (key[0], key[1] + 1)
        series[key] = sample.time_us
        timings.samples += 1
        channels = _channels(sample)
        if channels is not None:
            timings.note_channels(sample.bytes, sample.choice, channels)
    ordered = sorted(found.values(), key=lambda timings: _order(timings.condition))
    return SortedSamples(ordered, total, dict(wrong), without_scale, one_rank)


def _process_name(sample: Sample) -> str:
    source = sample.source
    if source.process is not None:
        return source.process
    if source.tool not in _ONE_PROCESS_A_CHOICE:
        return f"{source.tool} {source.file_hash or source.host_hash}"
    return f"{source.tool} {source.file_hash} {choice_label(sample.choice)}"


def _seconds(at: str | None) -> float | None:
    """Return an ISO 8601 time as seconds since 1970; None if it is missing or invalid."""
    if at is None:
        return None
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _channels(sample: Sample) -> int | None:
    """Return the number of channels of a sample: the recorded number, else the forced one."""
    if sample.ran is not None and sample.ran.channels is not None:
        return sample.ran.channels
    return sample.choice.channels if isinstance(sample.choice, Choice) else None


def _order(condition: Condition) -> tuple[object, ...]:
    return (
        -condition.collective.nccl_id if condition.collective.tuned else 1,
        condition.collective.value,
        condition.scale.nodes,
        condition.scale.ranks,
        condition.registered,
        condition.graph,
        condition.in_place,
        condition.dtype or "",
        condition.redop or "",
        -1 if condition.root is None else condition.root,
    )


def _by_round(series: Series) -> dict[int, float]:
    """Return for each round the mean of the logs of its repeats."""
    logs: dict[int, list[float]] = defaultdict(list)
    for (round_, _), time_us in series.items():
        logs[round_].append(math.log(time_us))
    return {round_: math.fsum(values) / len(values) for round_, values in logs.items()}

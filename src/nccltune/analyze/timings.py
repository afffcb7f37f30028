# SPDX-License-Identifier: Apache-2.0
"""Sort samples into conditions, sizes and choices.

Samples that cannot be compared are counted and left out. A round is a set of timings taken close
together in time by one process. A point is one choice at one size under one condition.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from nccltune.analyze.default_runs import split_defaults
from nccltune.analyze.result import Condition
from nccltune.analyze.stats import median
from nccltune.model.choice import (
    DEFAULT,
    PARTIAL_CHOICES,
    TUNED_RUN,
    AnyChoice,
    Choice,
    choice_label,
)
from nccltune.model.collective import Collective
from nccltune.model.sample import Purpose, Sample
from nccltune.model.scale import Scale, count
from nccltune.model.sizes import format_bytes

Series = dict[tuple[int, int], float]
"""Times in us by (round, repeat)."""
_MOST_RUNS = 12
"""Of more runs of unknown scales no curves are shown."""

_ONE_PROCESS_A_CHOICE = frozenset({"nccl-tests", "raw-csv"})
"""Tools that run one choice in each process.

nccltune 0.1 stored their samples without a process id, and numbered them as rounds that were not
close in time: each choice in a file counts as a process.
"""


@dataclass(frozen=True)
class Process:
    """One start of the measuring program, `at` in seconds since 1970, and its stated round."""

    name: str
    at: float | None = None
    stated_round: int | None = None


@dataclass
class Rounds:
    """The rounds of a study, numbered uniquely, and the process of each."""

    processes: list[Process] = field(default_factory=list)
    _process_of: list[int] = field(default_factory=list)
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict)

    def number(self, sample: Sample) -> int:
        """Return the number of the round of `sample`; the first sample of a round adds a number."""
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

    def has(self, sample: Sample) -> bool:
        """Return whether a round of the process of `sample` has a number."""
        return _process_name(sample) in self._places

    def process(self, number: int) -> int:
        """Return the index of the process of round `number`; 0 if it is unknown."""
        return self._process_of[number] if number < len(self._process_of) else 0


@dataclass
class Timings:
    """All timings of one condition.

    `cells[bytes][choice]` holds the times of one point. `channels[bytes][choice]` is the largest
    number of channels that NCCL used; it has no entry if the number is unknown.
    `ran[bytes][process]` is the choice that NCCL reported to have run as its default in a process.
    `predicted[bytes]` is the choice with the least cost in NCCL's own cost table.
    `wrong` has what gave wrong results at any size: no rule uses it, see `sort_samples`.
    """

    condition: Condition
    cells: dict[int, dict[AnyChoice, Series]] = field(default_factory=dict)
    samples: int = 0
    rounds_of: Rounds = field(default_factory=Rounds)
    channels: dict[int, dict[AnyChoice, int]] = field(default_factory=dict)
    ran: dict[int, dict[int, Choice]] = field(default_factory=dict)
    predicted: dict[int, Choice] = field(default_factory=dict)
    wrong: set[AnyChoice] = field(default_factory=set)

    @property
    def sizes(self) -> list[int]:
        """Return every measured size in ascending order."""
        return sorted(self.cells)

    @property
    def choices(self) -> list[AnyChoice]:
        """Return every measured choice: first the default, then the others in order of label."""
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
        """Return the timings of one point; empty if the point was not measured."""
        return self.cells.get(size, {}).get(choice, {})

    def median(self, size: int, choice: AnyChoice) -> float | None:
        """Return the median time of one point in us; None if the point was not measured."""
        series = self.series(size, choice)
        return median(list(series.values())) if series else None

    def log_gains(self, size: int, choice: AnyChoice) -> dict[int, float]:
        """Return the log of default time over `choice` time for each round that has both.

        Timings of one round are close together, so slowdowns cancel. Repeats are averaged.
        """
        default = _by_round(self.series(size, DEFAULT))
        other = _by_round(self.series(size, choice))
        return {round_: default[round_] - other[round_] for round_ in other if round_ in default}

    def default_ran(self, size: int) -> Choice | None:
        """Return what NCCL ran as its default, else what its cost table predicts."""
        if self.ran_predicted:
            return self.predicted.get(size)
        ran = next(iter(self.ran.get(size, {}).values()), None)
        return None if ran is None else ran.without_channels()

    @property
    def ran_predicted(self) -> bool:
        """Return whether NCCL reported at no size what it ran, but its cost table is known."""
        return bool(self.predicted) and not any(self.ran.values())

    def add(self, size: int, choice: AnyChoice, key: tuple[int, int], time_us: float) -> None:
        """Add a timing. If the round and repeat of `key` have one already, use the next repeat."""
        series = self.cells.setdefault(size, {}).setdefault(choice, {})
        while key in series:
            key = (key[0], key[1] + 1)
        series[key] = time_us

    def note_channels(self, size: int, choice: AnyChoice, channels: int) -> None:
        """Record a number of channels that NCCL used for a choice at a size. Keep the largest."""
        seen = self.channels.setdefault(size, {})
        seen[choice] = max(channels, seen.get(choice, 0))

    @property
    def compares_processes(self) -> bool:
        """Return whether no choice shares a round with the default, so that processes compare."""
        others = [choice for choice in self.choices if choice != DEFAULT]
        return bool(others) and not any(
            self.log_gains(size, choice) for size in self.cells for choice in others
        )


class WrongResults(NamedTuple):
    """What gave wrong results in any timing of a collective at a scale, and at which sizes."""

    collective: Collective
    scale: Scale
    choice: AnyChoice
    sizes: list[int]

    def covers(self, choice: AnyChoice) -> bool:
        """Return whether no rule may use `choice`: where the default is wrong, this is any.

        Whether data arrive intact depends on timing as well, so the sizes at which none was wrong
        prove nothing.
        """
        if not isinstance(choice, Choice):
            return False
        if isinstance(self.choice, Choice):
            return choice.without_channels() == self.choice.without_channels()
        name, _, value = str(self.choice).partition("=")
        own = choice.algorithm if name == "NCCL_ALGO" else choice.protocol
        return self.choice == DEFAULT or value.lower() == own.replace("_", "")

    @property
    def sentence(self) -> str:
        """Return what was wrong where, and what follows."""
        ends = " to ".join(dict.fromkeys(map(format_bytes, (min(self.sizes), max(self.sizes)))))
        what, end = choice_label(self.choice), "so no rule uses it here, whatever the size"
        if self.choice == DEFAULT:
            what, end = (
                "calls without a forced choice",
                "so no rule is made that could hide them: find the cause",
            )
        return (
            f"{self.collective.prose}, {self.scale}: {what} gave wrong results at {ends} "
            f"({count(len(self.sizes), 'timing')} failed the data check), {end}"
        )


@dataclass
class SortedSamples:
    """The sorted samples by condition, and counts of those left out by reason.

    With `doubts`, sentences on why runs may come from several platforms, no rule is sure.
    `unscaled` runs of unknown scale, and `partial` ones that forced half a choice, can be shown but
    not compared.
    """

    timings: list[Timings]
    samples: int
    wrong: Sequence[WrongResults]
    without_scale: int
    one_rank: int
    doubts: list[str] = field(default_factory=list)
    unscaled: list[Timings] = field(default_factory=list)
    partial: list[Timings] = field(default_factory=list)

    @property
    def curves(self) -> list[Timings]:
        """Return everything of which a curve can be shown."""
        return [*self.timings, *self.unscaled, *self.partial]


def sort_samples(
    samples: Iterable[Sample],
    default_runs: Collection[str] = (),
    names: Mapping[str, str] | None = None,
) -> SortedSamples:
    """Sort samples for comparison.

    Runs labelled default in which NCCL ran different algorithms or protocols are separated (see
    `split_defaults`). `default_runs` are the processes that surely ran the default. `names` are the
    files of processes, which name runs of an unknown scale.

    Samples that were not made for tuning and samples of 0 bytes are left out. Samples with wrong
    results, with an unknown scale, and with one rank are left out and counted. A choice with a
    wrong result is left out at all sizes of its collective and scale; if `verify` found it, too;
    if NCCL's default has one, all choices are. A sample with the process, round and repeat of an
    earlier sample of the same point becomes a further repeat, so no measurement is lost.

    Raises what iterating over `samples` raises, such as StudyError.
    """
    found: dict[Condition, Timings] = {}
    rounds = Rounds()
    bad: dict[tuple[Collective, Scale, AnyChoice], list[int]] = defaultdict(list)
    unscaled: list[Sample] = []
    one_rank = total = 0
    for sample in samples:
        if sample.source.purpose is not Purpose.TUNE:
            if sample.wrong and sample.source.purpose is Purpose.VERIFY and sample.ranks != 1:
                ran = sample.ran and sample.choice == TUNED_RUN and sample.ran.without_channels()
                scale = Scale(sample.nodes or 0, sample.ranks or 0)
                bad[sample.collective, scale, ran or sample.choice].append(sample.bytes)
            continue
        total += 1
        unknown = sample.nodes is None or sample.ranks is None
        if sample.ranks == 1:
            one_rank += 1
            continue
        if unknown and not sample.wrong:
            unscaled.append(sample)
            continue
        condition = _condition(sample, Scale(sample.nodes or 0, sample.ranks or 0))
        if sample.wrong:
            bad[sample.collective, condition.scale, sample.choice].append(sample.bytes)
        elif sample.bytes:
            _add(found, condition, sample, rounds)
    # A run that was imported again with its scale is not left out.
    unscaled = [sample for sample in unscaled if not rounds.has(sample)]
    single = _single_runs(unscaled, rounds, names or {})
    without_scale = len(unscaled) - sum(timings.samples for timings in single)
    wrong = [WrongResults(*key, sizes) for key, sizes in bad.items()]
    every = sorted(found.values(), key=lambda timings: _order(timings.condition))
    for timings in every:
        leave_out_wrong(timings, wrong)
    every = [timings for timings in every if timings.cells]
    ordered = [timings for timings in every if timings.condition.limits is None]
    partial = [timings for timings in every if timings.condition.limits is not None]
    doubts = split_defaults(ordered, rounds, default_runs)
    return SortedSamples(ordered, total, wrong, without_scale, one_rank, doubts, single, partial)


def leave_out_wrong(timings: Timings, wrong: Iterable[WrongResults]) -> None:
    """Take the choices out that gave wrong results at this collective and scale, at all sizes."""
    what = (timings.condition.collective, timings.condition.scale)
    for one in (one for one in wrong if what == (one.collective, one.scale)):
        timings.wrong.add(one.choice)
        for size, by_choice in [*timings.cells.items()]:
            for choice in filter(one.covers, [*by_choice]):
                timings.samples -= len(by_choice.pop(choice))
            if not by_choice:
                del timings.cells[size]


def _condition(sample: Sample, scale: Scale) -> Condition:
    return Condition(
        collective=sample.collective,
        scale=scale,
        registered=sample.registered or sample.graph,
        in_place=sample.in_place,
        graph=sample.graph,
        dtype=sample.dtype,
        redop=sample.redop,
        root=sample.root,
        pipe_ops=sample.pipe_ops,
        group_calls=sample.group_calls,
        limits=next((limits for limits in PARTIAL_CHOICES if limits == sample.choice), None),
    )


def _add(
    found: dict[Condition, Timings], condition: Condition, sample: Sample, rounds: Rounds
) -> None:
    timings = found.get(condition)
    if timings is None:
        timings = found[condition] = Timings(condition, rounds_of=rounds)
    number = rounds.number(sample)
    timings.add(sample.bytes, sample.choice, (number, sample.repeat), sample.time_us)
    timings.samples += 1
    if sample.choice == DEFAULT and sample.ran is not None:
        seen = timings.ran.setdefault(sample.bytes, {})
        seen[rounds.process(number)] = sample.ran
    channels = _channels(sample)
    if channels is not None:
        timings.note_channels(sample.bytes, sample.choice, channels)


def _single_runs(
    unscaled: Iterable[Sample], rounds: Rounds, names: Mapping[str, str]
) -> list[Timings]:
    """Return the runs of an unknown scale, each with a curve of its own, if they are few."""
    usable = [
        (_condition(sample, Scale(sample.nodes or 0, sample.ranks or 0)), sample)
        for sample in unscaled
        if not isinstance(sample.choice, Choice) and sample.choice != TUNED_RUN
        if sample.bytes
    ]
    runs: dict[Condition, dict[str, set[int]]] = defaultdict(dict)
    for condition, sample in usable:
        sizes = runs[_alike(condition)].setdefault(_process_name(sample), set())
        sizes.add(-sample.bytes if sample.in_place else sample.bytes)
    if len({name for alike in runs.values() for name in alike}) > _MOST_RUNS:
        return []
    labels = {alike: _run_labels(sizes, names) for alike, sizes in runs.items()}
    found: dict[Condition, Timings] = {}
    for condition, sample in usable:
        run = labels[_alike(condition)].get(_process_name(sample), "")
        _add(found, msgspec.structs.replace(condition, run=run), sample, rounds)
    return sorted(found.values(), key=lambda timings: _order(timings.condition))


def _run_labels(sizes: Mapping[str, set[int]], names: Mapping[str, str]) -> dict[str, str]:
    """Return a label of each process; empty if the runs share no size, as one sweep in pieces."""
    if sum(map(len, sizes.values())) == len(set().union(*sizes.values())):
        return {}
    labels = {
        process: names.get(process, f"run {number}") for number, process in enumerate(sizes, 1)
    }
    parts = [label.rpartition(", ") for label in labels.values()]
    if len({file for file, _, _ in parts}) == 1:
        return dict(zip(labels, (run for _, _, run in parts), strict=True))
    return labels


def _alike(condition: Condition) -> Condition:
    return Condition(condition.collective, condition.scale, limits=condition.limits)


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
        condition.pipe_ops,
        condition.group_calls,
        condition.limits or "",
        condition.run,
    )


def _by_round(series: Series) -> dict[int, float]:
    logs: dict[int, list[float]] = defaultdict(list)
    for (round_, _), time_us in series.items():
        logs[round_].append(math.log(time_us))
    return {round_: math.fsum(values) / len(values) for round_, values in logs.items()}

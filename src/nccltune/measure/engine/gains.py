# SPDX-License-Identifier: Apache-2.0
"""The gains of every process over the defaults that ran just before and just after it.

A *default* is a process with NCCL's default settings, a *candidate* a process with other settings.
A gain is the natural log of default time over candidate time. Each process counts as one value,
because all its calls share the memory placement and the connections of that process.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import Interval, estimate, median, normal_z
from nccltune.measure.engine.process_record import ProcessRun
from nccltune.measure.engine.settings import DEFAULT, Settings
from nccltune.measure.engine.workload import RACED, Call

CONFIDENCE = 0.99
"""Confidence to exclude settings, which an experiment does some dozen times."""
_PRIOR_NOISE = 0.02
"""Assumed standard deviation of a process's mean gain, worth `_PRIOR_WEIGHT` defaults."""
_PRIOR_WEIGHT = 2.0
LEAST_NOISE = 0.002


class Score(NamedTuple):
    """The mean gain of `n` processes over all sizes of send/recv, with its standard error."""

    gain: float
    error: float
    n: int

    @property
    def low(self) -> float:
        """Return the lower confidence bound of the gain."""
        return self.gain - normal_z(CONFIDENCE) * self.error

    @property
    def high(self) -> float:
        """Return the upper confidence bound of the gain."""
        return self.gain + normal_z(CONFIDENCE) * self.error


Gains = Sequence[Mapping[Call, float]]
"""For each process, the gain of each call."""


class ProcessGain(msgspec.Struct, frozen=True):
    """A gain (1.4 is 1.4 times as fast) with its 95 % interval, from `processes` candidates.

    `known` is False if the noise is assumed, because there are too few to show it.
    """

    gain: float
    low: float
    high: float
    processes: int
    known: bool


class NeighbourGains:
    """The results of all processes so far, in the order in which they ran."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = tuple(calls)
        self.raced = [call for call in calls if call[0] is RACED]
        self._runs: dict[int, ProcessRun] = {}
        self._failed: dict[Settings, str] = {}

    def add(self, run: ProcessRun) -> None:
        """Add a process. A failed one makes its settings fail; a failed default is ignored."""
        missing = [call for call in self.calls if call not in run.times_us]
        if run.error is None and not missing:
            self._runs[run.process] = run
        elif run.settings != DEFAULT:
            what = f"{missing[0][0].value} of {missing[0][1]} bytes failed" if missing else ""
            self._failed[run.settings] = run.error or what

    @property
    def failed(self) -> Mapping[Settings, str]:
        """Return the settings with which a process failed, each with the reason."""
        return self._failed

    def candidates_since_default(self) -> int | None:
        """Return how many candidates ran after the last default; None if none has run."""
        newest_first = [self._runs[process] for process in sorted(self._runs, reverse=True)]
        return next(
            (count for count, run in enumerate(newest_first) if run.settings == DEFAULT), None
        )

    def runs_with(self, settings: Settings) -> list[ProcessRun]:
        """Return the processes with these settings, in order."""
        return [self._runs[p] for p in sorted(self._runs) if self._runs[p].settings == settings]

    def gains(self, settings: Settings) -> list[dict[Call, float]]:
        """Return, for each process with these settings, the gain of each call.

        The reference is the mean log time of the defaults just before and after, or of one; a
        process with neither is left out.
        """
        found = []
        for run in self.runs_with(settings):
            beside = self._beside(run)
            if beside:
                found.append({call: _gain(run, beside, call) for call in self.calls})
        return found

    @property
    def next_process(self) -> int:
        """Return a number that is larger than the numbers of all processes so far."""
        return max(self._runs, default=-1) + 1

    def pair_gains(
        self, settings: Settings, since: int, *, over: Settings = DEFAULT
    ) -> list[dict[Call, float]]:
        """Return, for each pair of neighbours in one session, the gain of `settings` over `over`.

        No process is in two pairs, so the gains are independent. Processes before `since` do not
        count.
        """
        runs = [self._runs[process] for process in sorted(self._runs) if process >= since]
        found = []
        at = 0
        while at + 1 < len(runs):
            one, other = runs[at], runs[at + 1]
            if one.session == other.session and {one.settings, other.settings} == {over, settings}:
                run, beside = (other, one) if one.settings == over else (one, other)
                found.append({call: _gain(run, [beside], call) for call in self.calls})
                at += 1
            at += 1
        return found

    def score(self, settings: Settings, first: int | None = None) -> Score:
        """Return the score of the processes with these settings, or of the `first` of them."""
        return self.score_of(self.gains(settings)[:first])

    def score_of(self, gains: Sequence[Mapping[Call, float]]) -> Score:
        """Return the score of these gains; without any, 0 with an infinite error."""
        if not gains:
            return Score(0.0, math.inf, 0)
        means = [_mean([gain[call] for call in self.raced]) for gain in gains]
        return Score(_mean(means), self.noise(self.raced) / math.sqrt(len(means)), len(means))

    def noise(self, calls: Sequence[Call]) -> float:
        """Return the standard deviation of one process's mean gain over `calls`.

        It is of the differences of neighbouring defaults, and at first mostly `_PRIOR_NOISE`.
        """
        squares = [
            _mean([_gain(run, beside, call) for call in calls]) ** 2
            for run, beside in self._defaults_with_neighbours()
        ]
        total = _PRIOR_WEIGHT * _PRIOR_NOISE**2 + math.fsum(squares)
        return max(LEAST_NOISE, math.sqrt(total / (_PRIOR_WEIGHT + len(squares))))

    def default_us(self, call: Call) -> float:
        """Return the median time of a call over the defaults, in us."""
        return median([run.times_us[call] for run in self.runs_with(DEFAULT)])

    def _defaults_with_neighbours(self) -> list[tuple[ProcessRun, list[ProcessRun]]]:
        by_session: dict[int, list[ProcessRun]] = defaultdict(list)
        for run in self.runs_with(DEFAULT):
            by_session[run.session].append(run)
        return [
            (runs[at], [runs[at - 1], runs[at + 1]])
            for runs in by_session.values()
            for at in range(1, len(runs) - 1)
        ]

    def _beside(self, run: ProcessRun) -> list[ProcessRun]:
        """Return the defaults beside a process in its session; their mean cancels slow drift."""
        defaults = [other for other in self.runs_with(DEFAULT) if other.session == run.session]
        before = [other for other in defaults if other.process < run.process]
        after = [other for other in defaults if other.process > run.process]
        return before[-1:] + after[:1]


def pooled(
    results: NeighbourGains,
    gains: Gains,
    calls: Sequence[Call],
    confidence: float = 0.95,
) -> Interval:
    """Return the mean gain over `calls` and processes, as a natural log with its interval.

    Neither may be empty. Fewer than four processes use the noise of the defaults.
    """
    values = [math.fsum(gain[call] for call in calls) / len(calls) for gain in gains]
    found = estimate(values, assumed_sd=results.noise(calls), confidence=confidence)
    assert found is not None
    return found


def _gain(run: ProcessRun, beside: Sequence[ProcessRun], call: Call) -> float:
    return _mean([math.log(other.times_us[call]) for other in beside]) - math.log(
        run.times_us[call]
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

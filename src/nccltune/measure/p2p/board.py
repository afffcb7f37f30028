# SPDX-License-Identifier: Apache-2.0
"""The gains of every process over the defaults that ran before and after it.

A process is one value: its calls share where memory came to lie and how connections were made.
Gains are natural logs of default over candidate time, as everywhere.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccltune.analyze.stats import median, normal_z
from nccltune.measure.p2p.runs import Run
from nccltune.measure.p2p.settings import DEFAULT, Settings
from nccltune.measure.p2p.workload import RACED, Call

CONFIDENCE = 0.99
"""Of the bounds by which settings are dropped: the question is asked some dozen times."""
_PRIOR_NOISE = 0.02
"""Standard deviation of one process's mean gain before there are defaults to tell it; it goes on
to count for `_PRIOR_WEIGHT` of them."""
_PRIOR_WEIGHT = 2.0
LEAST_NOISE = 0.002


class Score(NamedTuple):
    """The mean gain over all raced sizes of `n` processes, with its standard error."""

    gain: float
    error: float
    n: int

    @property
    def low(self) -> float:
        """Its pessimistic bound."""
        return self.gain - normal_z(CONFIDENCE) * self.error

    @property
    def high(self) -> float:
        """Its optimistic bound."""
        return self.gain + normal_z(CONFIDENCE) * self.error


class Board:
    """All processes so far, by the order in which they ran."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = tuple(calls)
        self.raced = [call for call in calls if call[0] is RACED]
        self._runs: dict[int, Run] = {}
        self._failed: dict[Settings, str] = {}

    def add(self, run: Run) -> None:
        """Take in a process that came to its end."""
        missing = [call for call in self.calls if call not in run.times_us]
        if run.error is None and not missing:
            self._runs[run.process] = run
        elif run.settings != DEFAULT:
            what = f"{missing[0][0].value} of {missing[0][1]} bytes failed" if missing else ""
            self._failed[run.settings] = run.error or what

    @property
    def failed(self) -> Mapping[Settings, str]:
        """Settings with which NCCL did not run, and why."""
        return self._failed

    def candidates_since_default(self) -> int | None:
        """How many candidates have run since the last default; None before the first."""
        newest_first = [self._runs[process] for process in sorted(self._runs, reverse=True)]
        return next(
            (count for count, run in enumerate(newest_first) if run.settings == DEFAULT), None
        )

    def of(self, settings: Settings) -> list[Run]:
        """Its processes in order."""
        return [self._runs[p] for p in sorted(self._runs) if self._runs[p].settings == settings]

    def gains(self, settings: Settings) -> list[dict[Call, float]]:
        """For each process with these settings: by call its gain over the defaults beside it."""
        found = []
        for run in self.of(settings):
            beside = self._beside(run)
            if beside:
                found.append({call: _gain(run, beside, call) for call in self.calls})
        return found

    @property
    def end(self) -> int:
        """A number above that of every process so far."""
        return max(self._runs, default=-1) + 1

    def pairs(
        self, settings: Settings, since: int, *, over: Settings = DEFAULT
    ) -> list[dict[Call, float]]:
        """Gains of neighbours, a process with these settings and one with those that it is to be
        faster than (`over`), in either order, among the processes from number `since` on. No
        process is in two pairs, so that their gains are independent."""
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
        """Of its processes, or the first few of them."""
        return self.score_of(self.gains(settings)[:first])

    def score_of(self, gains: Sequence[Mapping[Call, float]]) -> Score:
        """Of some processes."""
        if not gains:
            return Score(0.0, math.inf, 0)
        means = [_mean([gain[call] for call in self.raced]) for gain in gains]
        return Score(_mean(means), self.noise(self.raced) / math.sqrt(len(means)), len(means))

    def noise(self, calls: Sequence[Call]) -> float:
        """Standard deviation of the mean gain over `calls` of one process: how far a default lies
        from the defaults before and after it, which is what is asked of a candidate."""
        squares = [
            _mean([_gain(run, beside, call) for call in calls]) ** 2
            for run, beside in self._defaults_with_neighbours()
        ]
        total = _PRIOR_WEIGHT * _PRIOR_NOISE**2 + math.fsum(squares)
        return max(LEAST_NOISE, math.sqrt(total / (_PRIOR_WEIGHT + len(squares))))

    def default_us(self, call: Call) -> float:
        """The median of the defaults."""
        return median([run.times_us[call] for run in self.of(DEFAULT)])

    def _defaults_with_neighbours(self) -> list[tuple[Run, list[Run]]]:
        by_session: dict[int, list[Run]] = defaultdict(list)
        for run in self.of(DEFAULT):
            by_session[run.session].append(run)
        return [
            (runs[at], [runs[at - 1], runs[at + 1]])
            for runs in by_session.values()
            for at in range(1, len(runs) - 1)
        ]

    def _beside(self, run: Run) -> list[Run]:
        """The defaults just before and just after a process, of the same session: what drifts
        slowly cancels."""
        defaults = [other for other in self.of(DEFAULT) if other.session == run.session]
        before = [other for other in defaults if other.process < run.process]
        after = [other for other in defaults if other.process > run.process]
        return before[-1:] + after[:1]


def _gain(run: Run, beside: Sequence[Run], call: Call) -> float:
    return _mean([math.log(other.times_us[call]) for other in beside]) - math.log(
        run.times_us[call]
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

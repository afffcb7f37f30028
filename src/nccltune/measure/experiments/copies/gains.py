# SPDX-License-Identifier: Apache-2.0
"""The gain of copy engines over NCCL, in pairs of processes that ran one after the other.

A gain is the natural log of NCCL's time over the copy engines' time. Each pair counts as one value,
because all calls of a process share its memory placement and connections.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from nccltune.analyze.stats import Interval, estimate, median
from nccltune.measure.experiments.copies.record import ProcessRun
from nccltune.measure.experiments.copies.settings import Carrier

_PRIOR_NOISE = 0.02
"""Assumed standard deviation of a process's mean gain, worth `_PRIOR_WEIGHT` processes."""
_PRIOR_WEIGHT = 2.0
LEAST_NOISE = 0.002


class ProcessGain(msgspec.Struct, frozen=True):
    """A gain (1.4 is 1.4 times as fast) with its 95 % interval, from `processes` pairs.

    `known` is False if the noise is assumed, because there are too few to show it.
    """

    gain: float
    low: float
    high: float
    processes: int
    known: bool


class PairGains:
    """The results of all processes so far, in the order in which they ran, at these `sizes`."""

    def __init__(self, sizes: Sequence[int], pairs: int) -> None:
        self.sizes = tuple(sizes)
        self.pairs = pairs
        """The number of pairs to compare; later ones do not count."""
        self.failed: str | None = None
        """Why a process with copy engines failed."""
        self._runs: dict[int, ProcessRun] = {}

    def add(self, run: ProcessRun) -> None:
        """Add a process; a failed one of NCCL alone is ignored."""
        missing = [size for size in self.sizes if size not in run.times_us]
        if run.error is None and not missing:
            self._runs[run.line.process] = run
        elif run.carrier is Carrier.COPY_ENGINE:
            self.failed = run.error or f"sendrecv of {missing[0]} bytes failed"

    @property
    def compared(self) -> bool:
        """Return whether all pairs have run."""
        return len(self.gains()) >= self.pairs

    def runs_with(self, carrier: Carrier) -> list[ProcessRun]:
        """Return the processes with this carrier, in order."""
        return [run for _, run in sorted(self._runs.items()) if run.carrier is carrier]

    def gains(self) -> list[dict[int, float]]:
        """Return, for each pair of neighbours in one session, the gain by size.

        No process is in two pairs, so the gains are independent.
        """
        runs = [run for _, run in sorted(self._runs.items())]
        found = []
        at = 0
        while at + 1 < len(runs):
            one, other = runs[at], runs[at + 1]
            if one.line.session == other.line.session and one.carrier is not other.carrier:
                native, copied = (one, other) if one.carrier is Carrier.NATIVE else (other, one)
                found.append({size: _gain(copied, [native], size) for size in self.sizes})
                at += 1
            at += 1
        return found[: self.pairs]

    def noise(self, sizes: Sequence[int]) -> float:
        """Return the standard deviation of one process's mean gain over `sizes`.

        It is of the differences of neighbouring processes of NCCL alone, and at first mostly
        `_PRIOR_NOISE`.
        """
        by_session: dict[int, list[ProcessRun]] = defaultdict(list)
        for run in self.runs_with(Carrier.NATIVE):
            by_session[run.line.session].append(run)
        squares = [
            _mean([_gain(runs[at], [runs[at - 1], runs[at + 1]], size) for size in sizes]) ** 2
            for runs in by_session.values()
            for at in range(1, len(runs) - 1)
        ]
        total = _PRIOR_WEIGHT * _PRIOR_NOISE**2 + math.fsum(squares)
        return max(LEAST_NOISE, math.sqrt(total / (_PRIOR_WEIGHT + len(squares))))

    def native_us(self, size: int) -> float:
        """Return the median time with NCCL alone, in us."""
        return median([run.times_us[size] for run in self.runs_with(Carrier.NATIVE)])

    def pooled(
        self, gains: Sequence[Mapping[int, float]], sizes: Sequence[int], confidence: float = 0.95
    ) -> Interval:
        """Return the mean gain over `sizes` and pairs, as a natural log with its interval.

        Neither may be empty. Fewer than four pairs use the noise of the processes.
        """
        values = [_mean([gain[size] for size in sizes]) for gain in gains]
        found = estimate(values, assumed_sd=self.noise(sizes), confidence=confidence)
        assert found is not None
        return found


def _gain(run: ProcessRun, beside: Sequence[ProcessRun], size: int) -> float:
    return _mean([math.log(other.times_us[size]) for other in beside]) - math.log(
        run.times_us[size]
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

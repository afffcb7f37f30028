# SPDX-License-Identifier: Apache-2.0
"""Contrasts: how much faster a choice is than the default over some sizes, with the uncertainty.

A contrast is the natural log of default time over choice time. There are two cases:

- Some rounds have both the choice and the default (`PairedContrasts`). Each round is a replicate.
  Offsets of the process and slowdowns of the machine cancel out.
- No round has both (`ProcessContrasts`). Each process is a replicate, whatever its number of
  timings. A model of drift between the processes is fitted and subtracted.

Variances of paired contrasts are moderated, which means pooled with similar variances (Smyth 2004,
doi:10.2202/1544-6115.1027). Similar are the variances of other choices over the same sizes, and of
the same choice at neighbouring sizes. A variance far above the pooled one is not moderated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nccltune.analyze.stats import MIN_ROUNDS, median, student_t, trimmed_mean
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

Floats = npt.NDArray[np.float64]

_SHARED = 0.25
"""Squared correlation of two contrasts that share the default's timings."""
_ALONE = 2.5
"""A variance above this multiple of the pooled variance is not moderated."""
_MOST_DRIFT_TERMS = 3
"""The highest degree of the polynomial in time that models drift."""


class Contrast(NamedTuple):
    """A contrast: `value` is a natural log, `error` its standard error, from `n` runs.

    `allowance` is a possible bias from the order of processes, which more runs do not reduce.
    """

    value: float
    error: float
    degrees: float
    n: int
    allowance: float = 0.0

    def half_width(self, confidence: float) -> float:
        """Return half the width of the two-sided interval at `confidence` (0.95 is 95 %)."""
        return student_t(confidence, self.degrees) * self.error + self.allowance


@dataclass
class PairedContrasts:
    """Contrasts of choices and the default that were measured in the same rounds.

    `gains[choice]` has shape (rounds, sizes), NaN for an unmeasured size. `columns` in the methods
    are indices of sizes.
    """

    gains: dict[Choice, Floats]
    _variances: dict[tuple[Choice, tuple[int, ...]], tuple[float, int] | None] = field(
        default_factory=dict
    )

    def values(self, choice: Choice, columns: Sequence[int]) -> list[float]:
        """Return the mean gain over `columns` for every round that measured all these sizes."""
        gains = self.gains.get(choice)
        if gains is None:
            return []
        means: Floats = gains[:, list(columns)].mean(axis=1)
        return [float(value) for value in means[~np.isnan(means)]]

    def contrast(self, choice: Choice, columns: Sequence[int]) -> Contrast | None:
        """Return the contrast over `columns`; None if fewer than four rounds measured them all."""
        values = self.values(choice, columns)
        if len(values) < MIN_ROUNDS:
            return None
        own = trimmed_mean(values)
        variance, degrees = self._moderated(choice, tuple(columns), own.variance, own.degrees)
        return Contrast(own.centre, math.sqrt(variance / len(values)), degrees, len(values))

    def _moderated(
        self, choice: Choice, columns: tuple[int, ...], variance: float, degrees: int
    ) -> tuple[float, float]:
        others = [self._variance(other, columns) for other in self.gains if other != choice]
        beside = [self._variance(choice, window) for window in self._windows_beside(columns)]
        near = [item for item in beside if item is not None]
        pool = [*(item for item in others if item is not None), *near]
        if pool and variance <= _ALONE * _usual_variance(pool):
            return moderate(variance, degrees, pool)
        # A choice may be noisier than other choices, but rarely at one size only. So compare its
        # variance with its own variance at neighbouring sizes.
        if near and variance <= _ALONE * _usual_variance(near):
            return moderate(variance, degrees, near)
        return variance, degrees

    def _variance(self, choice: Choice, columns: tuple[int, ...]) -> tuple[float, int] | None:
        """Return the variance of a round's mean gain and its degrees of freedom; None under 4
        rounds."""
        key = (choice, columns)
        if key not in self._variances:
            values = self.values(choice, columns)
            found = trimmed_mean(values) if len(values) >= MIN_ROUNDS else None
            self._variances[key] = None if found is None else (found.variance, found.degrees)
        return self._variances[key]

    def _windows_beside(self, columns: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return `columns` shifted by one and two times their width, to both sides, in range."""
        width = columns[-1] - columns[0] + 1
        last = next(iter(self.gains.values())).shape[1] - 1
        return [
            tuple(column + step * width for column in columns)
            for step in (-2, -1, 1, 2)
            if columns[0] + step * width >= 0 and columns[-1] + step * width <= last
        ]


def _usual_variance(pool: Sequence[tuple[float, int]]) -> float:
    return math.fsum(value * count for value, count in pool) / sum(count for _, count in pool)


def moderate(
    variance: float, degrees: int, others: Sequence[tuple[float, int]]
) -> tuple[float, float]:
    """Return `variance` pooled with others (variance, degrees), and its degrees of freedom."""
    usual = _usual_variance(others)
    prior = sum(count for _, count in others) / (1 + _SHARED * (len(others) - 1))
    return (prior * usual + degrees * variance) / (prior + degrees), prior + degrees


class ProcessTimings(NamedTuple):
    """The timings of one choice in one process.

    `logs` are natural logs of the times by size, NaN if unmeasured. `at` is in seconds since 1970.
    `at` and the `stated_round` of the user are None if unknown.
    """

    process: int
    choice: AnyChoice
    logs: Floats
    at: float | None
    stated_round: int | None


class ProcessLayout(NamedTuple):
    """Whether a gain can be told from differences between processes and from drift."""

    separable: bool
    problem: str = ""
    remedy: str = ""


@dataclass
class ProcessContrasts:
    """Contrasts of choices that share no round with the default, from their processes."""

    processes: list[ProcessTimings]
    _fits: dict[bytes, "_Fit | None"] = field(default_factory=dict)
    _layouts: dict[Choice, ProcessLayout] = field(default_factory=dict)

    def layout(self, choice: Choice) -> ProcessLayout:
        """Return whether processes of `choice` and of the default can be compared (cached)."""
        if choice not in self._layouts:
            self._layouts[choice] = self._layout(choice)
        return self._layouts[choice]

    def _layout(self, choice: Choice) -> ProcessLayout:
        default, other = self._of(DEFAULT), self._of(choice)
        fewest = min(len(default), len(other))
        if fewest < MIN_ROUNDS:
            return ProcessLayout(
                False,
                f"with {_starts(fewest)} a choice, its gain and the difference between two "
                "processes cannot be separated",
                f"run the default and every choice at least {MIN_ROUNDS} times, in alternating "
                "order",
            )
        if all(item.stated_round is not None for item in (*default, *other)):
            common = {item.stated_round for item in default} & {item.stated_round for item in other}
            if len(common) >= MIN_ROUNDS:
                return ProcessLayout(True)
        elif all(item.at is not None for item in (*default, *other)):
            order = sorted((item.at, item.choice == DEFAULT) for item in (*default, *other))
            runs = 1 + sum(a[1] != b[1] for a, b in pairwise(order))
            if runs >= max(MIN_ROUNDS, fewest):
                return ProcessLayout(True)
            return ProcessLayout(
                False,
                "the runs of the default and of the choice follow one another in blocks, so that "
                "drift of the machine looks like a gain",
                "run them in alternating order: the default and every choice once a round",
            )
        return ProcessLayout(
            False,
            "nothing shows in which order the processes ran, so that drift of the machine may look "
            "like a gain",
            "keep the files' own times (or log with timestamps), or import with --in-rounds if the "
            "default and every choice ran once a round",
        )

    def contrast(self, choice: Choice, columns: Sequence[int]) -> Contrast | None:
        """Return the contrast over `columns` with the fitted drift subtracted, if there is one."""
        if not self.layout(choice).separable:
            return None
        fit = self._fit(columns)
        return None if fit is None else fit.contrast(choice, columns)

    def difference(self, choice: Choice, columns: Sequence[int]) -> float | None:
        """Return the contrast without a model of drift: the median over sizes of mean log times."""
        found = []
        for column in columns:
            sides = [
                [float(item.logs[column]) for item in self._of(side)] for side in (DEFAULT, choice)
            ]
            known = [[value for value in side if not math.isnan(value)] for side in sides]
            if all(known):
                first, second = (math.fsum(side) / len(side) for side in known)
                found.append(first - second)
        return median(found) if found else None

    def drift_bound(self, columns: Sequence[int]) -> float:
        """Return how far the machine may have drifted between two choices, as a natural log.

        It is the range of log times within a choice (median over choices) times the choices in
        between.
        """
        ranges = []
        for choice in self.choices:
            values = [float(item.logs[list(columns)].mean()) for item in self._of(choice)]
            known = [value for value in values if not math.isnan(value)]
            if len(known) > 1:
                ranges.append(max(known) - min(known))
        if not ranges:
            return 0.0
        return float(np.median(ranges)) * (len(self.choices) - 1)

    @cached_property
    def choices(self) -> list[AnyChoice]:
        """Return every choice that a process ran, the default first."""
        found = dict.fromkeys(item.choice for item in self.processes)
        return sorted(found, key=lambda choice: choice != DEFAULT)

    def _of(self, choice: AnyChoice) -> list[ProcessTimings]:
        return [item for item in self.processes if item.choice == choice]

    def _fit(self, columns: Sequence[int]) -> "_Fit | None":
        """Return the fit over the processes that measured all of `columns`, if they are enough."""
        whole = [not bool(np.isnan(item.logs[list(columns)]).any()) for item in self.processes]
        key = bytes(whole)
        if key not in self._fits:
            used = [item for item, keep in zip(self.processes, whole, strict=True) if keep]
            self._fits[key] = _Fit.of(used)
        return self._fits[key]


@dataclass
class _Fit:
    """A least-squares fit of log times: one level for each choice, and one drift for all.

    `members` has the choice of each process. `round_columns` are those of the rounds that the user
    stated; None if drift is a polynomial in time or not modelled.
    """

    choices: list[AnyChoice]
    members: npt.NDArray[np.int64]
    coefficients: Floats
    residuals: Floats
    inverse: Floats
    degrees: int
    round_columns: slice | None

    @classmethod
    def of(cls, used: Sequence[ProcessTimings]) -> "_Fit | None":
        """Return the fit; None without default or another choice, or degrees of freedom."""
        choices = list(dict.fromkeys(item.choice for item in used))
        if DEFAULT not in choices or len(choices) < 2:
            return None
        members = np.array([choices.index(item.choice) for item in used])
        levels = np.eye(len(choices))[members]
        drift, by_round = _drift_columns(used)
        design = np.hstack([levels, drift])
        rank = int(np.linalg.matrix_rank(design))
        degrees = len(used) - rank
        if degrees < 2:
            return None
        logs = np.vstack([item.logs for item in used])
        inverse = np.linalg.pinv(design)
        coefficients = inverse @ logs
        return cls(
            choices=choices,
            members=members,
            coefficients=coefficients,
            residuals=logs - design @ coefficients,
            inverse=inverse,
            degrees=degrees,
            round_columns=slice(len(choices), None) if by_round else None,
        )

    def contrast(self, choice: Choice, columns: Sequence[int]) -> Contrast | None:
        """Return the default's level minus that of `choice`, as the mean over `columns`."""
        if choice not in self.choices:
            return None
        here, there = self.choices.index(DEFAULT), self.choices.index(choice)
        levels = self.coefficients[:, list(columns)].mean(axis=1)
        residuals = self.residuals[:, list(columns)].mean(axis=1)
        usual = float((residuals**2).sum()) / self.degrees
        mine = (self.members == here) | (self.members == there)
        count = int(mine.sum())
        own_degrees = count - 2
        own = float((residuals[mine] ** 2).sum()) / own_degrees
        variance, degrees = (own, own_degrees) if own > _ALONE * usual else (usual, self.degrees)
        weights = self.inverse[here] - self.inverse[there]
        error = math.sqrt(variance * float((weights**2).sum()))
        return Contrast(
            float(levels[here] - levels[there]), error, degrees, count, self._allowance(levels)
        )

    def _allowance(self, levels: Floats) -> float:
        """Return the bias of the order within stated rounds: their median change of log time."""
        if self.round_columns is None:
            return 0.0
        rounds = np.concatenate([[0.0], levels[self.round_columns]])
        return float(np.median(np.abs(np.diff(rounds))))


def _drift_columns(used: Sequence[ProcessTimings]) -> tuple[Floats, bool]:
    """Return the columns for drift, and whether they are stated rounds.

    If all times are known and differ, they are a polynomial in time; else the stated rounds.
    """
    known = [item.at for item in used if item.at is not None]
    if len(known) == len(used):
        low, high = min(known), max(known)
        if high > low:
            place = np.array([2 * (at - low) / (high - low) - 1 for at in known])
            terms = min(_MOST_DRIFT_TERMS, 1 + len(used) // 12)
            return np.polynomial.legendre.legvander(place, terms)[:, 1:], False
    rounds = sorted({item.stated_round for item in used if item.stated_round is not None})
    if rounds:
        table = np.array([[item.stated_round == number for number in rounds[1:]] for item in used])
        return table.astype(np.float64).reshape(len(used), len(rounds) - 1), True
    return np.zeros((len(used), 0)), False


def _starts(number: int) -> str:
    return "one process" if number == 1 else f"{number} processes"

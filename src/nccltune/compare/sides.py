# SPDX-License-Identifier: Apache-2.0
"""Compare two sides size by size: ratios, ranges beyond noise, and a verdict.

All timings of a run share an offset. With enough runs the offset is measured: each run counts as
one value. With fewer it is assumed, and a smaller difference of the whole curve is no evidence. The
noise of single sizes is the scatter of the ratio along the sizes; for few sizes, the difference of
both placements.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from nccltune.analyze.stats import normal_z, student_t, trimmed_mean
from nccltune.compare.found import UNEVEN, CurveComparison, RangeFound, SizeRatio
from nccltune.compare.matching import NothingInCommonError, PairedTests, paired_tests
from nccltune.compare.runs import FactDifference, MeasuredRun, MeasuredTest, RunCurve, TimedPoint
from nccltune.compare.scan import FEWEST, Floats, Stretch, scatter, stretches
from nccltune.model.numbers import duration
from nccltune.model.sizes import format_bytes

LEVEL = 0.05
"""Probability that a comparison without any difference reports one."""
FEWEST_DEGREES = 3
"""Degrees of freedom of the runs from which the noise is that of the runs: 4 runs against 1."""
LEAST_DIFFERENCE = 0.01
"""Differences below it are not reported, however many runs there are."""
OUTLIER = 1.5
"""Ratio from which a single size counts, if both placements show it far beyond the scatter."""
_FAR = 4
_MOVED = 1.2
"""Ratio that each of several neighbouring sizes needs, if one of them reaches OUTLIER."""
_MOVED_SIZES = 2
_UNCLEAR = 1.1
"""Ratio from which a size that both placements show alike is not called noise."""
_MOVED_BYTES = 1 << 16
"""Sizes from which they count: a short disturbance spans several smaller ones."""
_UNALIGNED = " (not multiples of 16 B, so unaligned, which NCCL moves more slowly)"
_FEW_OF = 5
"""Differences of fewer than one in this many tests must be beyond the noise of so many."""
_ALONE = 3
"""Timings of fewer sizes than FEWEST may be so much noisier, as on busy networks."""


def compare_sides(
    first: Sequence[MeasuredRun], second: Sequence[MeasuredRun], assumed: float
) -> list[CurveComparison]:
    """Return a comparison of each test of both; `assumed` is a run's noise if unmeasured.

    Raises NothingInCommonError.
    """
    pairs = paired_tests(first, second)
    series = [item for pair in pairs for item in _series(pair, first, second, assumed)]
    if not series:
        spans = []
        for runs in (first, second):
            curves = [curve for run in runs for curve in run.curves.values()]
            times = {point.bytes: curve.time_us(point) for curve in curves for point in curve.times}
            span = " - ".join(map(format_bytes, (min(times, default=0), max(times, default=0))))
            if len(times) == 1:
                span = " B in ".join([f"{min(times)}", duration(max(times.values()))])
            spans += [span + _UNALIGNED * all(size % 16 for size in times)] * bool(times)
        raise NothingInCommonError(f"no size was measured on both sides: {' and '.join(spans)}")
    level = LEVEL / len(series)
    found = [item.judged(assumed, level) for item in series]
    if 0 < _FEW_OF * sum(bool(item.ranges) for item in found) < len(found):
        # By the drift of single blocks some of many differ; a cause in the platform shows in more.
        wider = assumed * normal_z(1 - level) / normal_z(1 - LEVEL)
        found = [item.judged(wider, level) for item in series]
    alike = Counter(pair.title for pair in pairs)
    return [
        msgspec.structs.replace(item, title=item.title + _apart(of.pair) * (alike[item.title] > 1))
        for item, of in zip(found, series, strict=True)
    ]


def _apart(pair: PairedTests) -> str:
    """Return the type, operation and root of both tests, as they follow a title."""
    one, other = (x.words.removeprefix(x.title) for x in (pair.first, pair.second))
    return one if one == other else ""


class _Series(msgspec.Struct):
    """One test, one choice of each side, one or both placements: the log times of all runs.

    The arrays have a row for each run and a column for each size. `placed` has the log ratio of
    each placement. `across` states that the second side has the other placement. `other` has the
    log ratio of the placement that is compared apart, NaN where it was not timed.
    """

    pair: PairedTests
    labels: tuple[str, str]
    placements: list[bool]
    across: bool
    sizes: list[int]
    first: Floats
    second: Floats
    placed: list[Floats]
    ran: tuple[dict[int, str], dict[int, str]]
    other: Floats | None = None

    @property
    def ratios(self) -> Floats:
        """Return the log ratio of the medians at each size; of bus bandwidths at two scales."""
        result: Floats = np.median(self.second, axis=0) - np.median(self.first, axis=0)
        factors = self.bus_factors
        return result if factors is None else result + math.log(factors[0] / factors[1])

    @property
    def bus_factors(self) -> tuple[float, float] | None:
        """Return bus bandwidth over bytes a second of both sides; None if the scale is one."""
        tests = self.pair.first, self.pair.second
        if self.pair.one_scale:
            return None
        return tests[0].bandwidth(1000, 0.0), tests[1].bandwidth(1000, 0.0)

    @property
    def differs(self) -> list[FactDifference]:
        """Return in what the two sides differ, with both values as texts."""
        found = list(self.pair.differs)
        if self.labels[0] != self.labels[1]:
            found.append(FactDifference("choice", *self.labels))
        elif ran := self._ran(self.sizes):
            found.append(FactDifference("ran", *ran))
        if self.across:
            words = (
                ("in place", "out of place") if self.placements[0] else ("out of place", "in place")
            )
            found.append(FactDifference("placement", *words))
        return found

    def _ran(self, sizes: Iterable[int]) -> tuple[str, str] | None:
        """Return what NCCL ran on both sides, at those of the sizes where that differs."""
        one, other = self.ran
        apart = [s for s in sizes if s in one and s in other and one[s] != other[s]]
        words = [", ".join(dict.fromkeys(side[size] for size in apart)) for side in self.ran]
        return (words[0], words[1]) if apart else None

    def judged(self, assumed: float, level: float) -> CurveComparison:
        """Return the comparison, judged at the probability `level` of a false difference."""
        errors, degrees = self._errors()
        measured = degrees >= FEWEST_DEGREES
        n, spread = len(self.sizes), np.full(len(self.sizes), _ALONE * assumed)
        spread *= math.sqrt((1 / len(self.first) + 1 / len(self.second)) / len(self.placements))
        whole = np.full(n, math.log1p(assumed))
        if measured:
            whole = np.hypot(student_t(1 - level, degrees) * errors, LEAST_DIFFERENCE)
            # With few sizes there is no scatter along them, and the runs show the noise of a size.
            spread = errors * student_t(1 - level / n, degrees) / normal_z(1 - level / n)
        found = stretches(self.ratios, whole, level)
        if not measured:
            found = sorted([*self._shared(found, whole), *self._moved(found)])
        noise = "runs" if measured else "scatter" if n >= FEWEST else "assumed"
        if n >= FEWEST:
            spread = scatter(self.ratios, found)
        elif not measured and len(self.placed) == 2:
            noise = "placements"
            apart = self.placed[1] - self.placed[0]
            spread[:] = math.sqrt(float(np.mean(apart**2))) / 2
            spread *= student_t(1 - level / n, n) / normal_z(1 - level / n)
        single = np.hypot(normal_z(1 - level / n) * spread, whole)
        found = self._widened(found, single)
        near = self._near()
        unclear = max(math.log(_UNCLEAR), self._disagreement())
        alone = [
            i
            for i in range(n)
            if abs(self.ratios[i]) > single[i] or (near[i] > unclear and not measured)
            if not any(x.start <= i < x.stop for x in found)
        ]
        # A single size counts if both placements show it far beyond the scatter.
        far = np.maximum(math.log(OUTLIER), _FAR * single)
        counted_alone = [i for i in alone if measured or n < FEWEST or near[i] > far[i]]
        found = self._joined(sorted([*found, *self._neighbours(counted_alone)]))
        half = student_t(0.95, degrees) * errors if measured else None
        return CurveComparison(
            title=self.pair.title,
            differs=self.differs,
            bus_factors=self.bus_factors,
            choices=self.labels,
            runs=(len(self.first), len(self.second)),
            placements=["in place" if item else "out of place" for item in self.placements],
            noise=noise,
            whole=math.expm1(float(np.median(whole))),
            single=math.expm1(float(np.median(single))),
            points=self._points(found, half),
            ranges=[self._range(item) for item in found],
            isolated=[self.sizes[i] for i in alone if i not in counted_alone],
        )

    def _widened(self, found: list[Stretch], single: Floats) -> list[Stretch]:
        """Return the stretches with the neighbouring sizes that differ alike beyond `single`."""
        taken = {place for item in found for place in range(item.start, item.stop)}
        wide = []
        for item in found:
            ends = [item.start, item.stop]
            for side, step in ((0, -1), (1, 1)):
                place = ends[side] - (side == 0)
                while (
                    0 <= place < len(single)
                    and place not in taken
                    and math.copysign(1, item.value) * self.ratios[place] > single[place]
                ):
                    taken.add(place)
                    ends[side] += step
                    place += step
            wide.append(Stretch(ends[0], ends[1], float(np.median(self.ratios[slice(*ends)]))))
        return wide

    def _joined(self, found: list[Stretch]) -> list[Stretch]:
        """Return the stretches with neighbours of about equal ratios as one."""
        joined: list[Stretch] = []
        for item in found:
            last = joined[-1] if joined else item
            alike = last.value * item.value > 0 and abs(last.value - item.value) < math.log(UNEVEN)
            if last.stop == item.start and alike:
                median = float(np.median(self.ratios[last.start : item.stop]))
                joined[-1] = Stretch(last.start, item.stop, median)
            else:
                joined.append(item)
        return joined

    def _shared(self, found: list[Stretch], whole: Floats) -> list[Stretch]:
        """Return the stretches without the short ones that the other placement does not show."""
        other = self.other
        return [
            item
            for item in found
            if item.stop - item.start > _MOVED_SIZES
            or other is None
            or not np.any(math.copysign(1, item.value) * other[slice(*item[:2])] < whole[0])
        ]

    def _moved(self, found: list[Stretch]) -> list[Stretch]:
        """Return neighbouring sizes that differ alike, and far, in both placements.

        Such a crossover that moved is no noise, but counts in the scatter along the sizes.
        """
        near = self._near()
        counts = near > max(math.log(_MOVED), self._disagreement())
        counts &= np.array(self.sizes) >= _MOVED_BYTES
        for item in found:
            counts[item.start : item.stop] = False
        return [
            item
            for item in self._neighbours(np.flatnonzero(counts).tolist())
            if item.stop - item.start >= _MOVED_SIZES
            if max(near[item.start : item.stop]) > math.log(OUTLIER)
        ]

    def _near(self) -> Floats:
        """Return the smaller difference of both placements; 0 if the signs differ, or for one."""
        one, other = self._both
        result: Floats = np.where(one * other > 0, np.minimum(np.abs(one), np.abs(other)), 0)
        return result

    def _disagreement(self) -> float:
        """Return a difference far beyond that of the placements."""
        one, other = self._both
        return _FAR * float(np.nanmedian(np.abs(one - other)))

    @property
    def _both(self) -> tuple[Floats, Floats]:
        """Return the log ratios of both placements; 0 for one that was not timed."""
        if len(self.placed) == 2:
            return self.placed[0], self.placed[1]
        none = np.zeros(len(self.sizes))
        return self.placed[0], none if self.other is None else self.other

    def _neighbours(self, places: Sequence[int]) -> list[Stretch]:
        """Return the stretches of neighbouring `places` whose ratios have one sign."""
        signs = np.zeros(len(self.sizes))
        signs[list(places)] = np.sign(self.ratios[list(places)])
        edges = [0, *(np.flatnonzero(np.diff(signs)) + 1).tolist(), len(signs)]
        return [
            Stretch(start, stop, float(np.median(self.ratios[start:stop])))
            for start, stop in pairwise(edges)
            if signs[start]
        ]

    def _errors(self) -> tuple[Floats, int]:
        """Return the standard error of the log ratio at each size, and its degrees of freedom.

        The variance is at least the usual one: with few runs, some agree by chance.
        """
        means = [[trimmed_mean(list(column)) for column in side.T] for side in self._sides]
        degrees = [side[0].degrees for side in means]
        if sum(degrees) == 0:
            return np.zeros(len(self.sizes)), 0
        variances = np.array(
            [
                [item.variance if d else 0.0 for item in side]
                for side, d in zip(means, degrees, strict=True)
            ]
        )
        common = np.average(variances, axis=0, weights=degrees)
        common = np.maximum(common, np.median(common))
        shares = [1 / len(side) for side in self._sides]
        # A noisier side with fewer runs must not be taken for quiet.
        apart = sum(
            (variances[i] if degrees[i] else common) * share for i, share in enumerate(shares)
        )
        return np.sqrt(np.maximum(common * sum(shares), apart)), sum(degrees)

    @property
    def _sides(self) -> tuple[Floats, Floats]:
        return self.first, self.second

    def _points(self, found: list[Stretch], half: Floats | None) -> list[SizeRatio]:
        points = []
        for i, size in enumerate(self.sizes):
            one, other = (math.exp(float(np.median(side[:, i]))) for side in self._sides)
            low, high = (
                (None, None)
                if half is None
                else (math.exp(self.ratios[i] - half[i]), math.exp(self.ratios[i] + half[i]))
            )
            beyond = any(x.start <= i < x.stop and x.value * self.ratios[i] > 0 for x in found)
            ratio = math.exp(float(self.ratios[i]))
            points.append(SizeRatio(size, one, other, ratio, low, high, beyond))
        return points

    def _range(self, found: Stretch) -> RangeFound:
        inside = range(found.start, found.stop)
        sign = math.copysign(1, found.value)
        sizes = [self.sizes[i] for i in inside]
        return RangeFound(
            sizes[0],
            sizes[-1],
            math.exp(found.value),
            len(sizes),
            sum(bool(sign * self.ratios[i] > 0) for i in inside),
            self._ran(sizes),
        )


def _series(
    pair: PairedTests, first: Sequence[MeasuredRun], second: Sequence[MeasuredRun], assumed: float
) -> list[_Series]:
    """Return the series of a test: placements as one if their ratios agree beyond `assumed`."""
    found = []
    for labels in pair.labels:
        curves = _curves(pair.first, labels[0], first), _curves(pair.second, labels[1], second)
        both = _placed(pair, labels, curves, [False, True])
        apart = [
            item
            for across in (False, True)
            for place in (False, True)
            if (item := _placed(pair, labels, curves, [place], across=across)) is not None
        ]
        # Different placements are compared only if the sides have none in common.
        apart = [item for item in apart if item.across == apart[0].across]
        agree = both is not None and len(both.sizes) == max(len(item.sizes) for item in apart)
        if both is not None and agree and len(both.sizes) >= FEWEST:
            apart_by = both.placed[1] - both.placed[0]
            agree = not stretches(apart_by, math.log1p(assumed), LEVEL)
        if both is not None and not agree:
            for item in apart:
                rates = dict(zip(both.sizes, both.placed[not item.placements[0]], strict=True))
                item.other = np.array([rates.get(size, math.nan) for size in item.sizes])
        found += [both] if both is not None and agree else apart
    return found


def _curves(test: MeasuredTest, label: str, runs: Sequence[MeasuredRun]) -> list[RunCurve]:
    return [curve for run in runs if (curve := run.curves.get((test, label))) is not None]


def _placed(
    pair: PairedTests,
    labels: tuple[str, str],
    curves: tuple[list[RunCurve], list[RunCurve]],
    placements: list[bool],
    *,
    across: bool = False,
) -> _Series | None:
    """Return the series of some placements, `across` of both; None without a common size."""
    sides, kept = [], []
    places = placements, [place != across for place in placements]
    for side, own_places in zip(curves, places, strict=True):
        sizes = [
            {place.bytes for place in curve.times if place.in_place == own_places[0]}
            & {place.bytes for place in curve.times if place.in_place == own_places[-1]}
            for curve in side
        ]
        most = max(map(len, sizes), default=0)
        # A run that ended early must not take sizes from the others.
        full = [
            (curve, own)
            for curve, own in zip(side, sizes, strict=True)
            if own and 2 * len(own) >= most
        ]
        kept.append([curve for curve, _ in full])
        sides.append(set.intersection(*(own for _, own in full)) if full else set())
    common = sorted(sides[0] & sides[1])
    if not common:
        return None
    rows = [
        np.array(
            [
                [[curve.times[TimedPoint(p, size)] for size in common] for p in own_places]
                for curve in side
            ]
        )
        for side, own_places in zip(kept, places, strict=True)
    ]
    ratios = np.median(rows[1], axis=0) - np.median(rows[0], axis=0)
    ran = tuple(
        {place.bytes: label for curve in side for place, label in curve.ran.items()}
        for side in kept
    )
    return _Series(
        pair,
        labels,
        placements,
        across,
        common,
        rows[0].mean(axis=1),
        rows[1].mean(axis=1),
        list(ratios),
        (ran[0], ran[1]),
    )

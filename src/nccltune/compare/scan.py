# SPDX-License-Identifier: Apache-2.0
"""Find runs of neighbours in a series that differ from 0 by more than the scatter of the series.

The series is a log ratio along the sizes of a curve, or along runs in time. One value per place is
enough: the scatter of neighbours is the noise. Critical values come from simulated series of pure
noise, which are judged by the same code. They hold for any level of noise, because every statistic
is divided by the scatter of its own series.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Members = npt.NDArray[np.bool_]
"""Which of the runs belong to a part."""

FEWEST = 5
"""The fewest places of which the scatter can be estimated: three distances between neighbours."""
LEAST_SCATTER = 0.005
"""The least noise of one value as a natural log. Printed times are rounded to about this."""
_SIMULATED = 4000
_NEAR = 9
"""Number of neighbouring distances from which the scatter at one place is estimated."""
_SEED = 20261127


class Stretch(NamedTuple):
    """Neighbouring places `start` to `stop` (exclusive) whose mean `value` is beyond the noise."""

    start: int
    stop: int
    value: float


def stretches(series: Floats, allowance: Floats | float, level: float) -> list[Stretch]:
    """Return the stretches of `series` whose mean differs from 0 beyond `allowance` and noise.

    - `allowance`: a difference that may be chance, as a natural log, at each place
    - `level`: the probability that a series of pure noise has any stretch

    Empty if there are fewer than FEWEST places. A stretch has at least two places: a single place
    that differs from both neighbours may be an outlier.
    """
    n = len(series)
    found: list[Stretch] = []
    if n < FEWEST:
        return found
    critical, allowed = _critical(n, level), np.broadcast_to(allowance, n)
    smooth = _smoothed(series[None])[0]
    while True:
        # A found difference is a part of the scatter around it, and could hide another one.
        spread = scatter(series, found)
        edges = [0, *(edge for item in found for edge in item[:2]), n]
        parts = list(zip(edges[::2], edges[1::2], strict=True))
        more: list[Stretch] = []
        while parts:
            low, high = parts.pop()
            best = _best(smooth, spread, allowed, low, high)
            if best is None or best[0] <= critical:
                continue
            _, start, stop = best
            parts += [(low, start), (stop, high)]
            more += [
                item
                for item in _dense(series, smooth, spread, allowed, start, stop, critical)
                if not any(item.start < old.stop and old.start < item.stop for old in found)
            ]
        if not more:
            return found
        found = sorted([*found, *more])


def _dense(
    series: Floats,
    smooth: Floats,
    spread: Floats,
    allowed: Floats,
    start: int,
    stop: int,
    critical: float,
) -> list[Stretch]:
    """Return the parts of a window that differ everywhere: beyond `critical`, or the strongest."""
    sign = math.copysign(1.0, smooth[start:stop].mean())
    inside = [start <= i < stop and bool(sign * smooth[i] > allowed[i]) for i in range(len(series))]
    edges = np.flatnonzero(np.diff([False, *inside, False])).tolist()
    parts = []
    for low, high in zip(edges[::2], edges[1::2], strict=True):
        # At its ends, the values themselves differ, not only their running median.
        places = [i for i in range(low, high) if sign * series[i] > allowed[i]]
        width = places[-1] + 1 - places[0] if places else 0
        if width > 1:
            part = slice(places[0], places[0] + width)
            score = _windows(smooth[None, part], spread[None, part], allowed[None, part], width)[
                0, 0
            ]
            parts.append((score, Stretch(part.start, part.stop, float(np.median(series[part])))))
    strong = [item for score, item in parts if score > critical]
    return strong or [max(parts)[1]] if parts else []


def scatter(series: Floats, found: Sequence[Stretch] = ()) -> Floats:
    """Return the noise of one value at each place, as a natural log.

    At least that of the whole series, so that a quiet part does not vouch for a noisy one.
    """
    distances = np.abs(np.diff(series)) / math.sqrt(2)
    kept = np.ones(len(distances), dtype=bool)
    for item in found:
        kept[max(item.start - 1, 0) : item.stop] = False
    if kept.sum() < FEWEST - 1:
        kept[:] = True
    places = np.concatenate([[0], kept.cumsum()])
    result: Floats = np.maximum(_near(distances[None, kept], places)[0], LEAST_SCATTER)
    return result


def _scatter(series: Floats) -> Floats:
    """Return the scatter at each place of each row."""
    distances = np.abs(np.diff(series, axis=1)) / math.sqrt(2)
    return _near(distances, np.arange(series.shape[1]))


def _near(distances: Floats, places: npt.NDArray[np.int_]) -> Floats:
    """Return the scatter of each row of distances around `places` among them."""
    count = distances.shape[1]
    width = min(_NEAR, count)
    near = np.median(np.lib.stride_tricks.sliding_window_view(distances, width, axis=1), axis=2)
    whole = np.median(distances, axis=1, keepdims=True)
    first = np.clip(places - width // 2, 0, count - width)
    result: Floats = 1.4826 * np.maximum(whole, near[:, first])
    return result


def _smoothed(series: Floats) -> Floats:
    """Return the running median of three. At the ends 0 stands for the missing neighbour."""
    padded = np.pad(series, ((0, 0), (1, 1)))
    return np.median(np.stack([padded[:, :-2], series, padded[:, 2:]]), axis=0)


def _best(
    smooth: Floats, spread: Floats, allowed: Floats, low: int, high: int
) -> tuple[float, int, int] | None:
    """Return the largest statistic of the windows in `low` to `high`, with its window."""
    best = None
    for width in range(2, high - low + 1):
        part = slice(low, high)
        values = _windows(smooth[None, part], spread[None, part], allowed[None, part], width)[0]
        at = int(values.argmax())
        if best is None or values[at] > best[0]:
            best = (float(values[at]), low + at, low + at + width)
    return best


def _windows(smooth: Floats, spread: Floats, allowed: Floats, width: int) -> Floats:
    """Return the statistic of every window of `width` places, for each row."""
    # A difference of the whole series is independent of the scatter, so squares are subtracted.
    beyond = np.maximum(_sums(smooth, width) ** 2 - _sums(allowed, width) ** 2, 0.0)
    result: Floats = np.sqrt(beyond / _sums(spread**2, width))
    return result


def _sums(values: Floats, width: int) -> Floats:
    total = np.pad(values.cumsum(axis=1), ((0, 0), (1, 0)))
    result: Floats = total[:, width:] - total[:, :-width]
    return result


@lru_cache(maxsize=64)
def _maxima(n: int) -> Floats:
    """Return the sorted largest statistics of simulated series of `n` places of pure noise."""
    noise = np.random.default_rng(_SEED + n).standard_normal((_SIMULATED, n))
    smooth, spread, none = _smoothed(noise), _scatter(noise), np.zeros((1, n))
    widths = range(2, n + 1)
    return np.sort(np.max([_windows(smooth, spread, none, w).max(axis=1) for w in widths], axis=0))


def _critical(n: int, level: float) -> float:
    maxima = _maxima(n)
    place = min(len(maxima) - 1, math.ceil((1 - level) * len(maxima)))
    return float(maxima[place])

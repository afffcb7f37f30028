# SPDX-License-Identifier: Apache-2.0
"""Which choices cannot win at larger sizes any more, by the two largest sizes measured.

The time of a choice that has left its latency behind grows by a constant for each byte. Where
another one is faster at a size and would be faster without end, by the slopes of both, it is faster
everywhere in between. While latency still counts for most, nothing is foretold: NCCL adds channels
as sizes grow.
"""

import math
from typing import NamedTuple

from nccltune.analyze.stats import normal_z
from nccltune.measure.estimates import CONFIDENCE
from nccltune.measure.view import SizeView
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

HOPELESS = 0.15
"""Log time: behind by this for certain, now and without end, as curves are not quite straight; and
behind by this at the size before, too, as a hiccup must not decide."""


class _Line(NamedTuple):
    """The end of a curve, in units of the default's time at its end: the times at the last two
    sizes and the slope (their difference), with relative standard errors."""

    before: float
    time: float
    time_error: float
    slope: float
    slope_error: float


def hopeless(before: SizeView, last: SizeView, growth: float) -> set[Choice]:
    """The choices measured at both sizes that cannot win beyond the size `last`; `growth` is by how
    much the default's time grew from `before` to it, as a log."""
    known: list[AnyChoice] = [DEFAULT, *last.estimates]
    lines = {
        choice: line
        for choice in known
        if (line := _line(choice, before, last, growth)) is not None
    }
    steep = math.sqrt(last.bytes / before.bytes)
    return {
        choice
        for choice, line in lines.items()
        if isinstance(choice, Choice)
        and line.time > steep * line.before
        and any(_behind(line, other) for other in lines.values())
    }


def _line(choice: AnyChoice, before: SizeView, last: SizeView, growth: float) -> _Line | None:
    then, now = before.estimate(choice), last.estimate(choice)
    if then is None or now is None:
        return None
    start, end = math.exp(-growth - then.gain), math.exp(-now.gain)
    if end <= start:
        return None
    slope = end - start
    error = math.hypot(start * then.error, end * now.error) / slope
    return _Line(start, end, now.error, slope, error)


def _behind(line: _Line, other: _Line) -> bool:
    z = normal_z(CONFIDENCE)
    before = math.log(line.before / other.before)
    now = math.log(line.time / other.time) - z * math.hypot(line.time_error, other.time_error)
    ever = math.log(line.slope / other.slope) - z * math.hypot(line.slope_error, other.slope_error)
    return min(before, now, ever) > HOPELESS

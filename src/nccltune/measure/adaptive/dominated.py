# SPDX-License-Identifier: Apache-2.0
"""Find the choices that cannot be the fastest at larger sizes, from the two largest sizes measured.

Once bandwidth dominates, the time of a choice grows by a constant for each byte. If another choice
is faster at the last size and its time also grows more slowly, then the other choice is faster at
every larger size. While latency still dominates, nothing is extrapolated, because NCCL adds
channels as sizes grow.
"""

import math
from typing import NamedTuple

from nccltune.analyze.stats import normal_z
from nccltune.measure.adaptive.estimates import CONFIDENCE
from nccltune.measure.adaptive.size_state import SizeState
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

LEAST_DISADVANTAGE = 0.15
"""How much slower than another choice a dominated choice is at least, as a natural log. At the
larger of the two sizes, its time and its slope must be worse by this, with confidence. At the
smaller size its time must also be worse by this, so that one disturbed timing does not decide. The
margin is large because curves are not quite straight."""


class _Line(NamedTuple):
    """The times of one choice at the last two sizes: `before` at the smaller, `time` at the larger.

    `slope` is `time` minus `before`. The unit is the default's time at the last size. Errors are
    relative standard errors.
    """

    before: float
    time: float
    time_error: float
    slope: float
    slope_error: float


def dominated_choices(before: SizeState, last: SizeState, growth: float) -> set[Choice]:
    """Return the choices that cannot be the fastest at any size above `last`.

    Only choices that were measured at both sizes are judged. `growth` is the natural log of the
    default's time at `last` over its time at `before`.
    """
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


def _line(choice: AnyChoice, before: SizeState, last: SizeState, growth: float) -> _Line | None:
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
    return min(before, now, ever) > LEAST_DISADVANTAGE

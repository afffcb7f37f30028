# SPDX-License-Identifier: Apache-2.0
"""Which choices can no longer win at larger sizes, judged by the two largest sizes measured.

Once bandwidth dominates, the time of a choice grows by a constant for each byte. Suppose another
choice is faster at the last size and its slope is also lower. Then it is faster at every larger
size. While latency still dominates, nothing is extrapolated, because NCCL adds channels as sizes
grow.
"""

import math
from typing import NamedTuple

from nccltune.analyze.stats import normal_z
from nccltune.measure.adaptive.estimates import CONFIDENCE
from nccltune.measure.adaptive.size_state import SizeState
from nccltune.model.choice import DEFAULT, AnyChoice, Choice

LEAST_DISADVANTAGE = 0.15
"""Log time by which a choice must be behind, with confidence, in both time and slope. The margin
exists because curves are not quite straight. The choice must also be behind by this much at the
size before, so that one disturbed timing does not decide."""


class _Line(NamedTuple):
    """The end of a curve: times at the last two sizes, and the slope (their difference).

    Times are in units of the default's time at the last size. Errors are relative standard errors.
    """

    before: float
    time: float
    time_error: float
    slope: float
    slope_error: float


def dominated_choices(before: SizeState, last: SizeState, growth: float) -> set[Choice]:
    """Return the choices, measured at both sizes, that cannot win beyond the size `last`.

    `growth` is the log of how many times longer the default takes at `last` than at `before`.
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

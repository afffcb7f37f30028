# SPDX-License-Identifier: Apache-2.0
"""What the comparison of two curves found, and its sentences."""

import math

import msgspec

from nccltune.compare.runs import FactDifference
from nccltune.compare.scan import FEWEST
from nccltune.model.numbers import counted, gain_text, percent_text, size_form
from nccltune.model.sizes import format_bytes

_NOISES = {"runs": "noise of the runs", "placements": "difference of both placements"}
UNEVEN = 1.2
"""The largest ratio of a range is told if it is this much above the usual one."""
_INCOMPARABLE = 1.0
_MOST_RANGES = 5
"""Most ranges of a verdict."""
_OPEN = 1.5
"""Ratio that several sizes need so that a difference that is not shown is told all the same."""


class SizeRatio(msgspec.Struct, frozen=True):
    """The times of both sides at one size in us, and second over first.

    At two scales the ratio is of bus bandwidths, the first over the second. `low` and `high` bound
    the 95 % interval of the ratio; None if there are too few runs. `beyond`
    states that the size is in a range that differs beyond noise, and differs in that direction.
    """

    bytes: int
    first_us: float
    second_us: float
    ratio: float
    low: float | None = None
    high: float | None = None
    beyond: bool = False

    def rates(self, bus_factors: tuple[float, float] | None) -> tuple[float, float]:
        """Return the bus bandwidths of both sides in GB/s."""
        one, other = bus_factors or (1.0, 1.0)
        return one * self.bytes / self.first_us / 1e3, other * self.bytes / self.second_us / 1e3


class RangeFound(msgspec.Struct, frozen=True):
    """Sizes in which the sides differ beyond noise by `ratio`; `beyond` of them that way.

    `ran` names what NCCL ran on both sides, if that is known and differs.
    """

    low_bytes: int
    high_bytes: int
    ratio: float
    sizes: int
    beyond: int
    ran: tuple[str, str] | None = None


class CurveComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One test on both sides.

    - `choices`: the choice on each side, `runs`: the number of runs of each side
    - `differs`: the properties of the test in which the sides differ
    - `bus_factors`: None if the scale is one. Else bus bandwidth over bytes a second of each side:
      the ratios are then of bus bandwidths, the first over the second
    - `placements`: `out of place`, `in place`, or both if their ratios agree
    - `noise`: `runs` if the noise of a run was measured. Else it was assumed, and the noise of a
      size is by the `scatter` along the sizes, by both `placements`, or `assumed`, too
    - `whole`, `single`: differences of the whole curve and of a single size, as fractions, that
      are not shown to be more than noise (median over the sizes)
    - `isolated`: single sizes that differ from their neighbours, or in both placements alike, timed
      too seldom to be judged
    """

    title: str
    choices: tuple[str, str]
    differs: list[FactDifference]
    bus_factors: tuple[float, float] | None
    runs: tuple[int, int]
    placements: list[str]
    noise: str
    whole: float
    single: float
    points: list[SizeRatio]
    ranges: list[RangeFound]
    isolated: list[int]

    def verdict(self, first: str, second: str) -> str:
        """Return what was found in words; `first` and `second` name the sides."""
        if self.bus_factors is not None:
            return self._at_two_scales(first, second)
        others = [x for x in self.points if not x.beyond and x.bytes not in self.isolated]
        rest = max((abs(x.ratio - 1) for x in others), default=0.0)
        apart = [abs(x.ratio - 1) for x in self.points if x.bytes in self.isolated]
        words = ""
        if apart:
            noun = "single size differs" if len(apart) == 1 else "single sizes differ"
            words = f"; {len(apart)} {noun} by up to {percent_text(max(apart))}: run again to judge"
        if self.undecided:
            return (
                "the runs of a side differ so much that a difference below "
                f"{gain_text(1 + self.whole)} would not show: compare runs of one setting"
            )
        if self.few:
            return self._of_few(first, second) + words
        largest = percent_text(rest)
        largest += " beside sizes that scatter as much" if rest > self.single else ""
        if not self.ranges:
            return (
                f"no difference beyond noise at {counted(len(others), 'size')} (largest {largest}; "
                f"a difference below {percent_text(self.whole)} of the whole curve, or "
                f"{percent_text(self.single)} at a usual size, would not show){words}"
            )
        shown = sorted(self.ranges, key=lambda x: -abs(math.log(x.ratio)) * x.sizes)[:_MOST_RANGES]
        parts = [self._of_range(item, first, second) for item in self.ranges if item in shown]
        if more := len(self.ranges) - len(shown):
            parts.append(f"{counted(more, 'more range')}, less different or shorter")
        if others:
            differ = "differs" if len(others) == 1 else "differ"
            parts.append(
                f"{counted(len(others), 'other size')} {differ} by at most {largest}, which is not "
                "shown to be more than noise"
            )
        return "; ".join(parts) + words

    def _of_few(self, first: str, second: str) -> str:
        ratios = sorted(max(x.ratio, 1 / x.ratio) for x in self.points)
        range_text = "x to ".join(
            f"{ratio:.2f}" for ratio in dict.fromkeys((ratios[0], ratios[-1]))
        )
        apart = [x for x in self.points if round(abs(math.log(x.ratio)), 2)]
        signs_of = [x.ratio > 1 for x in apart]
        signs = set(signs_of)
        sizes, runs = counted(len(self.points), "size"), counted(sum(self.runs), "run")
        if not apart:
            return f"{first} and {second} differ by at most 0.5 % at {sizes}, in {runs}"
        if len(signs) == 1:
            differs = (
                f"{second} is {range_text}x {'slower' if True in signs else 'faster'} than {first}"
            )
        else:
            differs = f"{first} and {second} differ by {range_text}x"
            crossed = [at for at in range(1, len(apart)) if signs_of[at] != signs_of[at - 1]]
            if len(crossed) == 1 and all(
                any(abs(math.log(x.ratio)) > math.log(_OPEN) for x in part)
                for part in (apart[: crossed[0]], apart[crossed[0] :])
            ):
                forms = size_form(point.bytes for point in self.points)
                after = apart[crossed[0]]
                differs = (
                    f"{second} is {'faster' if after.ratio > 1 else 'slower'} than {first} below "
                    f"{forms(after.bytes)} and {'slower' if after.ratio > 1 else 'faster'} from "
                    f"there on, by {range_text}x"
                )
        if len(self.points) < FEWEST:
            why = (
                f"so few sizes of {runs} do not show to be more than noise: measure more sizes, or"
            )
        else:
            why = f"{runs} do not show to be more than noise, because the ratio varies as much:"
        return f"{differs} at {sizes}, which {why} give several runs of each"

    def _of_range(self, item: RangeFound, first: str, second: str) -> str:
        sizes = size_form(point.bytes for point in self.points)
        slower = item.ratio > 1
        where = f"at {sizes(item.low_bytes)}"
        if item.low_bytes < item.high_bytes:
            where = f"from {sizes(item.low_bytes)} to {sizes(item.high_bytes)}"
        ratios = {
            point.ratio if slower else 1 / point.ratio: point.bytes
            for point in self.points
            if item.low_bytes <= point.bytes <= item.high_bytes and point.beyond
        }
        ratio, worst = (item.ratio if slower else 1 / item.ratio), max(ratios)
        if worst > UNEVEN * ratio:
            where += f", at most {gain_text(worst)} at {sizes(ratios[worst])}"
        ran = f"; {item.ran[0]} ran, then {item.ran[1]}" if item.ran else ""
        return (
            f"{second} is {gain_text(ratio)} {'slower' if slower else 'faster'} than {first} "
            f"{where} ({item.beyond} of {counted(item.sizes, 'size')}, beyond the "
            f"{_NOISES.get(self.noise, 'scatter')}{ran})"
        )

    def _at_two_scales(self, first: str, second: str) -> str:
        """Return the peaks of both sides, and the range of their ratio."""
        peaks = []
        for side in (0, 1):
            rates = [(point.rates(self.bus_factors)[side], point.bytes) for point in self.points]
            peaks.append(f"{max(rates)[0]:.3g} GB/s at {format_bytes(max(rates)[1])}")
        ratios = [1 / point.ratio for point in self.points]
        edges = " to ".join(dict.fromkeys(f"{value:.2f}" for value in (min(ratios), max(ratios))))
        return (
            f"at {counted(len(ratios), 'common size')}, bus bandwidth peaks at {peaks[0]} and "
            f"{peaks[1]}; {second} has {edges} times that of {first}"
        )

    @property
    def undecided(self) -> bool:
        """Return whether the runs of a side differ too much to compare the sides."""
        return not self.ranges and self.whole > _INCOMPARABLE

    @property
    def few(self) -> bool:
        """Return whether a difference is open: few sizes or a wide scatter, and no repeated run."""
        wide = [x for x in self.points if abs(math.log(x.ratio)) > math.log(_OPEN)]
        open_ = len(self.points) < FEWEST or sum(x.bytes not in self.isolated for x in wide) > 1
        return not self.ranges and self.noise != "runs" and open_

    @property
    def slower(self) -> bool:
        """Return whether the second side is slower beyond noise in any range, at one scale."""
        return self.bus_factors is None and any(item.ratio > 1 for item in self.ranges)

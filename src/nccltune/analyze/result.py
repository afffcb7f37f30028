# SPDX-License-Identifier: Apache-2.0
"""What an analysis is made of: conditions, curves, points, noise and findings."""

import msgspec

from nccltune.model.choice import AnyChoice
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale


class Condition(msgspec.Struct, frozen=True, order=True):
    """What must be equal for two timings to be compared, besides size and choice.

    `registered` is what NCCL's tuner sees as regBuff: registered buffers, or a captured graph.
    """

    collective: Collective
    scale: Scale
    registered: bool = False
    in_place: bool = False
    graph: bool = False
    dtype: str | None = None
    redop: str | None = None
    root: int | None = None

    @property
    def title(self) -> str:
        """For people: `all-reduce, 4 nodes, 4 ranks`, with what is not ordinary about it."""
        parts = [self.collective.prose, str(self.scale)]
        parts += ["in place"] if self.in_place else []
        parts += ["registered"] if self.registered and not self.graph else []
        parts += ["CUDA graph"] if self.graph else []
        return ", ".join(parts)


class Point(msgspec.Struct, frozen=True):
    """All timings of one choice at one size.

    `time_us` is the median; `low_us` and `high_us` bound its 95 % confidence interval (equal to
    `time_us` for n = 1, where nothing is known). `spread` is the relative spread of single timings:
    1.4826 x the median absolute deviation over the median; None for n < 2.
    """

    bytes: int
    n: int
    time_us: float
    low_us: float
    high_us: float
    spread: float | None
    busbw_gb_per_s: float

    @property
    def algbw_gb_per_s(self) -> float:
        """Algorithm bandwidth in GB/s."""
        return self.bytes / (self.time_us * 1e3)


class Curve(msgspec.Struct, frozen=True):
    """The S-curve of one choice: points by rising size."""

    choice: AnyChoice
    points: list[Point]


class Saturation(msgspec.Struct, frozen=True):
    """Peak bus bandwidth of a curve and the smallest sizes at which half and 90 % of it are
    reached; `line_rate_share` is peak over line rate where that is known. `saturated` says whether
    the last doubling of the size still gained 5 %."""

    peak_gb_per_s: float
    peak_bytes: int
    half_bytes: int
    ninety_bytes: int
    saturated: bool
    line_rate_share: float | None


class Noise(msgspec.Struct, frozen=True):
    """How far two medians of the same thing lie apart (A/A), as a fraction: 0.01 is 1 %.

    `source` says how it was found: "a/a series" (the default measured twice in every round),
    "split rounds" (odd against even rounds of the default), "assumed" (one timing a point: noise
    cannot be told). `typical` is the median over sizes, `high` the 90th percentile.
    """

    source: str
    typical: float
    high: float
    sizes: int

    @property
    def known(self) -> bool:
        """Whether the timings themselves tell the noise."""
        return self.source != "assumed"


class ConditionAnalysis(msgspec.Struct, frozen=True):
    """Everything about one condition. `curves` holds the default first where it was measured,
    then the other choices by label; `saturation` is that of the default, else of the best."""

    condition: Condition
    curves: list[Curve]
    noise: Noise
    saturation: Saturation | None
    samples: int
    rounds: int

    def curve(self, choice: AnyChoice) -> Curve | None:
        """The curve of `choice`, or None where it was not measured."""
        return next((curve for curve in self.curves if curve.choice == choice), None)


class Analysis(msgspec.Struct, frozen=True):
    """A whole study analysed. `findings` are ordered: what needs attention first."""

    platform: Platform
    conditions: list[ConditionAnalysis]
    findings: list[Finding]
    samples: int

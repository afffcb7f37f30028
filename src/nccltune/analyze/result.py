# SPDX-License-Identifier: Apache-2.0
"""The structs of an analysis: conditions, curves, points, noise and findings."""

from collections.abc import Iterable

import msgspec

from nccltune.model.choice import DEFAULT, AnyChoice, Choice, PartialChoice
from nccltune.model.collective import Collective
from nccltune.model.finding import Finding
from nccltune.model.platform import Platform
from nccltune.model.sample import SCHEMA_VERSION
from nccltune.model.scale import Scale


class Condition(msgspec.Struct, frozen=True, order=True):
    """The properties, besides size and choice, that two timings must share to be compared.

    `registered` is the value that NCCL's tuner gets as regBuff. It is True for registered buffers
    and for calls in a CUDA graph (`graph`). `pipe_ops` is the value that it gets as numPipeOps,
    and `group_calls` the number of calls in a group, which it does not get. `limits` is the setting
    that forced an algorithm or a protocol and left the other to NCCL. `run` names one of several
    runs whose scale is unknown, so that they are not taken for rounds of one test.
    """

    collective: Collective
    scale: Scale
    registered: bool = False
    in_place: bool = False
    graph: bool = False
    dtype: str | None = None
    redop: str | None = None
    root: int | None = None
    pipe_ops: int = 1
    group_calls: int = 1
    limits: PartialChoice | None = None
    run: str = ""

    @property
    def title(self) -> str:
        """Return a title such as `all-reduce, 4 nodes, 4 ranks, in place`."""
        parts = [self.collective.prose, str(self.scale)]
        parts += ["in place"] if self.in_place else []
        parts += ["registered"] if self.registered and not self.graph else []
        parts += ["CUDA graph"] if self.graph else []
        parts += [f"{self.group_calls} calls a group"] if self.group_calls > 1 else []
        parts += [f"{self.pipe_ops} pipe ops"] if self.pipe_ops > 1 else []
        parts += [self.limits] if self.limits else []
        parts += [self.run] if self.run else []
        return ", ".join(parts)

    @property
    def other_placement(self) -> "Condition":
        """Return the condition in place if this one is out of place, and the other way round."""
        return msgspec.structs.replace(self, in_place=not self.in_place)

    @property
    def for_tuner(self) -> "Condition":
        """Return the condition with only those properties that NCCL passes to its tuner."""
        return Condition(
            self.collective,
            self.scale,
            registered=self.registered,
            pipe_ops=self.pipe_ops,
            limits=self.limits,
            run=self.run,
        )


def titles(conditions: Iterable[Condition]) -> dict[Condition, str]:
    """Return titles, with data type, operation and root only where they would be equal."""
    alike: dict[str, list[Condition]] = {}
    for condition in dict.fromkeys(conditions):
        alike.setdefault(condition.title, []).append(condition)
    found = {}
    for title, group in alike.items():
        fields = [
            name
            for name in ("dtype", "redop", "root")
            if len({getattr(c, name) for c in group}) > 1
        ]
        for condition in group:
            values = [(name, getattr(condition, name)) for name in fields]
            words = [
                f"root {value}" if name == "root" else str(value)
                for name, value in values
                if value is not None
            ]
            found[condition] = ", ".join([title, *words])
    return found


class CurvePoint(msgspec.Struct, frozen=True):
    """The summary of `n` timings of one choice at one size.

    `low_us` and `high_us` bound the 95 % confidence interval of the median `time_us`, if n > 1.
    `spread` is 1.4826 x the median absolute deviation over the median. `ran` is what NCCL ran as
    its default.
    """

    bytes: int
    n: int
    time_us: float
    low_us: float
    high_us: float
    spread: float | None
    busbw_gb_per_s: float
    ran: Choice | None = None


class Curve(msgspec.Struct, frozen=True):
    """The S-curve of one choice: its points in ascending order of size."""

    choice: AnyChoice
    points: list[CurvePoint]


class Saturation(msgspec.Struct, frozen=True):
    """The peak bus bandwidth, and the smallest sizes with half and 90 % of it.

    `saturated`: the last doubling gained less than 5 % over all before, or the peak is before it.
    """

    peak_gb_per_s: float
    peak_bytes: int
    half_bytes: int
    ninety_bytes: int
    saturated: bool
    line_rate_share: float | None


class Noise(msgspec.Struct, frozen=True):
    """The A/A distance: how far two medians of the same configuration differ (0.01 is 1 %).

    `source` is "a/a series" (the default twice in every round), "split rounds" or "split processes"
    (odd and even), or "assumed" (too few timings). `typical` is the median over sizes, `high` the
    90th percentile.
    """

    source: str
    typical: float
    high: float
    sizes: int

    @property
    def known(self) -> bool:
        """Return whether the noise was measured."""
        return self.source != "assumed"


class ModelCurve(msgspec.Struct, frozen=True):
    """What NCCL's own cost model gives the default at the measured sizes: no measurement.

    `sentence` compares it with the measured times, and names the term that is off.
    """

    bytes: list[int]
    choices: list[str]
    times_us: list[float]
    sentence: str


class ConditionAnalysis(msgspec.Struct, frozen=True):
    """The curves, noise and saturation of one condition.

    `curves` holds the default first, if measured, then others by label. `saturation` is that of the
    default, else of the highest bandwidth. `title` distinguishes the condition. `ran_predicted` is
    whether `ran` is from NCCL's cost table. `model` is None where it does not apply.
    """

    condition: Condition
    curves: list[Curve]
    noise: Noise
    saturation: Saturation | None
    samples: int
    rounds: int
    title: str
    ran_predicted: bool = False
    model: ModelCurve | None = None

    @property
    def sizes(self) -> list[int]:
        """Return every measured size in ascending order."""
        return sorted({point.bytes for curve in self.curves for point in curve.points})

    @property
    def shown(self) -> Curve:
        """Return the curve of the default, else the one with the highest bandwidth."""
        return self.curve(DEFAULT) or max(
            self.curves, key=lambda item: max(point.busbw_gb_per_s for point in item.points)
        )

    def curve(self, choice: AnyChoice) -> Curve | None:
        """Return the curve of `choice`; None if the choice was not measured."""
        return next((curve for curve in self.curves if curve.choice == choice), None)


class Analysis(msgspec.Struct, frozen=True):
    """The analysis of a study, with findings by urgency; `basis` is a hash of its other files."""

    platform: Platform
    conditions: list[ConditionAnalysis]
    findings: list[Finding]
    samples: int
    basis: str | None = None
    schema_version: int = SCHEMA_VERSION

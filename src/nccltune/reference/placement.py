# SPDX-License-Identifier: Apache-2.0
"""Place a measured curve among the reference systems that are alike, and judge it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
import numpy as np

from nccltune.analyze.stats import median
from nccltune.model.collective import Collective
from nccltune.model.numbers import percent_text, significant
from nccltune.model.sizes import format_bytes
from nccltune.reference.alike import SystemShown, unlike
from nccltune.reference.curves import ReferenceCurve

CLEARLY = 0.9
"""Below this share of the lowest alike system it is low; ten runs on Alps differ by 3 %."""
CLEARLY_OF_ONE = 0.75
"""The same if only one system is alike."""
SLOW = 1.5
"""Above this multiple of the slowest alike system, a latency is high."""
_QUARTILES = 4
"""Fewest systems with quartiles."""
_LATENCY_BYTES = 16 << 10
"""Up to this size, the least time is the latency. The first size of a run is often disturbed."""
_LATENCY_LIMIT = 1 << 20
"""Below this size times depend on the number of nodes: only equal numbers are compared."""
_BEYOND = 1.05
"""Share of a rate above which the rate is wrong, or a run is better than another."""
_NEAREST = 3


class Verdict(StrEnum):
    """Where a figure is among those of the systems that are alike."""

    LOW = "low"
    BELOW = "below"
    BETWEEN = "between"
    ABOVE = "above"
    UNDECIDED = "undecided"
    NOTHING_ALIKE = "nothing alike"


class SystemFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The median bus bandwidth of a system in GB/s at one size, with extremes.

    `unlike` names the rules by which the system is not alike.
    """

    system: str
    gpu: str
    nodes: int
    gpus: int
    nic_gbps_per_gpu: float | None
    busbw_gb_per_s: float
    low: float
    high: float
    runs: int
    nccl: list[str]
    sources: list[str]
    fault: str | None = None
    unlike: list[str] = []

    @property
    def scale_text(self) -> str:
        """Return `2 x 8 H100`; `8 H100` for one node."""
        each = f"{self.gpus / self.nodes:g} {self.gpu}"
        return each if self.nodes == 1 else f"{self.nodes} x {each}"


class SizeRange(msgspec.Struct, frozen=True, kw_only=True):
    """The range of the alike systems at one size, in GB/s; quartiles only for four or more.

    `busbw_gb_per_s` and `time_us` are those of the run; `sources` published the systems' figures.
    """

    bytes: int
    busbw_gb_per_s: float
    time_us: float
    low: float
    p25: float | None
    median: float
    p75: float | None
    high: float
    systems: list[str]
    sources: list[str]


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the run among those of the systems that are alike."""

    bytes: int
    busbw_gb_per_s: float
    time_us: float
    verdict: Verdict
    sentence: str
    systems: list[SystemFigure]
    faults: list[SystemFigure] = []


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A curve among the reference systems: at its largest size, its smallest, and all.

    `by_rate` has a sentence for each NIC rate if that is unknown; `nearest` are for want of alike
    ones.
    """

    bandwidth: Placed
    latency: Placed | None
    sizes: list[SizeRange]
    by_rate: list[str]
    nearest: list[SystemFigure]


def place(
    system: SystemShown,
    collective: Collective,
    times_us: Mapping[int, float],
    curves: Sequence[ReferenceCurve],
) -> Placement:
    """Return where a curve is among the reference systems; `system.gpus` must be known."""
    alike = [curve for curve in curves if not unlike(system, collective, curve)]
    same = [curve for curve in alike if curve.nodes == system.nodes]
    largest = max(times_us)
    missing = [name for name in system.missing if name != "nics"]
    undecided = "which systems are alike is not known" if missing else ""
    by_rate: list[str] = []
    if not missing and "nics" in system.missing:
        for rate in sorted({curve.nic_gbps_per_gpu or 0 for curve in alike}, reverse=True):
            group = [curve for curve in alike if curve.nic_gbps_per_gpu == rate]
            placed = _placed(system, collective, largest, times_us[largest], group)
            if placed.systems:
                node = rate / 8 * (system.gpus_per_node or 0)
                beyond = collective.tuned and rate and exceeds(system, placed.busbw_gb_per_s, node)
                words = "more than they carry" if beyond else placed.sentence
                by_rate.append(f"with {rate:g} Gbit/s for each GPU: {words}")
                undecided = "the NIC rate is not known, and decides what is normal"
    bandwidth = _placed(
        system, collective, largest, times_us[largest], [] if missing else alike, undecided
    )
    latency = None
    least = latency_size(times_us)
    if least is not None and not system.missing:
        quick = [
            msgspec.structs.replace(curve, points=((least, time_us),))
            for curve in same
            if (time_us := curve.least_us(min(times_us), _LATENCY_BYTES)) is not None
        ]
        latency = _placed(system, collective, least, times_us[least], quick, latency=True)
    ranges = [
        _range(system, collective, size, times_us[size], alike if size >= _LATENCY_LIMIT else same)
        for size in sorted(times_us)
        if not system.missing
    ]
    alone = bandwidth.verdict is Verdict.NOTHING_ALIKE
    return Placement(
        bandwidth=bandwidth,
        latency=latency if latency is not None and latency.systems else None,
        sizes=[item for item in ranges if item is not None],
        by_rate=by_rate,
        nearest=_nearest(system, collective, largest, curves) if alone else [],
    )


def exceeds(system: SystemShown, busbw: float, node_gb_per_s: float) -> bool:
    """Return whether a bus bandwidth is more than the NICs of a node carry.

    On two nodes a tree sends each byte once, and the bus bandwidth counts it nearly twice, of one
    GPU a node once. In a rack whose NVLink joins nodes, the NICs of one node are no limit.
    """
    counted = Collective.ALLREDUCE.bus_factor(system.gpus or 16) if system.nodes == 2 else 1
    return not system.is_rack and busbw > _BEYOND * node_gb_per_s * counted


def latency_size(times_us: Mapping[int, float]) -> int | None:
    """Return the small size with the least time, which is the latency; None without a small one."""
    small = [size for size in times_us if size <= _LATENCY_BYTES]
    return min(small, key=lambda size: times_us[size]) if small else None


def _placed(
    system: SystemShown,
    collective: Collective,
    size: int,
    time_us: float,
    alike: Sequence[ReferenceCurve],
    undecided: str = "",
    *,
    latency: bool = False,
) -> Placed:
    busbw = collective.busbw_gb_per_s(size, time_us, system.gpus or 1)
    found = figures(alike, size, system.nodes)
    systems = [item for item in found if item.fault is None]
    values = sorted(item.busbw_gb_per_s for item in systems)
    verdict, words = Verdict.NOTHING_ALIKE, "no published system is like it"
    if undecided:
        verdict, words = Verdict.UNDECIDED, undecided
    elif systems:
        verdict, words = _judged(busbw, values, latency=latency)
        slow = max((_BEYOND * x.busbw_gb_per_s for x in found if x.fault), default=0.0)
        if verdict is Verdict.BELOW and not latency and busbw < min(CLEARLY * values[0], slow):
            verdict, words = Verdict.LOW, words.replace("but near", "as slow as one with a fault")
        ends = [busbw * time_us / value for value in values[::-1]] if latency else values
        span = " to ".join(dict.fromkeys(map(significant, (ends[0], ends[-1]))))
        words += f" ({span} {'us' if latency else 'GB/s'})"
    lead = f"{significant(busbw)} GB/s at {format_bytes(size)}"
    if latency:
        lead = f"{significant(time_us)} us, the least up to {format_bytes(_LATENCY_BYTES)}"
    return Placed(
        bytes=size,
        busbw_gb_per_s=busbw,
        time_us=time_us,
        verdict=verdict,
        sentence=f"{lead}: {words}",
        systems=systems,
        faults=[item for item in found if item.fault is not None],
    )


def _judged(busbw: float, values: Sequence[float], *, latency: bool) -> tuple[Verdict, str]:
    """Return the verdict and its words. A latency is judged by the bandwidth at its size."""
    one = len(values) == 1
    names = {1: "the one published system", 2: "both published systems"}
    each = names.get(len(values), f"all {len(values)} published systems") + " like it"
    limit = 1 / SLOW if latency else CLEARLY_OF_ONE if one else CLEARLY
    below, above = ("slower than", "faster than") if latency else ("below", "above")
    if busbw < limit * values[0]:
        if latency:
            far = f"{significant(values[0] / busbw)} times the time of the slowest"
        else:
            far = f"{percent_text(1 - busbw / values[0])} below the lowest"
        return Verdict.LOW, f"{below} {each}, {far}"
    if busbw < values[0]:
        return Verdict.BELOW, f"{below} {each}, but near"
    if busbw > values[-1]:
        return Verdict.ABOVE, f"{above} {each}"
    if len(values) < _QUARTILES:
        where = f"as fast as {each}" if one else f"between the {len(values)} published systems"
        return Verdict.BETWEEN, where if one else f"{where} like it"
    p25, p75 = np.percentile(values, [25, 75])
    where = "below p25" if busbw < p25 else "above p75" if busbw > p75 else "between p25 and p75"
    return Verdict.BETWEEN, f"{where} of {len(values)} published systems like it"


def figures(curves: Sequence[ReferenceCurve], size: int, nodes: int | None) -> list[SystemFigure]:
    """Return each system's figure at a size, faulty apart, at the scale nearest to `nodes`."""
    groups: dict[tuple[str, str | None], list[tuple[ReferenceCurve, float]]] = defaultdict(list)
    for curve in curves:
        value = curve.busbw_at(size)
        if value:
            groups[curve.system, curve.fault].append((curve, value))
    found = []
    for items in groups.values():
        near = min((curve for curve, _ in items), key=lambda curve: _away(curve.nodes, nodes))
        scaled = [x for x in items if (x[0].nodes, x[0].gpus) == (near.nodes, near.gpus)]
        plain = [item for item in scaled if item[0].settings is None] or scaled
        values = [value for _, value in plain]
        first = plain[0][0]
        found.append(
            SystemFigure(
                system=first.system,
                gpu=first.gpu,
                nodes=first.nodes,
                gpus=first.gpus,
                nic_gbps_per_gpu=first.nic_gbps_per_gpu,
                busbw_gb_per_s=median(values),
                low=min(values),
                high=max(values),
                runs=len(values),
                nccl=sorted({curve.nccl for curve, _ in plain if curve.nccl}),
                sources=sorted({curve.source for curve, _ in plain}),
                fault=first.fault,
            )
        )
    return sorted(found, key=lambda item: -item.busbw_gb_per_s)


def _away(nodes: int, own: int | None) -> float:
    return max(nodes, own or nodes) / min(nodes, own or nodes)


def _nearest(
    system: SystemShown, collective: Collective, size: int, curves: Sequence[ReferenceCurve]
) -> list[SystemFigure]:
    """Return figures of systems that break the fewest rules, but have the GPU and collective."""
    by_rules: dict[tuple[str, ...], list[ReferenceCurve]] = defaultdict(list)
    for curve in curves:
        rules = unlike(system, collective, curve)
        if not {"collective", "GPU"} & set(rules) and curve.fault is None:
            by_rules[tuple(rules)].append(curve)
    found = [
        msgspec.structs.replace(item, unlike=list(rules))
        for rules, items in by_rules.items()
        for item in figures(items, size, system.nodes)
    ]

    found.sort(key=lambda item: (len(item.unlike), _away(item.nodes, system.nodes)))
    return found[:_NEAREST]


def _range(
    system: SystemShown,
    collective: Collective,
    size: int,
    time_us: float,
    alike: Sequence[ReferenceCurve],
) -> SizeRange | None:
    found = [item for item in figures(alike, size, system.nodes) if item.fault is None]
    if not found:
        return None
    values = [item.busbw_gb_per_s for item in found]
    quartiles = [float(x) for x in np.percentile(values, [25, 75])]
    many = len(values) >= _QUARTILES
    return SizeRange(
        bytes=size,
        busbw_gb_per_s=collective.busbw_gb_per_s(size, time_us, system.gpus or 1),
        time_us=time_us,
        low=min(values),
        p25=quartiles[0] if many else None,
        median=median(values),
        p75=quartiles[1] if many else None,
        high=max(values),
        systems=sorted({item.system for item in found}),
        sources=sorted({source for item in found for source in item.sources}),
    )

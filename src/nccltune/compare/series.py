# SPDX-License-Identifier: Apache-2.0
"""One test at several scales: bandwidth over the number of nodes, or of ranks on a node."""

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from nccltune.analyze.stats import median
from nccltune.compare.runs import MeasuredRun, MeasuredTest
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes

_SIZES = 3
"""Number of the largest common sizes that are shown and judged."""
_DROP = 0.9
"""A step to more nodes that keeps less than this share of the bandwidth is reported."""
_DENT = 0.8
"""A scale below this share of both its neighbours is an outlier."""


class ScaleRow(msgspec.Struct, frozen=True):
    """One scale: median bus bandwidth at each size, and `efficiency` at the largest size.

    `nodes` is 0 if the number is unknown.

    The efficiency is relative to the smallest scale of more than one node. It is None for one node,
    and if the ranks of each node vary.
    """

    nodes: int
    ranks: int
    runs: int
    gb_per_s: list[float]
    efficiency: float | None
    outlier: bool = False


class ScalingSeries(msgspec.Struct, frozen=True):
    """A test over the number of nodes with equal ranks on each, or over ranks on equal nodes."""

    title: str
    sizes: list[int]
    rows: list[ScaleRow]
    sentences: list[str]

    @property
    def has_outlier(self) -> bool:
        """Return whether a scale is slower than both its neighbours."""
        return any(row.outlier for row in self.rows)


def scaling(runs: Sequence[MeasuredRun]) -> list[ScalingSeries]:
    """Return the series of each test with at least three numbers of nodes, or of ranks."""
    found: dict[
        tuple[MeasuredTest, str, object], dict[MeasuredTest, list[dict[int, list[float]]]]
    ] = defaultdict(dict)
    for run in runs:
        for (test, label), curve in run.curves.items():
            nodes, ranks = test.scale
            if ranks and (label == "default" or (test, "default") not in run.curves):
                times: dict[int, list[float]] = defaultdict(list)
                for place, value in curve.times.items():
                    times[place.bytes].append(value)
                bare = test._replace(scale=(None, None))
                # Without numbers of nodes, the numbers of ranks are the scales.
                for fixed in ((None, ranks / nodes), (nodes, None)) if nodes else ((0, None),):
                    found[bare, label, fixed].setdefault(test, []).append(times)
    series = [
        _series(by_scale, label) for (_, label, _), by_scale in found.items() if len(by_scale) > 2
    ]
    return [item for item in series if item is not None]


def _series(
    by_scale: dict[MeasuredTest, list[dict[int, list[float]]]], label: str
) -> ScalingSeries | None:
    common = set.intersection(*(set(item) for items in by_scale.values() for item in items))
    sizes = sorted(common)[-_SIZES:]
    if not sizes:
        return None
    ordered = sorted(by_scale.items(), key=lambda item: item[0].scale)
    rates = [
        [
            test.bandwidth(size, median([math.fsum(x[size]) / len(x[size]) for x in items]))
            for size in sizes
        ]
        for test, items in ordered
    ]
    first = next((i for i, (test, _) in enumerate(ordered) if (test.scale[0] or 0) > 1), 0)
    one_size = ordered[0][0].scale[0] == ordered[-1][0].scale[0]
    rows = [
        ScaleRow(
            test.scale[0] or 0,
            test.scale[1] or 0,
            len(items),
            rates[i],
            rates[i][-1] / rates[first][-1] if i >= first and not one_size else None,
            # One node has no network, so it is no neighbour.
            first < i < len(ordered) - 1
            and _below(rates[i], rates[i - 1], _DENT)
            and _below(rates[i], rates[i + 1], _DENT),
        )
        for i, (test, items) in enumerate(ordered)
    ]
    test = ordered[0][0]
    each = (test.scale[1] or 0) // (test.scale[0] or 1)
    known = count(test.scale[0], "node") if test.scale[0] else "number of nodes unknown"
    fixed = known if one_size else f"{count(each, 'rank')} on each node"
    title = f"{test.collective.prose}, {fixed}" + ("" if label == "default" else f", {label}")
    return ScalingSeries(title, sizes, rows, _sentences(rows[first:], sizes))


def _below(rates: list[float], others: list[float], share: float) -> bool:
    """Return whether a scale is below `share` of another at most sizes."""
    low = sum(rate < share * other for rate, other in zip(rates, others, strict=True))
    return 2 * low > len(rates)


def _sentences(rows: list[ScaleRow], sizes: list[int]) -> list[str]:
    """Return a sentence for each outlier and for each step that loses bandwidth."""
    same_nodes = rows[0].nodes == rows[-1].nodes
    noun = "ranks" if same_nodes else "nodes"

    def words(row: ScaleRow, place: int = -1) -> str:
        return (
            f"{row.gb_per_s[place]:.3g} GB/s with {row.ranks if same_nodes else row.nodes} {noun}"
        )

    at, found = f"at {format_bytes(sizes[-1])}", []
    sound = [row for row in rows if not row.outlier]
    for before, row, after in zip(rows, rows[1:], rows[2:], strict=False):
        if row.outlier:
            found.append(
                f"{words(row)} {at}, but {words(before)} and {words(after)}: run it again, or look "
                "at its nodes"
            )
    for before, after in pairwise(sound):
        kept = [rate / other for rate, other in zip(after.gb_per_s, before.gb_per_s, strict=True)]
        if _below(after.gb_per_s, before.gb_per_s, _DROP) or kept[-1] < _DENT:
            # The loss at the largest size, unless that size does not lose.
            place = len(kept) - 1 if kept[-1] < _DROP else kept.index(sorted(kept)[len(kept) // 2])
            found.append(
                f"{words(before, place)}, {words(after, place)} at {format_bytes(sizes[place])}: "
                f"{100 * (1 - kept[place]):.0f} % lost"
            )
    if len(sound) > 1 and not found:
        found.append(
            f"no step loses more than {100 * (1 - _DROP):.0f} % at most of the sizes shown"
        )
    return found

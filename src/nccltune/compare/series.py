# SPDX-License-Identifier: Apache-2.0
"""One test at several scales: bandwidth over the number of nodes, or of ranks on a node."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations, pairwise

import msgspec

from nccltune.analyze.stats import median
from nccltune.compare.runs import MeasuredRun, MeasuredTest, fact_differences, runs_by_platform
from nccltune.formats.reading.platform_facts import joined
from nccltune.model.collective import Collective
from nccltune.model.numbers import gain_text
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes

_SIZES = 3
"""Number of the largest common sizes that are shown and judged."""
_DROP = 0.9
"""A step to more nodes that keeps less than this share of the bandwidth at a size is reported."""
_DENT = 0.8
"""A scale below this share of both its neighbours is an outlier."""
_EQUAL = 0.05
_UNEVEN = 1.5
"""Ratio of runs of one scale from which the series is in doubt."""
_OF_TREES = (
    "; on 2 nodes trees send each byte once where bus bandwidth counts it nearly twice, so they "
    "may exceed the NICs' rate: run 2 nodes with NCCL_ALGO=Ring, too, before you look for a fault"
)
_MOST = 6
_FACTS = 2
"""Most facts of a title."""
_MOST_SCALES = 0.8
"""Share of the scales that must have a size. A scale that ended early takes no sizes away."""


class ScaleRow(msgspec.Struct, frozen=True):
    """One scale: median bus bandwidth at each size; `nodes` is 0 if unknown.

    `efficiency` is by the smallest scale of several nodes; None for one, and uneven nodes. An
    `outlier` is below both neighbours at most sizes.
    """

    nodes: int
    ranks: int
    runs: int
    gb_per_s: list[float]
    efficiency: float | None
    outlier: bool = False


class ScalingSeries(msgspec.Struct, frozen=True):
    """A test over nodes, or over ranks on equal nodes; no rows without a common size."""

    title: str
    sizes: list[int]
    rows: list[ScaleRow]
    sentences: list[str]

    @property
    def has_outlier(self) -> bool:
        """Return whether a scale is slower than both its neighbours."""
        return any(row.outlier for row in self.rows)


_Times = dict[int, list[float]]
"""The log times of a run by size."""


def scaling(runs: Sequence[MeasuredRun]) -> list[ScalingSeries]:
    """Return the series, of runs with equal facts, of tests of at least three scales."""
    return [item for own, facts in by_facts(runs) for item in _of_platform(own, facts)]


def kept_apart(runs: Sequence[MeasuredRun]) -> str | None:
    """Return which runs are not in one series, and why; None if all may be."""
    platforms = by_facts(runs)
    if len(platforms) == 1 or len({run.scale for run in runs}) < 3:
        return None
    words = [f"{joined([run.name for run in own])} ({facts[2:]})" for own, facts in platforms]
    if len(words) > _MOST:
        words[_MOST:] = [f"and {len(words) - _MOST} more"]
    return f"not one series, because the runs differ: {'; '.join(words)}"


def by_facts(runs: Sequence[MeasuredRun]) -> list[tuple[list[MeasuredRun], str]]:
    """Return the runs by platform, and after commas the facts in which each differs."""
    groups = runs_by_platform(runs)
    known: list[dict[str, str]] = [{} for _ in groups]
    for (i, one), (j, other) in combinations(enumerate(groups), 2):
        for item in fact_differences(one, other):
            if item.fact != "hosts":
                known[i][item.fact], known[j][item.fact] = item.first, item.second
    names = list(dict.fromkeys(name for facts in known for name in facts))[:_FACTS]
    return [
        (own, "".join(f", {name} {facts.get(name, 'not shown')}" for name in names))
        for own, facts in zip(groups, known, strict=True)
    ]


def _of_platform(runs: Sequence[MeasuredRun], facts: str) -> list[ScalingSeries]:
    """Return the series of runs of one platform. `facts` is added to their titles."""
    found: dict[tuple[MeasuredTest, str, object], dict[MeasuredTest, list[_Times]]] = defaultdict(
        dict
    )
    for run in runs:
        for (test, label), curve in run.curves.items():
            nodes, ranks = test.scale
            if ranks and (label == "default" or (test, "default") not in run.curves):
                times: _Times = defaultdict(list)
                for place, value in curve.times.items():
                    times[place.bytes].append(value)
                bare = test._replace(scale=(None, None))
                # Without numbers of nodes, the numbers of ranks are the scales.
                for fixed in ((None, ranks / nodes), (nodes, None)) if nodes else ((0, None),):
                    found[bare, label, fixed].setdefault(test, []).append(times)
    return [
        _series(by_scale, ("" if label == "default" else f", {label}") + facts)
        for (_, label, _), by_scale in found.items()
        if len(by_scale) > 2
    ]


def _series(by_scale: dict[MeasuredTest, list[_Times]], words: str) -> ScalingSeries:
    ordered = sorted(by_scale.items(), key=lambda item: item[0].scale)
    one_size = ordered[0][0].scale[0] == ordered[-1][0].scale[0]
    test = ordered[0][0]
    each = (test.scale[1] or 0) // (test.scale[0] or 1)
    known = count(test.scale[0], "node") if test.scale[0] else "number of nodes unknown"
    fixed = known if one_size else f"{count(each, 'rank')} on each node"
    title = f"{test.collective.prose}, {fixed}{words}"
    measured = Counter(size for _, items in ordered for size in set().union(*items))
    sizes = sorted(x for x, n in measured.items() if n >= max(3, _MOST_SCALES * len(ordered)))
    sizes = sizes[-_SIZES:]
    complete = [
        (test, full)
        for test, items in ordered
        if (full := [times for times in items if times.keys() >= set(sizes)])
    ]
    if not sizes or len(complete) < 3:
        return ScalingSeries(title, [], [], ["not shown: no size is common to the scales"])
    rates = [
        [
            test.bandwidth(size, median([math.fsum(x[size]) / len(x[size]) for x in items]))
            for size in sizes
        ]
        for test, items in complete
    ]
    first = next((i for i, (test, _) in enumerate(complete) if (test.scale[0] or 0) > 1), 0)
    # One node has no network, so it is no neighbour.
    dents = [_dents(rates, i) if first < i < len(rates) - 1 else [] for i in range(len(rates))]
    rows = [
        ScaleRow(
            test.scale[0] or 0,
            test.scale[1] or 0,
            len(items),
            rates[i],
            rates[i][-1] / rates[first][-1] if i >= first and not one_size else None,
            2 * len(dents[i]) > len(sizes),
        )
        for i, (test, items) in enumerate(complete)
    ]
    trees = test.collective is Collective.ALLREDUCE and each > 1 and "ring" not in words.lower()
    sentences = _sentences(rows[first:], dents[first:], sizes, _OF_TREES if trees else "")
    logs = [[math.fsum(x[sizes[-1]]) / len(x[sizes[-1]]) for x in items] for _, items in complete]
    if max(apart := [math.exp(max(own) - min(own)) for own in logs]) > _UNEVEN:
        sentences = [
            f"runs of one scale differ by up to {gain_text(max(apart))}, for example with "
            f"{rows[apart.index(max(apart))].ranks} ranks: only runs of equal settings are a series"
        ]
    return ScalingSeries(title, sizes, rows, sentences)


def _dents(rates: list[list[float]], i: int) -> list[int]:
    """Return the places of the sizes at which scale `i` is below both its neighbours."""
    triples = zip(rates[i - 1], rates[i], rates[i + 1], strict=True)
    return [
        place
        for place, (before, rate, after) in enumerate(triples)
        if rate < _DENT * min(before, after)
    ]


def _sentences(
    rows: list[ScaleRow], dents: list[list[int]], sizes: list[int], of_two: str
) -> list[str]:
    """Return a sentence for each dent, a loss over all steps, and each step that stands out.

    `of_two` is added to a loss from two nodes on.
    """
    same_nodes = rows[0].nodes == rows[-1].nodes
    noun = "ranks" if same_nodes else "nodes"

    def words(row: ScaleRow, place: int) -> str:
        scale = row.ranks if same_nodes else row.nodes
        return f"{row.gb_per_s[place]:.3g} GB/s with {scale} {noun}"

    found = []
    for before, row, after, own in zip(rows, rows[1:], rows[2:], dents[1:], strict=False):
        if own:
            depth = [row.gb_per_s[i] / min(before.gb_per_s[i], after.gb_per_s[i]) for i in own]
            place = own[depth.index(min(depth))]
            found.append(
                f"{words(row, place)} at {format_bytes(sizes[place])}, but {words(before, place)} "
                f"and {words(after, place)}: run it again, or look at its nodes"
            )
    lost: dict[tuple[int, int, str], list[tuple[float, int]]] = defaultdict(list)
    for place in range(len(sizes)):
        sound = [i for i in range(len(rows)) if place not in dents[i] and not rows[i].outlier]
        rate = {i: rows[i].gb_per_s[place] for i in sound}
        steps = {(i, j): math.log(rate[i] / rate[j]) for i, j in pairwise(sound)}
        even = {
            step: loss
            for step, loss in steps.items()
            if loss <= 2 * max(0, median([x for key, x in steps.items() if key != step] or [0]))
        }
        if is_trend := sum(even.values()) > -math.log(_DROP):
            key = sound[0], sound[-1], f" over {len(sound)} scales"
            lost[key].append((1 - rate[sound[-1]] / rate[sound[0]], place))
        for (i, j), loss in steps.items():
            if loss > -math.log(_DROP) and not (is_trend and (i, j) in even):
                lost[i, j, ""].append((1 - math.exp(-loss), place))
    for (i, j, over), losses in sorted(lost.items()):
        most = max(losses)[0]
        # Of losses that are about equal, the largest size stands for all.
        *_, (loss, place) = (item for item in losses if item[0] > most - _EQUAL)
        rest = [
            f", {100 * other:.0f} % at {format_bytes(sizes[at])}"
            for other, at in losses
            if other <= most - _EQUAL
        ]
        found.append(
            f"{words(rows[i], place)}, {words(rows[j], place)} at {format_bytes(sizes[place])}: "
            f"{100 * loss:.0f} % lost{over}{''.join(rest)}"
            + of_two
            * (i == 0 and rows[0].nodes == 2 and not same_nodes)
        )
    if len(rows) > 1 and not found:
        found.append(f"no step loses more than {100 * (1 - _DROP):.0f} % at the sizes shown")
    return found

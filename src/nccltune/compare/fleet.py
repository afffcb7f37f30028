# SPDX-License-Identifier: Apache-2.0
"""Many runs of one test: nodes, pairs of nodes, runs and periods that are slower than the others.

The value of a run is its median log time over a band of sizes, against the median of all runs. A
node is judged by all its runs: if a node makes a pair slow, its other pairs are slow, too.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, takewhile
from typing import NamedTuple

import msgspec
import numpy as np

from nccltune.analyze.stats import normal_z
from nccltune.compare.runs import MeasuredRun, MeasuredTest, RunCurve, fact_differences
from nccltune.compare.scan import LEAST_SCATTER, Floats, Members, stretches
from nccltune.model.numbers import significant
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes

FEWEST_PAIRS = 6
_GAPS = 3
"""Number of the largest gaps between the sorted values that are tried as the border."""
_APART = 4
"""The least gap, in spreads of the fast and of the slow pairs."""
_STRAY = 0.1
"""Share of the pairs inside the groups that may be slow for another reason."""


class NodeGroups(NamedTuple):
    """Groups of nodes, the largest first, and the pairs `between` two of them, which are slow."""

    groups: list[list[str]]
    between: Members


def node_groups(
    values: Floats, pairs: Sequence[tuple[str, ...]], least: float
) -> NodeGroups | None:
    """Return the groups of the nodes, from log times of pairs and the least gap, or None.

    A single node that is slow with all is a group only beside others: the path may be slow.
    """
    if len(pairs) < FEWEST_PAIRS or any(len(pair) != 2 for pair in pairs):
        return None
    ordered = np.sort(values)
    gaps = np.diff(ordered)
    for place in np.argsort(-gaps)[:_GAPS].tolist():
        parts = ordered[: place + 1], ordered[place + 1 :]
        spread = max(
            LEAST_SCATTER, *(1.4826 * float(np.median(np.abs(x - np.median(x)))) for x in parts)
        )
        if gaps[place] > max(least, _APART * spread):
            fast = values <= ordered[place]
            found = _groups(pairs, fast)
            inside = np.array([any({*pair} <= {*group} for group in found) for pair in pairs])
            stray = int((inside & ~fast).sum())
            several = len(found) > 1 and len(found[1]) > 1
            if several and stray <= _STRAY * inside.sum() and _all_tested(found, pairs):
                return NodeGroups(found, ~inside)
    return None


def _all_tested(groups: list[list[str]], pairs: Sequence[tuple[str, ...]]) -> bool:
    place = {name: i for i, names in enumerate(groups) for name in names}
    tested = {frozenset(place[name] for name in pair) for pair in pairs}
    return all(frozenset(item) in tested for item in combinations(range(len(groups)), 2))


def _groups(pairs: Sequence[tuple[str, ...]], fast: Members) -> list[list[str]]:
    """Return the nodes that fast pairs connect, the largest group first."""
    group = {name: {name} for pair in pairs for name in pair}
    for pair, connected in zip(pairs, fast, strict=True):
        if connected and group[pair[0]] is not group[pair[1]]:
            joined = group[pair[0]] | group[pair[1]]
            group.update(dict.fromkeys(joined, joined))
    unique = {id(names): sorted(names) for names in group.values()}
    return sorted(unique.values(), key=lambda names: (-len(names), names))


FEWEST_RUNS = 4
_CLEAR = 1.25
"""Of three pairs of nodes, one is slow if it takes so much longer than both others, which agree."""
LEVEL = 0.05
ALLOWANCE = 0.03
"""Slower by less than this is not reported, whatever the noise."""
_UNEVEN, _UNEVEN_SPREAD = 1.5, 0.15
"""Ratio and relative spread of runs beyond which nothing shows what is usual."""
_FAR = 10
"""The difference of runs at one size against the usual one, from which that size varies."""
_SIMULATED = 1000
_MOST_RUNS = 400
"""Most runs for which critical values are simulated. For more, those of normal noise are close."""
_SEED = 20261127


class SlowPart(msgspec.Struct, frozen=True):
    """What is slower than the others: a `node`, a `run`, a `period` of runs, or a `path`.

    `names` are nodes, or for runs and periods the runs. For a path they are the groups of nodes
    that are slow with each other and with the others, and not among themselves. `ratio` is its time
    over the usual time. `value` and `usual` are in `unit` (GB/s or us) at `bytes`. `low` of its
    `runs` are slower than the others. `hosts` are the nodes of a slow run, empty if all runs have
    the same. `facts` are the facts in which its runs differ from the others. `noun` is what its
    runs are: runs or pairs (of nodes).
    """

    kind: str
    names: list[str]
    ratio: float
    value: float
    usual: float
    unit: str
    bytes: int
    low: int
    runs: int
    hosts: list[str] = []
    facts: list[str] = []
    noun: str = "run"

    @property
    def sentence(self) -> str:
        """Return `node-4: 11.9 of 13.5 GB/s at 1 GiB in 16 of 16 pairs`."""
        names = ", ".join(self.names)
        if self.kind == "period":
            names = f"{count(self.runs, 'run')} from {self.names[0]} to {self.names[-1]}"
        elif self.kind == "path":
            names = "between " + ", ".join(f"{{{name}}}" for name in self.names) + " and the others"
        value, usual = significant(self.value), significant(self.usual)
        what = (
            f"{value} of {usual} GB/s" if self.unit == "GB/s" else f"{value} us, usual {usual} us"
        )
        words = f"{names}: {what} at {format_bytes(self.bytes)}"
        if self.kind == "node":
            words += f" in {self.low} of {count(self.runs, self.noun)}"
            if len(self.names) > 1:
                words += "; these nodes ran only together, so which of them is slow is unknown"
        elif self.kind == "path":
            words += (
                f" in {self.low} of {count(self.runs, 'pair')}; usual are pairs inside a group: "
                "look at the path between the groups, such as switches"
            )
        return words + "".join(f"; {fact}" for fact in self.facts)


class NodeValue(msgspec.Struct, frozen=True):
    """A node with the bandwidth of its runs: median, mean and worst; `low` of them are slow."""

    name: str
    runs: int
    low: int
    median_gb_per_s: float
    mean_gb_per_s: float
    worst_gb_per_s: float


class FleetTest(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one test at one scale.

    `usual_gb_per_s` is the median bandwidth at `bytes`, the largest common size. `spread` is the
    relative spread there of the runs that are not slow, and `rates` are their lowest and highest
    bandwidths. `nodes` are sorted by their mean, the slowest first; empty if the hosts are unknown
    or the same in all runs. `cut` are runs with less than half of the sizes: they are not judged.
    `varied` is the size at which runs differ far more than at most sizes, and the times (us) there.
    """

    title: str
    runs: int
    hosts: int
    bytes: int
    usual_gb_per_s: float
    spread: float
    rates: tuple[float, float]
    nodes: list[NodeValue]
    slow: list[SlowPart]
    cut: list[str] = []
    varied: tuple[int, float, float] | None = None

    @property
    def uneven(self) -> bool:
        """Return whether the runs that are not slow differ so much that none is usual."""
        return self.spread > _UNEVEN_SPREAD and self.rates[1] > _UNEVEN * self.rates[0]


def judge_fleet(runs: Sequence[MeasuredRun]) -> list[FleetTest]:
    """Return a judgement of each test that at least FEWEST_RUNS runs measured at one scale.

    Three pairs of nodes are judged where one of them is clearly slow.
    """
    found: dict[tuple[MeasuredTest, str], list[tuple[MeasuredRun, RunCurve]]] = defaultdict(list)
    for run in runs:
        for (test, label), curve in run.curves.items():
            if label == "default" or (test, "default") not in run.curves:
                found[test, label].append((run, curve))
    tests = [(key, items) for key, items in found.items() if len(items) >= FEWEST_RUNS]
    judged = [_judge(*key, items, LEVEL / len(tests)) for key, items in tests]
    pairs = [(key, items) for key, items in found.items() if _are_three_pairs(items)]
    few = [_judge(*key, items, LEVEL) for key, items in pairs]
    return judged + [item for item in few if any(part.ratio > _CLEAR for part in item.slow)]


def _are_three_pairs(items: list[tuple[MeasuredRun, RunCurve]]) -> bool:
    return len(items) == 3 == len({run.hosts for run, _ in items if len(run.hosts) == 2})


class RunPeak(msgspec.Struct, frozen=True):
    """The highest bus bandwidth of a run in a test, and the size at which it was reached."""

    title: str
    run: str
    gb_per_s: float
    bytes: int


def run_peaks(runs: Sequence[MeasuredRun]) -> list[RunPeak]:
    """Return the peak of each run and test; the best run of each test is the first."""
    found = []
    for run in runs:
        for (test, label), curve in run.curves.items():
            rates = {place: test.bandwidth(place.bytes, log) for place, log in curve.times.items()}
            best = max(rates, key=lambda place: rates[place])
            found.append(RunPeak(test.titled(label), run.name, rates[best], best.bytes))
    return sorted(found, key=lambda item: (item.title, -item.gb_per_s))


class _Band(msgspec.Struct):
    """A band of sizes: `values` of the runs, and what they reach at the `shown` size, or NaN."""

    values: Floats
    bytes: int
    usual: float
    unit: str
    shown: Floats

    def reached(self, inside: Members) -> Floats:
        """Return what the runs `inside` reached; by their values if none measured this size."""
        known = self.shown[inside & ~np.isnan(self.shown)]
        sign = 1 if self.unit == "us" else -1
        return known if len(known) else self.usual * np.exp(sign * self.values[inside])

    def relative_to(self, usual: Members) -> "_Band":
        """Return the band with the runs `usual` as what is usual."""
        values = self.values - np.median(self.values[usual])
        reached = float(np.median(self.reached(usual)))
        return msgspec.structs.replace(self, values=values, usual=reached)

    def slow(
        self, kind: str, names: Sequence[str], ratio: float, inside: Members, limit: float
    ) -> SlowPart:
        low = int((self.values[inside] > limit).sum())
        value = float(np.median(self.reached(inside)))
        runs = int(inside.sum())
        return SlowPart(
            kind, list(names), ratio, value, self.usual, self.unit, self.bytes, low, runs
        )


def _judge(
    test: MeasuredTest, label: str, items: list[tuple[MeasuredRun, RunCurve]], level: float
) -> FleetTest:
    most = max(len(curve.times) for _, curve in items)
    cut = [run.name for run, curve in items if 2 * len(curve.times) < most]
    items = [(run, curve) for run, curve in items if 2 * len(curve.times) >= most]
    runs = [run for run, _ in items]
    bands = _bands(test, [curve for _, curve in items])
    units = _units(runs)
    slow: list[SlowPart] = []
    level /= 2 * len(bands)
    critical = _critical_of_units(tuple(inside.tobytes() for inside in units.values()), level)
    # The only run of a node is judged as that node.
    once = [inside for inside in units.values() if inside.sum() == 1 and len(runs) >= FEWEST_RUNS]
    rows = ~np.any(once, axis=0) if once else np.ones(len(runs), dtype=bool)
    between = np.zeros(len(runs), dtype=bool)
    for place, plain in enumerate(bands):
        apart = node_groups(plain.values, [run.hosts for run in runs], ALLOWANCE)
        # A slow path between groups makes no node slow, so nodes are judged without it.
        between = apart.between if apart else np.zeros(len(runs), dtype=bool)
        bands[place] = band = plain.relative_to(~between) if apart else plain
        if apart:
            groups = [", ".join(names) for names in apart.groups[1:]]
            ratio = math.exp(float(np.median(band.values[between])))
            slow.append(band.slow("path", groups, ratio, between, ALLOWANCE))
        nodes, used = _slow_nodes(band, units, critical, between)
        rows &= ~used
        slow += [_with_facts(item, runs, units[tuple(item.names)]) for item in nodes]
        slow += _slow_runs(band, runs, rows, level)
    last = bands[-1]
    hosts = {host for run in runs for host in run.hosts}
    slow_names = {name for item in slow if item.kind != "node" for name in item.names}
    usual = np.array([_run_name(run, runs) not in slow_names for run in runs]) & ~between
    # The table agrees with the sentences on the number of slow runs.
    low = {
        name: x.low for x in slow if x.kind == "node" and x.bytes == last.bytes for name in x.names
    }
    limit = max(ALLOWANCE, 3 * _spread(last.values[~between]))
    nodes_shown = [
        _node_value(name, last, inside, low.get(name, int((last.values[inside] > limit).sum())))
        for names, inside in units.items()
        for name in names
    ]
    return FleetTest(
        title=test.titled(label),
        runs=len(runs),
        hosts=len(hosts),
        bytes=last.bytes,
        usual_gb_per_s=last.usual,
        spread=_spread(last.values[usual]),
        rates=(float(last.reached(usual).min()), float(last.reached(usual).max())),
        nodes=sorted(nodes_shown, key=lambda item: item.mean_gb_per_s),
        slow=_strongest(slow),
        cut=cut,
        varied=_varied([_by_size(curve) for _, curve in items]),
    )


def _varied(rows: list[dict[int, float]]) -> tuple[int, float, float] | None:
    """Return the size at which two runs are farthest from two others, if that stands out."""
    gaps = {}
    for size in set.intersection(*map(set, rows)) if len(rows) >= FEWEST_RUNS else ():
        ordered = sorted(row[size] for row in rows)
        gaps[size] = ordered[-2] - ordered[1]
    most = max(gaps, key=gaps.__getitem__, default=0)
    if not most or gaps[most] < max(math.log(_UNEVEN), _FAR * float(np.median([*gaps.values()]))):
        return None
    times = [math.exp(row[most]) for row in rows]
    return most, min(times), max(times)


def _node_value(name: str, band: _Band, inside: Members, low: int) -> NodeValue:
    rates = band.reached(inside)
    return NodeValue(
        name, len(rates), low, float(np.median(rates)), float(rates.mean()), float(rates.min())
    )


def _bands(test: MeasuredTest, curves: list[RunCurve]) -> list[_Band]:
    """Return the runs' values where latency counts, in between, and where bandwidth counts."""
    rows = [_by_size(curve) for curve in curves]
    every = sorted({size for row in rows for size in row})
    sizes = [s for s in every if 5 * sum(s in row for row in rows) >= 4 * len(rows)] or every
    table = np.array([[row.get(size, math.nan) for size in sizes] for row in rows])
    usual = np.nanmedian(table, axis=0)
    rates = [test.bandwidth(size, float(time)) for size, time in zip(sizes, usual, strict=True)]
    # The plateau at the end, which may be lower than a peak before it.
    tail = takewhile(lambda i: 0.8 <= rates[i] / rates[-1] <= 1.25, reversed(range(len(sizes))))
    large = sorted(tail)
    small = [i for i in range(len(sizes)) if usual[i] < usual[0] + math.log(1.5) and i not in large]
    middle = [i for i in range(len(sizes)) if i not in large and i not in small]
    bands = []
    for columns in (small, middle, large):
        if columns:
            part = table[:, columns] - usual[columns]
            known = ~np.isnan(part).all(axis=1)
            values = np.zeros(len(rows))
            values[known] = np.nanmedian(part[known], axis=1)
            at = columns[-1]
            unit = "us" if columns is small else "GB/s"
            here = np.exp(table[:, at])
            if unit == "GB/s":
                here = test.bandwidth(sizes[at], 0.0) / here
            bands.append(
                _Band(values - np.median(values), sizes[at], float(np.nanmedian(here)), unit, here)
            )
    return bands


def _by_size(curve: RunCurve) -> dict[int, float]:
    """Return the log time by size; the mean of both placements where both were timed."""
    both: dict[int, list[float]] = defaultdict(list)
    for place, value in curve.times.items():
        both[place.bytes].append(value)
    return {size: math.fsum(values) / len(values) for size, values in both.items()}


def _units(runs: Sequence[MeasuredRun]) -> dict[tuple[str, ...], Members]:
    if not all(run.hosts for run in runs) or len({run.hosts for run in runs}) < 3:
        return {}
    members: dict[bytes, tuple[list[str], Members]] = {}
    for host in sorted({host for run in runs for host in run.hosts}):
        inside = np.array([host in run.hosts for run in runs])
        members.setdefault(inside.tobytes(), ([], inside))[0].append(host)
    # Several nodes that ran only once, together, are judged as a run.
    return {
        tuple(names): inside
        for names, inside in members.values()
        if len(names) == 1 or inside.sum() > 1
    }


def _slow_nodes(
    band: _Band, units: dict[tuple[str, ...], Members], critical: float, left_out: Members
) -> tuple[list[SlowPart], Members]:
    """Return the slow nodes, and the runs that they took part in; `left_out` runs are theirs."""
    used = left_out.copy()
    found: list[SlowPart] = []
    left = dict(units)
    # Without the runs of the slowest node, the next one stands out more clearly.
    while len(found) <= len(units) // 3 and len(left) > 2:
        rows = ~used
        scores = {
            names: _score(band.values[None, rows], inside[rows])
            for names, inside in left.items()
            if inside[rows].any() and not inside[rows].all()
        }
        if not scores:
            break
        names = max(scores, key=lambda item: float(scores[item][0][0]))
        (score,), (difference,), (noise,) = scores[names]
        if score <= critical:
            break
        inside = left.pop(names)
        limit = float(np.median(band.values[rows & ~inside])) + max(ALLOWANCE, 2 * float(noise))
        node = band.slow("node", names, math.exp(difference), inside & rows, limit)
        if 2 * node.low > node.runs:
            found.append(node)
            used |= inside
    return found, used


def _score(values: Floats, inside: Members) -> tuple[Floats, Floats, Floats]:
    """Return for each row the statistic of the runs `inside`, their difference, and the noise."""
    mine, others = values[:, inside], values[:, ~inside]
    centres = [np.median(part, axis=1, keepdims=True) for part in (mine, others)]
    residuals = np.abs(np.hstack([mine - centres[0], others - centres[1]]))
    noise = np.maximum(1.4826 * np.median(residuals, axis=1), LEAST_SCATTER)
    difference = (centres[0] - centres[1])[:, 0]
    error = 1.2533 * noise * math.sqrt(1 / mine.shape[1] + 1 / others.shape[1])
    beyond = np.sqrt(np.maximum(difference**2 - ALLOWANCE**2, 0)) * np.sign(difference)
    return beyond / error, difference, noise


@lru_cache(maxsize=64)
def _critical_of_units(members: tuple[bytes, ...], level: float) -> float:
    """Return the statistic that the largest of all nodes exceeds with probability `level`."""
    units = [np.frombuffer(item, dtype=np.bool_) for item in members]
    if len(units) < 3:
        return math.inf
    runs = len(units[0])
    if runs > _MOST_RUNS:
        return normal_z(1 - 2 * level / len(units))
    noise = np.random.default_rng(_SEED + runs).standard_normal((_SIMULATED, runs))
    scores = [_score(noise, inside)[0] for inside in units if not inside.all()]
    return float(np.quantile(np.max(scores, axis=0), 1 - level, method="higher"))


def _slow_runs(
    band: _Band, runs: Sequence[MeasuredRun], rows: Members, level: float
) -> list[SlowPart]:
    found: list[SlowPart] = []
    where: list[int] = np.flatnonzero(rows).tolist()
    values = band.values[where]
    if len(values) < min(FEWEST_RUNS, max(3, len(rows))):
        return found
    if len(values) == 3:
        low, high, _ = np.sort(values).tolist()
        limit = high + math.log(_CLEAR) if high < low + 2 * ALLOWANCE else math.inf
    else:
        limit = _limit_of_runs(values, level / 2)
    for places, ratio in _periods(band, runs, where, level / 2):
        inside = np.isin(np.arange(len(rows)), places)
        names = [runs[i].name for i in places]
        found.append(band.slow("period", names, ratio, inside, limit))
        rows = rows & ~inside
    for i in sorted(np.flatnonzero(rows).tolist(), key=lambda i: -band.values[i]):
        if band.values[i] > limit:
            inside = np.arange(len(rows)) == i
            ratio = math.exp(band.values[i] - float(np.median(values)))
            run = band.slow("run", [_run_name(runs[i], runs)], ratio, inside, limit)
            hosts = list(runs[i].hosts) if len({run.hosts for run in runs}) > 1 else []
            found.append(_with_facts(msgspec.structs.replace(run, hosts=hosts), runs, inside))
    return found


def _periods(
    band: _Band, runs: Sequence[MeasuredRun], where: list[int], level: float
) -> list[tuple[list[int], float]]:
    """Return the runs in a row in which machines were slower, with the ratio, if times show."""
    by_hosts: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i in where:
        by_hosts[runs[i].hosts].append(i)
    found = []
    for hosts, places in by_hosts.items():
        if hosts or all(runs[i].at is not None for i in places):
            own = band.values[places]
            for item in stretches(own - np.median(own), ALLOWANCE, level / len(by_hosts)):
                # If the first runs were faster than most, the machine is slower since then.
                start, stop = item.start, item.stop
                if item.value < 0:
                    start, stop = (stop, len(places)) if start == 0 else (0, 0)
                if start < stop:
                    usual = np.median(np.delete(own, np.s_[start:stop]))
                    ratio = math.exp(float(np.median(own[start:stop]) - usual))
                    found.append((places[start:stop], ratio))
    return found


def _limit_of_runs(values: Floats, level: float) -> float:
    """Return the value that the slowest of so many runs exceeds with probability `level`."""
    error = _critical_of_runs(min(len(values), _MOST_RUNS), level) * _spread(values)
    error = max(error, LEAST_SCATTER)
    return float(np.median(values)) + math.hypot(error, ALLOWANCE)


@lru_cache(maxsize=64)
def _critical_of_runs(runs: int, level: float) -> float:
    noise = np.random.default_rng(_SEED - runs).standard_normal((_SIMULATED, runs))
    noise -= np.median(noise, axis=1, keepdims=True)
    scale = 1.4826 * np.median(np.abs(noise), axis=1)
    return float(np.quantile(noise.max(axis=1) / scale, 1 - level, method="higher"))


def _spread(values: Floats) -> float:
    return float(1.4826 * np.median(np.abs(values - np.median(values))))


def _run_name(run: MeasuredRun, runs: Sequence[MeasuredRun]) -> str:
    """Return the nodes of a run, or its file if other runs have the same nodes."""
    alone = sum(other.hosts == run.hosts for other in runs) == 1
    return " - ".join(run.hosts) if alone and 1 < len(run.hosts) < 5 else run.name


def _with_facts(item: SlowPart, runs: Sequence[MeasuredRun], inside: Members) -> SlowPart:
    """Return `item` with the facts in which its runs, those `inside`, differ from all others."""
    mine = [run for run, taken in zip(runs, inside, strict=True) if taken]
    others = [run for run, taken in zip(runs, inside, strict=True) if not taken]
    facts = [
        f"its {x.fact}: {x.second}; the others': {x.first}"
        for x in fact_differences(others, mine)
        if x.fact != "hosts" and " and " not in x.first
    ]
    noun = "pair" if all(len(run.hosts) == 2 for run in runs) else "run"
    return msgspec.structs.replace(item, facts=facts, noun=noun)


def _strongest(slow: list[SlowPart]) -> list[SlowPart]:
    """Return each node, run or period once: in the band where it is slowest."""
    best: dict[tuple[str, ...], SlowPart] = {}
    for item in slow:
        key = (item.kind, *item.names)
        if key not in best or item.ratio > best[key].ratio:
            best[key] = item
    order = {"path": 0, "node": 1, "period": 2, "run": 3}
    return sorted(best.values(), key=lambda item: (order[item.kind], -item.ratio))

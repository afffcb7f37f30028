# SPDX-License-Identifier: Apache-2.0
"""How far predictions at more nodes are from published measurements, and what intervals hold.

python benchmarks/predict_scoreboard.py [FILE.jsonl...]

Every curve of the reference set, and of reference files, is predicted from the curves of its system
and settings at fewer nodes, or from the node's usual topology alone where none has two or more
nodes. The intervals use the errors on all other systems.
"""

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.topology import Topology
from nccltune.predict import ErrorQuantiles, MeasuredCurve, ScaleOut, TermErrors, scale_out
from nccltune.predict.communicator import SETTINGS
from nccltune.reference.curves import ReferenceCurve, published_curves, read_curves
from nccltune.reference.nodes import usual_node
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.nccl_model.settings import parse_version

UNKNOWN_VERSION: Version = (2, 23, 4)
"""Taken where a source names no version: the middle of those that the others name."""
OLDEST: Version = (2, 18, 0)
LARGE = 64 << 20
SMALLER, ALONE = "smaller scales", "topology alone"
NEARLY_ALL = 0.9
LEAST_SIZES = 5
"""Fewer errors of a system are no distribution."""
CONGESTED = 1.25
"""A run is congested if its large sizes take this much longer than in the fastest run there."""


class Target(NamedTuple):
    """One scale of a system under some settings: its measured times (medians), and its sources."""

    system: str
    settings: str | None
    collective: Collective
    nodes: int
    topology: Topology
    version: Version
    times_us: dict[int, float]
    smaller: list[MeasuredCurve]
    congested: bool

    @property
    def kind(self) -> str:
        several = any(curve.nodes > 1 for curve in self.smaller)
        return SMALLER if several else ALONE


_Key = tuple[str, str, str | None, Collective, int]


class Scored(NamedTuple):
    """The errors of a target (log of measured by expected), and whether the intervals hold them.

    `transfers` are the shares of the transfer in the times of NCCL's model.
    """

    target: Target
    sizes: list[int]
    errors: list[float]
    deviations: list[float]
    transfers: list[float]
    inside: list[bool]


def expected(target: Target, errors: ErrorQuantiles | TermErrors | None) -> ScaleOut:
    return scale_out(
        target.topology,
        target.smaller,
        nodes=target.nodes,
        collective=target.collective,
        version=target.version,
        settings=settings_of(target.settings),
        sizes=sorted(target.times_us),
        errors=errors,
    )


def settings_of(text: str | None) -> dict[str, str]:
    """Return the settings in words such as `NCCL_NVLS_ENABLE=0` that the model follows."""
    pairs = (word.partition("=") for word in (text or "").split())
    return {name: value for name, _, value in pairs if name in SETTINGS}


def scored(target: Target, errors: ErrorQuantiles | TermErrors | None) -> Scored:
    scaled = expected(target, errors)
    found = scaled.sizes
    modelled = [at.terms[at.choice] for at in scaled.prediction.sizes]
    times = [target.times_us[one.size] for one in found]
    pairs = list(zip(found, times, strict=True))
    return Scored(
        target,
        [one.size for one in found],
        [math.log(time / one.time_us) for one, time in pairs],
        [one.deviation for one in found],
        [one.transfer_us / one.total_us for one in modelled],
        [one.low_us <= time <= one.high_us for one, time in pairs],
    )


def quantiles(results: Iterable[Scored]) -> ErrorQuantiles | None:
    """Return quantiles of errors in standard deviations of the fit.

    Scales beyond twice the measured nodes and congested ones are left out: the congestion term is
    for those.
    """
    by_system: dict[str, list[float]] = defaultdict(list)
    for one in results:
        most = max(curve.nodes for curve in one.target.smaller)
        if not one.target.congested and one.target.nodes <= 2 * most:
            pairs = zip(one.errors, one.deviations, strict=True)
            by_system[one.target.system] += [error / deviation for error, deviation in pairs]
    found = pooled(by_system)
    return found and ErrorQuantiles(min(found[0], 0.0), max(found[1], 0.0))


def term_errors(results: Iterable[Scored]) -> TermErrors | None:
    """Return quantiles of measured by modelled time where a call is nearly all of one term."""
    latency: dict[str, list[float]] = defaultdict(list)
    transfer: dict[str, list[float]] = defaultdict(list)
    for one in results:
        for error, share in zip(one.errors, one.transfers, strict=True):
            if share < 1 - NEARLY_ALL:
                latency[one.target.system].append(error)
            elif share > NEARLY_ALL:
                transfer[one.target.system].append(error)
    first, second = pooled(latency), pooled(transfer)
    if first is None or second is None:
        return None
    return TermErrors(*((math.exp(low), math.exp(high)) for low, high in (first, second)))


def pooled(by_system: Mapping[str, Sequence[float]]) -> tuple[float, float] | None:
    """Return the quantiles 10 % and 90 % of errors; every system has the same weight."""
    steps = np.linspace(0.05, 0.95, 19)
    evenly = [np.quantile(x, steps) for x in by_system.values() if len(x) >= LEAST_SIZES]
    if not evenly:
        return None
    low, high = np.quantile(np.concatenate(evenly), [0.1, 0.9])
    return float(low), float(high)


def targets(curves: Sequence[ReferenceCurve]) -> tuple[list[Target], list[str]]:
    """Return what can be predicted, and why the rest cannot."""
    groups: dict[_Key, list[ReferenceCurve]] = defaultdict(list)
    left_out: dict[str, None] = {}
    for curve in curves:
        if why := unfit(curve):
            left_out[f"{curve.system}, {curve.nodes} nodes: {why}"] = None
        else:
            each = curve.gpus // curve.nodes
            groups[curve.system, curve.gpu, curve.settings, curve.collective, each].append(curve)
    fastest: dict[tuple[str, str, int, int, int], float] = {}
    for curve in (curve for group in groups.values() for curve in group):
        for size, time_us in curve.points:
            at = curve.system, curve.gpu, curve.gpus, curve.nodes, size
            fastest[at] = min(time_us, fastest.get(at, time_us))
    found = []
    for (system, gpu, settings, collective, each), group in groups.items():
        known = [curve.nccl for curve in group if curve.nccl]
        version = max(parse_version(known[0]), (2, 19, 0)) if known else UNKNOWN_VERSION
        rates = [curve.nic_gbps_per_gpu for curve in group if curve.nic_gbps_per_gpu]
        rate = rates[0] if rates else 400
        try:
            topology = usual_node(gpu, gpus=each, nics=each, gbit_per_s=rate)
        except InputError as error:
            left_out[f"{system}: {error}"] = None
            continue
        for nodes in sorted({curve.nodes for curve in group}):
            times: dict[int, list[float]] = defaultdict(list)
            for curve in group:
                for size, time_us in curve.points if curve.nodes == nodes else ():
                    times[size].append(time_us)
            medians = {size: statistics.median(values) for size, values in times.items()}
            slower = [
                time_us / fastest[system, gpu, nodes * each, nodes, size]
                for size, time_us in medians.items()
                if size >= LARGE and nodes > 1
            ]
            found.append(
                Target(
                    system,
                    settings,
                    collective,
                    nodes,
                    topology,
                    version,
                    medians,
                    [
                        MeasuredCurve(curve.nodes, dict(curve.points))
                        for curve in group
                        if curve.nodes < nodes
                    ],
                    bool(slower) and statistics.median(slower) > CONGESTED,
                )
            )
    return found, list(left_out)


def unfit(curve: ReferenceCurve) -> str:
    """Return why a curve cannot be predicted; empty if it can."""
    if curve.fault:
        return f"its source reports a fault ({curve.fault})"
    if curve.collective not in TUNED or not curve.points:
        return "no sizes, or no collective with a model"
    if curve.gpu.startswith("GB"):
        return "NVLink between nodes is not modelled"
    if curve.nodes > 1 and curve.nic_gbps_per_gpu is None:
        return "the rate of its NICs is not known"
    if curve.gpus % curve.nodes:
        return "its nodes differ"
    if curve.nccl and parse_version(curve.nccl) < OLDEST:
        return f"NCCL {curve.nccl} is older than the oldest known model"
    return "its settings limit the channels" if "NCHANNELS" in (curve.settings or "") else ""


def geometric(results: Sequence[Scored], least: int = 0) -> str:
    """Return the geometric mean of errors in percent: of each target, then of all targets."""
    means = [
        statistics.mean(abs(error) for error in at_least)
        for one in results
        if (at_least := [e for e, s in zip(one.errors, one.sizes, strict=True) if s >= least])
    ]
    return f"{100 * (math.exp(statistics.mean(means)) - 1):.1f} %" if means else ""


def coverage(results: Sequence[Scored]) -> str:
    inside = [value for one in results for value in one.inside]
    return f"{100 * statistics.mean(inside):.0f} %" if inside else ""


def row(name: str, results: Sequence[Scored], extra: str = "") -> str:
    count = sum(len(one.errors) for one in results)
    cells = (geometric(results), geometric(results, LARGE), coverage(results))
    return f"| {name} | {extra}{len(results)} | {count} | {' | '.join(cells)} |"


def main() -> None:
    """Print the page."""
    curves = [*published_curves()]
    for name in sys.argv[1:]:
        curves += read_curves(Path(name))
    found, left_out = targets(curves)
    first = [scored(target, None) for target in found]
    results = []
    for one in first:
        others = [
            other
            for other in first
            if other.target.system != one.target.system and other.target.kind == one.target.kind
        ]
        results.append(scored(one.target, errors_of(one.target.kind, others)))
    print_page(results, left_out)
    for kind in (SMALLER, ALONE):
        usual = errors_of(kind, [one for one in first if one.target.kind == kind])
        words = ", ".join(f"{name} {value}" for name, value in rounded(usual).items())
        print(f"\nErrors on all systems, {kind}: {words}")


def rounded(errors: ErrorQuantiles | TermErrors | None) -> dict[str, str]:
    """Return quantiles as text, by name."""
    if isinstance(errors, TermErrors):
        pairs = errors._asdict().items()
        return {name: f"{low:.3g} to {high:.3g}" for name, (low, high) in pairs}
    return {} if errors is None else {"deviations": f"{errors.low:.2f} to {errors.high:.2f}"}


def errors_of(kind: str, results: Sequence[Scored]) -> ErrorQuantiles | TermErrors | None:
    return quantiles(results) if kind == SMALLER else term_errors(results)


def print_page(results: Sequence[Scored], left_out: Sequence[str]) -> None:
    head = "curves | sizes | error | from 64 MiB on | in the 80 % interval |"
    print(f"| predicted from | {head}\n| --- | --: | --: | --: | --: | --: |")
    for kind in (SMALLER, ALONE):
        for congested in (False, True):
            some = [
                one
                for one in results
                if (one.target.kind, one.target.congested) == (kind, congested)
            ]
            if some:
                print(row(f"{kind}, {'congested runs' if congested else 'not congested'}", some))
    print(f"\n| system | from | nodes | {head}\n| --- | --- | --: | --: | --: | --: | --: | --: |")
    groups: dict[tuple[str, str, int, bool], list[Scored]] = defaultdict(list)
    for one in results:
        target = one.target
        groups[target.system, target.kind, target.nodes, target.congested].append(one)
    for (system, kind, nodes, congested), some in sorted(groups.items()):
        name = f"{system}{' (congested runs)' if congested else ''}"
        below = sorted({curve.nodes for one in some for curve in one.target.smaller})
        source = f"{', '.join(map(str, below))} nodes" if kind == SMALLER else kind
        print(row(f"{name} | {source} | {nodes}", some))
    print("\nLeft out:\n")
    for words in left_out:
        print(f"- {words}")


if __name__ == "__main__":
    main()

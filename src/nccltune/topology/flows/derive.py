# SPDX-License-Identifier: Apache-2.0
"""Derive calibration figures from measurements, so that the model predicts the measurements.

A calibration figure is a number of the model, such as the efficiency of one kind of flow on a link.
A ceiling is a maximum, so the best of several measurements counts: a link that carried a load once
can carry it again. Each measurement changes at most one figure. A ring changes the figure of the
kind of flow with the largest load on the bottleneck. A tree changes its own figure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec

from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import TUNED, Collective
from nccltune.model.sample import Purpose, Sample
from nccltune.model.topology import Topology
from nccltune.topology.flows.calibration import Calibration, Figure
from nccltune.topology.flows.expect import Expected, expect
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.nccl_model.flow_kind import FlowKind

LEAST_BYTES = 64 << 20
"""Below this size latency also limits a collective, so its bandwidth is no evidence about links."""
_CREDIBLE = (0.5, 1.2)
"""The credible range of an efficiency. A value outside of it means that another limit applied."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The best bus bandwidth of one collective, algorithm and scale, with protocol Simple.

    `samples` is the number of timings at `bytes`.
    """

    collective: Collective
    algorithm: Algorithm
    nodes: int
    ranks: int
    bytes: int
    busbw_gb_per_s: float
    samples: int

    @property
    def words(self) -> str:
        """Return a description such as `all-reduce ring/simple at 1,024 MiB on 1 node`."""
        nodes = f"{self.nodes} node" + ("s" if self.nodes > 1 else "")
        size = f"{self.bytes >> 20:,} MiB"
        return f"{self.collective.prose} {self.algorithm.value}/simple at {size} on {nodes}"


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration with what it was derived from, and the observations left, with reasons."""

    calibration: Calibration
    used: dict[str, Observation]
    left: list[tuple[Observation, str]]


def observations(samples: Iterable[Sample]) -> list[Observation]:
    """Return the best bus bandwidth at large sizes for each collective, algorithm and scale.

    Only protocol Simple, `LEAST_BYTES` or more and two ranks count, without wrong results and those
    of `nccltune verify`.
    """
    times: dict[tuple[Collective, Algorithm, int, int], dict[int, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for sample in samples:
        ran = sample.ran or (sample.choice if isinstance(sample.choice, Choice) else None)
        if (
            ran is None
            or ran.protocol is not Protocol.SIMPLE
            or sample.collective not in TUNED
            or sample.bytes < LEAST_BYTES
            or sample.nodes is None
            or sample.ranks is None
            or sample.ranks < 2
            or sample.wrong
            or sample.source.purpose is Purpose.VERIFY
        ):
            continue
        key = (sample.collective, ran.algorithm, sample.nodes, sample.ranks)
        times[key][sample.bytes].append(sample.time_us)
    found = []
    for (collective, algorithm, nodes, ranks), by_size in times.items():
        best = max(
            by_size,
            key=lambda size: collective.busbw_gb_per_s(size, median(by_size[size]), ranks),
        )
        found.append(
            Observation(
                collective=collective,
                algorithm=algorithm,
                nodes=nodes,
                ranks=ranks,
                bytes=best,
                busbw_gb_per_s=collective.busbw_gb_per_s(best, median(by_size[best]), ranks),
                samples=len(by_size[best]),
            )
        )
    return found


def derive(
    topology: Topology,
    found: Sequence[Observation],
    base: Calibration,
    *,
    name: str,
    settings: Mapping[str, str] | None = None,
    nccl_version: Version | None = None,
) -> Derived:
    """Return `base`, renamed to `name`, with the figures that follow from the observations.

    Rings come first, because a ring depends on links alone; a tree's own efficiency explains the
    rest. Fewer nodes come first, with fewer kinds of flows. Raises what `expect` raises.
    """
    result = base
    used: dict[str, Observation] = {}
    left: list[tuple[Observation, str]] = []
    own = {key: value for key, value in (settings or {}).items() if key != "NCCL_ALGO"}

    def predicted(one: Observation) -> Expected | None:
        if one.ranks % one.nodes:
            return None
        answer = expect(
            topology,
            collective=one.collective,
            nodes=one.nodes,
            ranks_per_node=one.ranks // one.nodes,
            settings={**own, "NCCL_ALGO": one.algorithm.value},
            calibration=result,
            nccl_version=nccl_version,
        )
        return answer if answer.algorithm is one.algorithm else None

    for one in sorted(found, key=_order):
        answer = predicted(one)
        if answer is None:
            left.append((one, "the model does not cover it"))
            continue
        figure = answer.calibrated_by
        if one.algorithm is Algorithm.TREE:
            figure = "tree_nvlink" if figure == "nvlink" else "tree"
        if figure in used and one.busbw_gb_per_s <= answer.busbw_gb_per_s:
            left.append((one, f"below what {figure} already allows"))
            continue
        value = _value(figure, answer, one.busbw_gb_per_s, result)
        if value is None or not _CREDIBLE[0] <= value <= _CREDIBLE[1]:
            reason = (
                "no value explains it"
                if value is None
                else f"{value:.2f} is not a valid efficiency"
            )
            left.append((one, f"{reason}: something else is the limit"))
            continue
        source = f"measured: {one.words} reached {one.busbw_gb_per_s:.4g} GB/s ({name})"
        own_figure = Figure(round(value, 4), source, one.samples)
        result = result.with_figures(name, {figure: own_figure})
        used[figure] = one
    return Derived(calibration=result, used=used, left=left)


def _order(one: Observation) -> tuple[bool, int, int, float]:
    return (one.algorithm is not Algorithm.RING, one.nodes, one.ranks, -one.busbw_gb_per_s)


def _value(figure: str, answer: Expected, measured: float, base: Calibration) -> float | None:
    """Return the value of a figure with which the model predicts `measured`; None if none does."""
    if figure in ("tree", "tree_nvlink"):
        return base[figure] * measured / answer.busbw_gb_per_s
    ratio = measured / answer.busbw_gb_per_s
    dominant = max(answer.load_by_kind, key=lambda kind: answer.load_by_kind[kind])
    others = sum(load for kind, load in answer.load_by_kind.items() if kind is not dominant)
    room = answer.capacity_gb_per_s - others * ratio
    if room <= 0 or dominant is FlowKind.READ_REQUEST:
        return None
    return base[figure] * answer.load_by_kind[dominant] * ratio / room

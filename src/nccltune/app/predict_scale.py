# SPDX-License-Identifier: Apache-2.0
"""The measurements from which times at more nodes are predicted, and the machine they are of."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from nccltune.app.compare import read_runs
from nccltune.app.compare_reference import nics_of
from nccltune.compare.runs import MeasuredRun, MeasuredTest, RunCurve
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.model.choice import DEFAULT, PARTIAL_CHOICES, Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.numbers import counted
from nccltune.model.topology import Topology
from nccltune.predict.scaling import MeasuredCurve
from nccltune.reference.nodes import usual_node


class MeasuredRuns(msgspec.Struct, frozen=True):
    """The runs of a log, a folder or a study. `facts` are those of the first run."""

    name: str
    runs: Sequence[MeasuredRun]
    facts: PlatformFacts
    gpus_per_node: int | None


class ScaledCurves(msgspec.Struct, frozen=True):
    """The curves of a collective at fewer nodes, and why others were left out."""

    curves: list[MeasuredCurve]
    notes: list[str]


def read_measured(path: Path) -> MeasuredRuns:
    """Read the runs at `path`. Raises InputError if there is none."""
    found = read_runs([path], ReadOptions(study="predict", comparing=True))
    runs = [run for run in found.runs if run.curves]
    if not runs:
        raise InputError(
            f"no measurement with a known scale ({'; '.join(found.unread[:3]) or 'no table'})",
            hint="--nodes states what is predicted; a run shows its own nodes and ranks",
        )
    scales = [test.scale for run in runs for test, _ in run.curves]
    each = {ranks // nodes for nodes, ranks in scales if nodes and ranks and not ranks % nodes}
    return MeasuredRuns(path.name, runs, runs[0].facts, max(each, default=None))


def assumed_node(measured: MeasuredRuns, gpu: str | None, nics: str, gpus: int | None) -> Topology:
    """Return the usual node of the measured GPUs with NICs such as `8x400`. Raises InputError."""
    name, each = gpu or measured.facts.gpu, gpus or measured.gpus_per_node
    if name is None or each is None:
        what = "GPU model" if name is None else "number of GPUs of a node"
        raise InputError(
            f"does not show the {what}",
            where=measured.name,
            hint="--gpu H100" if name is None else "--gpus 8",
        )
    parsed = nics_of(nics)
    return usual_node(name, gpus=each, nics=parsed.number, gbit_per_s=parsed.gbit_per_s)


def curves_below(
    measured: MeasuredRuns,
    collective: Collective,
    *,
    nodes: int,
    gpus_per_node: int,
    settings: Mapping[str, str],
) -> ScaledCurves:
    """Return the curves of `collective` at fewer than `nodes` nodes; none without two or more."""
    curves: list[MeasuredCurve] = []
    reasons: dict[str, None] = {}
    for run in measured.runs:
        for (test, label), curve in run.curves.items():
            if test.collective is not collective:
                continue
            reason = _unfit(run, test, label, gpus_per_node, settings)
            count = test.scale[0] or 0
            if not reason and count > 1 and count >= nodes:
                reason = f"measured at {count} nodes"
            if reason:
                reasons[reason] = None
            else:
                curves += _curves(curve, count, label)
    if curves and all(curve.nodes == 1 for curve in curves):
        curves, reasons["measured on one node: nothing of the network"] = [], None
    notes = [f"not used: {reason}" for reason in reasons]
    if not curves and not notes:
        notes.append(f"{measured.name} has no runs of {collective.prose}")
    return ScaledCurves(curves, notes)


def _unfit(
    run: MeasuredRun,
    test: MeasuredTest,
    label: str,
    gpus_per_node: int,
    settings: Mapping[str, str],
) -> str:
    nodes, ranks = test.scale
    if run.facts.emulated:
        return "the nodes are parts of one machine"
    if nodes is None or ranks is None:
        return "its scale is not shown"
    if ranks != nodes * gpus_per_node:
        return f"measured with {ranks} ranks on {counted(nodes, 'node')}, not {gpus_per_node} each"
    if test.graph or test.registered:
        return "measured with CUDA graphs or registered buffers"
    name, _, value = label.partition("=")
    if label in PARTIAL_CHOICES and settings.get(name, "").lower() != value.lower():
        return f"measured with {label}"
    return "measured with a tuner's rules" if label == "tuned" or run.facts.tuner else ""


def _curves(curve: RunCurve, nodes: int, label: str) -> Iterator[MeasuredCurve]:
    forced = None if label == DEFAULT or label in PARTIAL_CHOICES else parse_choice(label)
    placements = {place.in_place for place in curve.times}
    yield MeasuredCurve(
        nodes=nodes,
        times_us={
            place.bytes: curve.time_us(place)
            for place in curve.times
            if place.in_place is min(placements)
        },
        choice=forced if isinstance(forced, Choice) else None,
        ran={
            place.bytes: choice
            for place, ran in curve.ran.items()
            if isinstance(choice := parse_choice(ran), Choice)
        },
    )

# SPDX-License-Identifier: Apache-2.0
"""Predict: what NCCL chooses on a platform by its own cost model, and what another version does."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from nccltune.app.compare import read_runs
from nccltune.app.compare_reference import nics_of
from nccltune.app.topo_what_if import conditions_of_study, setting_pair
from nccltune.compare.runs import MeasuredRun, MeasuredTest, RunCurve
from nccltune.doctor.evidence.plugins import library_version
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.model.choice import DEFAULT, PARTIAL_CHOICES, Choice, parse_choice
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.numbers import counted
from nccltune.model.topology import Topology
from nccltune.predict import NEWEST, Prediction, ScaleOut, SizeChange, changes, predict, scale_out
from nccltune.predict.communicator import SETTINGS
from nccltune.predict.scaling import MeasuredCurve
from nccltune.reference.nodes import usual_node
from nccltune.study.files import Study
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.settings import check_name
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.classify import with_named_gpus
from nccltune.topology.nccl_model.settings import known_version, parse_version, version_text


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
            if not reason and count >= nodes:
                reason = f"measured at {counted(count, 'node')}; only runs at fewer nodes than the "
                reason += f"{nodes} of the prediction are"
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


class PredictRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A platform and what to predict for it.

    `path` is a topology file or a study, whose settings and version count. `nccl` is a libnccl.so.2
    or a version. `sizes` go by powers of two. With `topology` or `nics` (`8x400`, on the usual node
    of the GPUs), `path` is a log or folder with measurements, whose most nodes and whose
    collectives are predicted where none are stated. Else that is all-reduce on one node.
    """

    path: Path
    sizes: tuple[int, int]
    collectives: Sequence[Collective] = ()
    nodes: int | None = None
    gpus: int | None = None
    settings: Sequence[str] = ()
    nccl_version: str | None = None
    nccl: Path | None = None
    against: str | None = None
    topology: Path | None = None
    gpu: str | None = None
    nics: str | None = None


class VersionDifference(msgspec.Struct, frozen=True):
    """The prediction for another version of NCCL, and its difference to the first at each size."""

    version: str
    prediction: Prediction
    sizes: list[SizeChange]


class Predicted(msgspec.Struct, frozen=True):
    """The prediction of a collective under `settings` (NAME=VALUE).

    `expected` rests on times measured at fewer nodes. `unused` states what measurements do not
    show, and why some were left out.
    """

    source: str
    settings: tuple[str, ...]
    version: str
    prediction: Prediction
    against: VersionDifference | None
    expected: ScaleOut | None = None
    unused: Sequence[str] = ()


def predict_choices(request: PredictRequest) -> list[Predicted]:
    """Return a prediction for each collective. Raises InputError for what is not modelled."""
    topology, recorded, version, runs = _platform(request)
    request = _with_defaults(request, runs)
    asked = dict(setting_pair(text, None) for text in request.settings)
    for name in asked:
        check_name(name, SETTINGS)
    settings = {name: value for name, value in recorded.items() if name in SETTINGS} | asked
    if request.nccl is not None and request.nccl_version is not None:
        raise InputError("and ‹nccl_version› both name a version", where="‹nccl›")
    stated, against = request.nccl_version, request.against
    named = parse_version(stated, "‹nccl_version›") if stated else stated_version(request.nccl)
    known = named or version or NEWEST
    other = parse_version(against, "‹against›") if against else None
    first, last = request.sizes
    sizes = [first << power for power in range(64) if first << power <= last]

    def of(collective: Collective, version: Version) -> Prediction:
        return predict(
            topology,
            collective=collective,
            nodes=request.nodes or 1,
            version=version,
            ranks_per_node=request.gpus,
            settings=settings,
            sizes=sizes,
        )

    found = []
    for collective in request.collectives:
        now = of(collective, known)
        difference = None
        if other is not None:
            after = of(collective, other)
            difference = VersionDifference(version_text(other), after, changes(now, after))
        words = tuple(f"{name}={value}" for name, value in settings.items())
        one = Predicted(topology.source, words, version_text(known), now, difference)
        found.append(_with_expected(one, request, topology, settings, known, runs))
    return found


def _with_defaults(request: PredictRequest, runs: MeasuredRuns | None) -> PredictRequest:
    """Return the request with all fields. Raises InputError for runs without a choice of NCCL."""
    tests = [test for run in runs.runs for test, _ in run.curves] if runs else []
    tuned = [*dict.fromkeys(test.collective for test in tests if test.collective in TUNED)]
    if tests and not tuned and not request.collectives:
        message = f"has {tests[0].collective.prose} alone, for which NCCL's model has no choice"
        raise InputError(message, where=request.path.name, hint="‹collectives› states another one")
    return msgspec.structs.replace(
        request,
        nodes=request.nodes or max((test.scale[0] or 1 for test in tests), default=1),
        collectives=request.collectives or tuned or [Collective.ALLREDUCE],
    )


def _platform(
    request: PredictRequest,
) -> tuple[Topology, Mapping[str, str], Version | None, MeasuredRuns | None]:
    """Return topology, recorded settings and version, and measurements; None without."""
    if request.topology is not None and request.nics is not None:
        raise InputError("and --topology both name the NICs", where="--nics")
    if request.topology is None and request.nics is None:
        gpu, settings, version = conditions_of_study(request.path)
        try:
            topology = with_named_gpus(load_topology(request.path), gpu)
        except InputError as error:
            hint = f"{error.hint or ''}; runs need a machine: --topology topo.xml, or --nics 8x400"
            raise InputError(error.message, where=error.where, hint=hint.lstrip("; ")) from error
        has_runs = (request.nodes or 1) > 1 and Study(request.path).samples_path.is_file()
        return topology, settings, version, read_measured(request.path) if has_runs else None
    runs = read_measured(request.path)
    version = known_version(runs.facts.nccl)
    if request.topology is not None:
        topology = with_named_gpus(load_topology(request.topology), runs.facts.gpu)
    else:
        topology = assumed_node(runs, request.gpu, request.nics or "", request.gpus)
    return topology, runs.facts.settings, version, runs


def _with_expected(
    found: Predicted,
    request: PredictRequest,
    topology: Topology,
    settings: Mapping[str, str],
    version: Version,
    runs: MeasuredRuns | None,
) -> Predicted:
    if runs is None:
        return found
    comm, collective = found.prediction.communicator, found.prediction.collective
    below = curves_below(
        runs, collective, nodes=comm.nodes, gpus_per_node=comm.ppn, settings=settings
    )
    expected = None
    if below.curves:
        expected = scale_out(
            topology,
            below.curves,
            nodes=comm.nodes,
            collective=collective,
            version=version,
            ranks_per_node=request.gpus,
            settings=settings,
            sizes=[one.size for one in found.prediction.sizes],
        )
    notes = [*below.notes]
    if runs.facts.nccl is None and request.nccl_version is None and request.nccl is None:
        notes.append(f"the runs do not show NCCL's version: {version_text(version)} is assumed")
    return msgspec.structs.replace(found, expected=expected, unused=notes)


def stated_version(path: Path | None, where: str = "‹nccl›") -> Version | None:
    """Return the version of a library, or the one that `path` spells. Raises InputError."""
    if path is None:
        return None
    if not path.is_file():
        if path.name != str(path) or ".so" in path.name:
            hint = "name a libnccl.so.2, or a version such as 2.28.9"
            raise InputError(f"no such file: {path}", where=where, hint=hint)
        return parse_version(str(path), where)
    text = library_version(path, path.resolve())
    if not text:
        raise InputError("names no NCCL version, so it is no libnccl.so.2", where=str(path))
    return parse_version(text)


_SIMAI = (Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCESCATTER)


def as_csv(found: Sequence[Predicted]) -> str:
    """Return every choice's times as CSV; `default` is 1 for NCCL's own.

    Bytes are counted as NCCL's tuner counts them. Choices that only a tuner takes are left out.
    """
    lines = ["collective,algorithm,protocol,nodes,ranks,bytes,time_us,default"]
    for one in found:
        comm = one.prediction.communicator
        for at in one.prediction.sizes:
            for choice, time_us in at.times_us.items():
                if one.prediction.modelled[choice].by_hand:
                    continue
                lines.append(
                    f"{one.prediction.collective},{choice.algorithm},{choice.protocol},"
                    f"{comm.nodes},{comm.ranks},{at.size},{time_us:.6g},{int(choice == at.choice)}"
                )
    return "\n".join(lines) + "\n"


def as_simai(request: PredictRequest) -> str:
    """Return bus bandwidths in GB/s at the last size, in the form of SimAI's `busbw.yaml`.

    Its group TP is one node, DP and EP are all nodes. NCCL's model has no figure for all-to-all and
    for send/recv (PP): they are null.
    """
    everywhere = _rates(request, request.nodes)
    try:
        one_node = _rates(request, 1)
    except InputError:
        # A node with one GPU has no peer in it.
        one_node = dict.fromkeys(_SIMAI, "null")
    lines = ["nccltune"]
    for group, rates in (("TP", one_node), ("DP", everywhere), ("EP", everywhere)):
        lines += [f"{group}:", *(f"  {name},: {rate}" for name, rate in rates.items())]
        lines.append("  alltoall,: null")
    return "\n".join([*lines, "PP:", "  busbw: null"]) + "\n"


def _rates(request: PredictRequest, nodes: int | None) -> dict[Collective, str]:
    size = request.sizes[1]
    asked = msgspec.structs.replace(
        request, collectives=_SIMAI, sizes=(size, size), nodes=nodes, against=None
    )
    return {
        one.prediction.collective: f"{one.prediction.sizes[0].busbw_gb_per_s:.4g}"
        for one in predict_choices(asked)
    }

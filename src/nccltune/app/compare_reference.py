# SPDX-License-Identifier: Apache-2.0
"""Place one measurement among published systems, and beside the limits of its NICs and links."""

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nccltune.analyze import analyze
from nccltune.analyze.expected import BEYOND
from nccltune.analyze.result import Condition
from nccltune.analyze.stats import median
from nccltune.analyze.timings import SortedSamples, Timings
from nccltune.app.nccl_model import ModelFigures, beside
from nccltune.compare.runs import MeasuredRun, MeasuredTest
from nccltune.formats.reading.platform_facts import SHARED_GPUS, PlatformFacts
from nccltune.formats.topology.beside_results import topology_beside_results
from nccltune.model.choice import DEFAULT
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.finding import FindingKind
from nccltune.model.numbers import percent_text, significant
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.model.sizes import format_bytes
from nccltune.model.topology import Topology
from nccltune.reference.alike import SystemShown, gpu_class, rule_text
from nccltune.reference.causes import LARGE_BYTES, causes, limiting_settings, network_causes
from nccltune.reference.curves import (
    ReferenceCurve,
    add_curves,
    published_curves,
    read_curves,
)
from nccltune.reference.nodes import is_whole_board, usual_node
from nccltune.reference.placement import Placement, Verdict, exceeds, latency_size, place
from nccltune.study.files import Study
from nccltune.topology.files.load import load, load_topology, read_file
from nccltune.topology.flows.measured import expectations
from nccltune.topology.hardware.change import nets_of

_GPU = re.compile(r"(?:G?[BH]|[AV])\d{2,3}(?: [A-Z]+)?|MI\d{3}X?")
_NICS = re.compile(r"(\d+)\s*[xX*]\s*(\d+(?:\.\d+)?)\s*(?:[gG]\w*)?")
_RING_SHARE = 0.96
"""Share of the NIC rate that a ring reaches: 24 GB/s of a NIC of 200 Gbit/s, as NCCL's maintainers
state in nccl-tests#119."""
_FAR_BELOW, _NEAR = 0.6, 0.8
"""Shares of a limit: below the first a large size is low, from the second on any size is normal."""
_ONE_LANE = 0.985
"""The GB/s of one lane of PCIe 3.0, far below each link that joins the GPUs of a node."""
_UNKNOWN_RATE = 10_000
"""The Mbit/s that NCCL writes for a NIC of unknown speed."""
_FLAT, _FLAT_SIZES, _FLAT_BYTES = 1.05, 3, 64 << 20
"""Which ratio of the bandwidths of how many of the largest sizes is no rise, from which size on."""
_FEW_NODES = 16
_OF_DEVICES = ("NCCL_IB_HCA", "NCCL_TOPO_FILE")
"""Settings that name devices, which the usual node does not have."""
_LARGE = 1 << 30


class ReferenceRequest(NamedTuple):
    """Facts that a run does not show, and files to place it beside.

    `nics` are such as `8x400` (Gbit/s), else those of `topology`. `references` are files or folders
    with curves, `output` one to which the curves are appended.
    """

    gpu: str | None = None
    nics: str | None = None
    topology: Path | None = None
    references: Sequence[Path] = ()
    output: Path | None = None


class PhysicalLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A bandwidth in GB/s that hardware allows, and the share of it that was reached.

    `name` is `NICs` or `ceiling`. `decides` states that the share is a verdict where no system is
    alike.
    """

    name: str
    gb_per_s: float
    share: float
    decides: bool
    sentence: str


class PlacedTest(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of the input, among the reference systems.

    `rule` is empty if no system can be like the run. `missing` names facts that the user must
    state. `placement` is None without the number of ranks. `doubts` are remarks on the file and its
    curve. `model` decides nothing. `assumed_node` names the node of ceiling and model if the run
    has no topology; then the ceiling decides nothing either.
    """

    run: str
    title: str
    collective: Collective
    system: SystemShown
    nics: str | None
    nccl: str | None
    in_place: bool
    missing: list[str]
    rule: str
    placement: Placement | None
    limits: list[PhysicalLimit]
    assumed_node: str | None
    model: ModelFigures | None
    wrong: int
    causes: list[str]
    doubts: list[str]

    @property
    def asked(self) -> list[str]:
        """Return the missing facts that could lead to a verdict.

        If no system is alike at any rate of the NICs, their rate only tells of large sizes of the
        collectives that have a limit by NICs.
        """
        at = None if self.placement is None else self.placement.bandwidth
        if at is None or at.verdict is not Verdict.NOTHING_ALIKE:
            return self.missing
        if at.bytes >= LARGE_BYTES and self.collective.tuned:
            return self.missing
        return [name for name in self.missing if name != "nics"]

    @property
    def decisive(self) -> PhysicalLimit | None:
        """Return the limit that decides if no system is alike; None if systems decide."""
        verdict = None if self.placement is None else self.placement.bandwidth.verdict
        if verdict not in (Verdict.UNDECIDED, Verdict.NOTHING_ALIKE):
            return None
        return next((limit for limit in self.limits if limit.decides), None)

    @property
    def is_low(self) -> bool:
        """Return whether a figure is clearly worse than what it is compared with."""
        if self.placement is None:
            return False
        placed = [self.placement.bandwidth, self.placement.latency]
        low = any(item is not None and item.verdict is Verdict.LOW for item in placed)
        return low or (self.decisive is not None and self.decisive.share < _FAR_BELOW)

    @property
    def is_judged(self) -> bool:
        """Return whether there was anything to compare with."""
        undecided = (Verdict.UNDECIDED, Verdict.NOTHING_ALIKE)
        return self.placement is not None and (
            self.placement.bandwidth.verdict not in undecided or self.decisive is not None
        )


class ReferenceCompared(msgspec.Struct, frozen=True, kw_only=True):
    """The tests of one input among the reference systems. `warnings` are on what was left out."""

    name: str
    tests: list[PlacedTest]
    added: int | None
    warnings: list[str]

    @property
    def exit_code(self) -> int:
        """Return 1 if a test is low or has wrong results, 2 if none could be judged."""
        if any(test.is_low or test.wrong for test in self.tests):
            return 1
        return 0 if any(test.is_judged for test in self.tests) else 2


class _MergedCurve(NamedTuple):
    test: MeasuredTest
    label: str
    run: MeasuredRun
    in_place: bool
    times_us: dict[int, float]
    beside_us: dict[int, float]
    """The other placement."""


class NodeNics(NamedTuple):
    """The number of NICs of a node and the rate of each."""

    number: int
    gbit_per_s: float


def compare_with_reference(
    path: Path, runs: Sequence[MeasuredRun], request: ReferenceRequest, warnings: list[str]
) -> ReferenceCompared:
    """Return each collective of `runs`, read from `path`, among reference systems."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "nccltune" / "reference"
    own = own.expanduser()
    folders = [*request.references, *([own] if own.is_dir() else [])]
    curves = [*published_curves(), *(curve for item in folders for curve in read_curves(item))]
    file = request.topology or (Study(path).topology_path if path.is_dir() else None)
    topology = _posted(path) if file is None else load_topology(file)
    nics = _nics(request.nics, topology)
    merged = sorted(_merged(runs), key=lambda item: [number or 0 for number in item.test.scale])
    tests = [_placed_test(item, request.gpu, topology, nics, curves) for item in merged]
    added = None
    if request.output is not None:
        pairs = zip(merged, tests, strict=True)
        added = add_curves(
            request.output, [_own_curve(item, test, request.output) for item, test in pairs]
        )
    return ReferenceCompared(name=path.name, tests=tests, added=added, warnings=warnings)


def _posted(path: Path) -> Topology | None:
    """Return the topology beside the results of a file, if it has one."""
    try:
        data = topology_beside_results(read_file(path)) if path.is_file() else None
        found = None if data is None else load(data, f"the topology in {path.name}")
    except InputError:
        return None
    return found if isinstance(found, Topology) else None


def is_one_measurement(runs: Sequence[MeasuredRun]) -> bool:
    """Return whether no two runs are of one collective, so that they are not to be compared."""
    found = [name for run in runs for name in {test.collective for test, _ in run.curves}]
    return len(found) == len(set(found))


def _nics(text: str | None, topology: Topology | None) -> NodeNics | None:
    if text is not None:
        return nics_of(text)
    nets = [] if topology is None else nets_of(topology)
    rates = {net.mbit_per_s for net in nets}
    rate = rates.pop() if len(rates) == 1 else None
    return NodeNics(len(nets), rate / 1e3) if rate and rate != _UNKNOWN_RATE else None


def nics_of(text: str) -> NodeNics:
    """Return the NICs of a node from a text such as `8x400`. Raises InputError for another one."""
    match = _NICS.fullmatch(text.strip())
    if match is None or not int(match[1]) or not float(match[2]):
        raise InputError(
            f"{text!r} is not the NICs of a node and their rate in Gbit/s",
            where="‹nics›",
            hint="‹nics› 8x400 for 8 NICs of 400 Gbit/s",
        )
    return NodeNics(int(match[1]), float(match[2]))


def _merged(runs: Sequence[MeasuredRun]) -> Iterator[_MergedCurve]:
    """Yield the curve of each run, collective and scale: the default, of the plainest test."""
    tests: dict[object, dict[tuple[MeasuredTest, str], list[MeasuredRun]]] = {}
    for run in runs:
        for test, label in run.curves:
            group = tests.setdefault((run.name, test.collective, test.scale), defaultdict(list))
            group[test, label].append(run)
    for keys in tests.values():
        key = min(keys, key=lambda key: _oddness(*key))
        times: dict[bool, dict[int, list[float]]] = {False: {}, True: {}}
        for run in keys[key]:
            for point, log_time in run.curves[key].times.items():
                times[point.in_place].setdefault(point.bytes, []).append(log_time)
        in_place = not times[False]
        merged = [
            {size: math.exp(median(x)) for size, x in sorted(times[place].items())}
            for place in (in_place, not in_place)
        ]
        yield _MergedCurve(*key, keys[key][0], in_place, *merged)


def _oddness(test: MeasuredTest, label: str) -> tuple[bool, ...]:
    odd = test.dtype not in (None, "float"), test.redop not in (None, "sum", "none")
    return label != "default", test.graph, test.registered, *odd


_BUILT_IN = {"GB10": 200.0}
"""Gbit/s of the NIC that each machine with this GPU has, whatever its maker."""


def _placed_test(
    item: _MergedCurve,
    gpu: str | None,
    topology: Topology | None,
    nics: NodeNics | None,
    curves: Sequence[ReferenceCurve],
) -> PlacedTest:
    facts, test = item.run.facts, item.test
    nodes, ranks = test.scale
    doubts = list(item.run.doubts)
    shared = SHARED_GPUS in (facts.conditions or ())
    if facts.emulated:
        doubts.append("the nodes are parts of one machine: no reference system is like that")
    stand_in = facts.emulated or shared
    if stand_in:
        curves, topology, nics = [], None, None
    per_gpu = None
    if nics is not None and nodes and ranks:
        per_gpu = min(nics.number * nodes / ranks, 1) * nics.gbit_per_s
    limiting = limiting_settings(facts, item.label)
    shown = facts.gpu
    if gpu_class(shown) is None:
        headed = facts.machine if _GPU.fullmatch(facts.machine or "") else None
        shown = gpu or headed or shown
        if headed and not gpu:
            doubts.append(f"the GPU is {shown} by a heading above the table")
    elif gpu and gpu_class(gpu) != gpu_class(shown):
        doubts.insert(0, f"the GPU stated, {gpu}, is not used: the log shows {shown}")
    if per_gpu is None and not stand_in:
        per_gpu = _BUILT_IN.get(gpu_class(shown) or "")
    system = SystemShown(
        gpu=shown,
        nodes=nodes,
        gpus=ranks,
        nic_gbps_per_gpu=per_gpu,
        limited=bool(limiting),
    )
    placement, limits, model, assumed = None, [], None, None
    is_flat = _is_flat(item)
    if ranks is not None:
        doubts += _shapes(item, ranks)
        placement = place(system, test.collective, item.times_us, curves)
        size, busbw = placement.bandwidth.bytes, placement.bandwidth.busbw_gb_per_s
        judged = max(size, _LARGE) if is_flat else size
        found = [
            _nic_limit(nics, system, test.collective, judged, busbw),
            None if stand_in else _lane_limit(system, test.collective, judged, busbw),
        ]
        settings = facts.settings
        if topology is None and not stand_in:
            topology = _usual_node(system, nics, facts)
            assumed = None if topology is None else topology.source
            settings = {x: y for x, y in settings.items() if x not in _OF_DEVICES}
        platform = Platform(
            name="compare", gpu=facts.gpu, nccl_version=facts.nccl, settings=settings
        )
        if topology is not None and nodes is not None and test.collective.tuned:
            scale = Scale(nodes, ranks)
            ceiling = _ceiling(topology, platform, scale, test.collective, size, busbw)
            if assumed is None:
                found.append(ceiling)
                model = _model(item, topology, platform, scale)
            elif ceiling is not None and ceiling.share <= 1:
                # A faster run is of another node.
                found.append(replace(ceiling, decides=False))
                model = _model(item, topology, platform, scale)
        limits = [limit for limit in found if limit is not None]
    return PlacedTest(
        run=item.run.name,
        title=test.titled(item.label),
        collective=test.collective,
        system=replace(system, gpus=None) if shared else system,
        nics=None if nics is None or nodes == 1 else f"{nics.number} x {nics.gbit_per_s:g} Gbit/s",
        nccl=facts.nccl,
        in_place=item.in_place,
        missing=[] if stand_in else system.missing,
        rule="" if stand_in else rule_text(system, limiting),
        placement=placement,
        limits=limits,
        assumed_node=assumed if model or any(x.name == "ceiling" for x in limits) else None,
        model=model,
        causes=causes(
            facts,
            nodes=nodes,
            gpus=ranks or 0,
            label=item.label,
        ),
        wrong=item.run.left_out.get("wrong results", 0),
        doubts=doubts if is_flat else [*doubts, *_small(max(item.times_us), placement)],
    )


def _small(largest: int, placement: Placement | None) -> Iterator[str]:
    """Yield that the largest size is small, unless others reach far more at that very size."""
    if largest < LARGE_BYTES and not (placement and placement.bandwidth.verdict is Verdict.LOW):
        yield (
            f"the largest size is {format_bytes(largest)}: bandwidth is still rising there on most"
            " systems; measure up to 8 GiB"
        )


def _usual_node(
    system: SystemShown, nics: NodeNics | None, facts: PlatformFacts
) -> Topology | None:
    """Return the usual node of a run without a topology; None where the run may have another."""
    each = system.gpus_per_node
    if not (system.gpu and each and is_whole_board(system.gpu, each)):
        return None
    if system.nodes == 1:
        nics = NodeNics(0, 0)
    elif nics is None or any(network_causes(facts, nics.number)):
        return None
    try:
        return usual_node(system.gpu, gpus=int(each), nics=nics.number, gbit_per_s=nics.gbit_per_s)
    except InputError:
        return None


def _shapes(item: _MergedCurve, ranks: int) -> list[str]:
    """Return where the bus bandwidth falls beyond noise and a larger message is faster."""
    test = item.test
    place = Condition(
        test.collective,
        Scale(test.scale[0] or 0, ranks),
        test.registered,
        item.in_place,
        test.graph,
    )
    sides = ((place, item.times_us), (place.other_placement, item.beside_us))
    timings = [
        Timings(key, {size: {DEFAULT: {(0, 0): time}} for size, time in times.items()})
        for key, times in sides
        if times
    ]
    found = analyze(Platform(name="compare"), SortedSamples(timings, 0, [], 0, 0)).findings
    return [
        x.sentence.removeprefix(replace(place, in_place=False).title)
        .removeprefix(": ")
        .removeprefix(", ")
        for x in found
        if x.kind in (FindingKind.FALLING_TIME, FindingKind.DIP)
    ]


def _is_flat(item: _MergedCurve) -> bool:
    """Return whether the bandwidth no longer rises over two doublings, or one of a large size."""
    largest = max(item.times_us)
    last = {size: us for size, us in item.times_us.items() if 4 * size >= largest and us}
    rates = [size / us for size, us in last.items()]
    needed = 2 if min(last) >= LARGE_BYTES else _FLAT_SIZES
    is_wide = len(last) >= needed and (needed == 2 or 4 * min(last) <= largest)
    return largest >= _FLAT_BYTES and is_wide and max(rates) <= _FLAT * min(rates)


def _nic_limit(
    nics: NodeNics | None, system: SystemShown, collective: Collective, size: int, busbw: float
) -> PhysicalLimit | None:
    """Return the rate of a node's NICs, of at most one for each GPU."""
    each = system.gpus_per_node
    if nics is None or each is None or system.one_fabric or not collective.tuned:
        return None
    number = min(nics.number, max(1, int(each)))
    rate = number * nics.gbit_per_s / 8
    share = busbw / rate
    if (size < LARGE_BYTES and share < _NEAR) or (system.is_rack and share > 1):
        return None
    words = f"{number} x {nics.gbit_per_s:g} Gbit/s are {significant(rate)} GB/s a node"
    if number < nics.number:
        words = f"{nics.number} NICs, of which one for each GPU counts: {words}"
    possible = not exceeds(system, busbw, rate)
    if possible:
        words += f", {percent_text(share)} of it reached; a ring reaches about "
        trees = collective is Collective.ALLREDUCE and system.nodes == 2 and each > 1
        words += percent_text(_RING_SHARE) + (", a tree more" if trees else "")
    else:
        words += ". The run has more than these NICs carry: check --nics"
    few = (system.nodes or 0) <= _FEW_NODES
    return PhysicalLimit(
        name="NICs",
        gb_per_s=rate,
        share=share,
        decides=possible and _decides(share, size, few=few),
        sentence=words,
    )


def _lane_limit(
    system: SystemShown, collective: Collective, size: int, busbw: float
) -> PhysicalLimit | None:
    """Return a lane of PCIe as the least that any GPUs of a node have, if a run is below it."""
    share = busbw / _ONE_LANE
    if system.nodes != 1 or not collective.tuned or size < _LARGE or share >= _FAR_BELOW:
        return None
    words = f"within a node, {percent_text(share)} of a single lane of PCIe 3.0 (0.985 GB/s): far"
    words += " below any link between its GPUs, NVLink or PCIe"
    rate = _ONE_LANE
    return PhysicalLimit(name="links", gb_per_s=rate, share=share, decides=True, sentence=words)


def _decides(share: float, size: int, *, few: bool = True) -> bool:
    """Return whether a share of a limit is a verdict; on many nodes a low one is none."""
    return share >= _NEAR or (few and size >= _LARGE and share < _FAR_BELOW)


def _model(
    item: _MergedCurve, topology: Topology, platform: Platform, scale: Scale
) -> ModelFigures | None:
    facts = item.run.facts
    if item.test.registered or item.test.graph or facts.tuner or facts.conditions:
        return None
    sizes = (latency_size(item.times_us), max(item.times_us))
    times = {size: item.times_us[size] for size in sizes if size is not None}
    return beside(topology, platform, item.test.collective, scale, times, item.label)


def _ceiling(
    topology: Topology,
    platform: Platform,
    scale: Scale,
    collective: Collective,
    size: int,
    busbw: float,
) -> PhysicalLimit | None:
    for one in expectations(topology, platform, [(collective, scale, None)]).expectations:
        share = busbw / one.busbw_gb_per_s
        words = f"{significant(one.busbw_gb_per_s)} GB/s, {percent_text(share)} of it reached"
        return PhysicalLimit(
            name="ceiling",
            gb_per_s=one.busbw_gb_per_s,
            share=share,
            decides=one.sure and share < BEYOND and _decides(share, size),
            sentence=f"{words}: {one.limit}" + ("" if one.sure else "; a bandwidth is assumed"),
        )
    return None


def _own_curve(item: _MergedCurve, test: PlacedTest, output: Path) -> ReferenceCurve:
    system = test.system
    if not test.rule:
        words = "emulated nodes and ranks that share a GPU make no reference system"
        raise InputError(words, where=str(output))
    if system.gpu is None or system.nodes is None or system.gpus is None or test.missing:
        raise InputError(
            f"a reference system needs these facts: {', '.join(test.missing)}",
            where=str(output),
            hint=" ".join(f"--{name}" for name in test.missing),
        )
    return ReferenceCurve(
        system=output.stem,
        gpu=system.gpu,
        gpus=system.gpus,
        nodes=system.nodes,
        nic_gbps_per_gpu=system.nic_gbps_per_gpu,
        nccl=test.nccl,
        settings=limiting_settings(item.run.facts, item.label) or None,
        collective=test.collective,
        source=test.run,
        read="own",
        in_place=item.in_place,
        points=tuple(item.times_us.items()),
    )

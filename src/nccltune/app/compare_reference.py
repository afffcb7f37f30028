# SPDX-License-Identifier: Apache-2.0
"""Place one measurement among published systems, and beside the ceiling of its topology."""

import math
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from nccltune.analyze.stats import median
from nccltune.compare.runs import MeasuredRun, MeasuredTest
from nccltune.formats.reading.platform_facts import PlatformFacts
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.model.topology import Topology
from nccltune.reference.alike import SystemShown, gpu_class, rule_text
from nccltune.reference.causes import causes
from nccltune.reference.curves import (
    ReadAs,
    ReferenceCurve,
    add_curves,
    published_curves,
    read_curves,
)
from nccltune.reference.placement import Placement, Verdict, place
from nccltune.study.files import Study
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.measured import expectations
from nccltune.topology.hardware.rebuild import nets_of

_NICS = re.compile(r"(\d+)\s*[xX*]\s*(\d+(?:\.\d+)?)\s*(?:[gG]\w*)?")
RING_SHARE = 0.96
"""Share of the NIC rate that a ring reaches: 24 GB/s of a NIC of 200 Gbit/s, as NCCL's maintainers
state in nccl-tests#119."""
_FAR_BELOW = 0.6
"""Below this share of the NIC rate, or of the ceiling, a bandwidth is low without any system."""
_TOLERANCE = 1.05
_FEW_NODES = 16
_LARGE = 1 << 30


class ReferenceRequest(NamedTuple):
    """Facts that a run does not show, and files to place it beside.

    - `nics`: the NICs of a node and their rate in Gbit/s, such as `8x400`.
    - `topology`: a topology file. Its NICs count if `nics` is None.
    - `references`: files or folders with curves, beside the published ones and the user's own.
    - `output`: a reference file to which the curves are appended.
    """

    gpu: str | None = None
    nics: str | None = None
    topology: Path | None = None
    references: Sequence[Path] = ()
    output: Path | None = None

    @property
    def is_asked(self) -> bool:
        """Return whether the user asks to place the input among reference systems."""
        return any(self)


class NicRate(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of a node's NICs in GB/s, and the share of it that the bus bandwidth is.

    `most` is the largest share that is possible. On two nodes that of a tree is 2: it sends each
    byte once, and the bus bandwidth counts it nearly twice.
    """

    nics: int
    gbit_per_s: float
    gb_per_s: float
    share: float
    most: float

    @property
    def is_possible(self) -> bool:
        """Return whether the NICs can carry the bandwidth that was measured."""
        return self.share <= self.most


class CeilingShown(msgspec.Struct, frozen=True, kw_only=True):
    """The bandwidth that the links allow in GB/s, and the share that was reached."""

    gb_per_s: float
    share: float
    limit: str
    sure: bool


class PlacedTest(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of the input, among the reference systems.

    `missing` names facts that the user must state: gpu, nodes, ranks, nics. `placement` is None
    without the number of ranks. A prediction of NCCL's model will be a field beside `ceiling`.
    """

    run: str
    title: str
    collective: Collective
    system: SystemShown
    nccl: str | None
    in_place: bool
    missing: list[str]
    rule: str
    placement: Placement | None
    nics: NicRate | None
    ceiling: CeilingShown | None
    causes: list[str]

    @property
    def is_low(self) -> bool:
        """Return whether the bandwidth or latency is clearly worse than what it is compared with.

        Without alike systems these are the NIC rate and the ceiling.
        """
        if self.placement is None:
            return False
        placed = [self.placement.bandwidth, self.placement.latency]
        if any(item is not None and item.verdict is Verdict.LOW for item in placed):
            return True
        return not self._has_systems and any(
            item is not None and item.share < _FAR_BELOW for item in self._limits
        )

    @property
    def is_judged(self) -> bool:
        """Return whether there was anything to compare with."""
        return self._has_systems or bool(self._limits)

    @property
    def _has_systems(self) -> bool:
        return self.placement is not None and self.placement.bandwidth.verdict not in (
            Verdict.UNDECIDED,
            Verdict.NOTHING_ALIKE,
        )

    @property
    def _limits(self) -> list[NicRate | CeilingShown]:
        """Return the limits that the run must come near to."""
        if self.placement is None or self.placement.bandwidth.bytes < _LARGE:
            return []
        nics = self.nics if self.nics is not None and self.nics.is_possible else None
        few = (self.system.nodes or _FEW_NODES) <= _FEW_NODES
        sure = self.ceiling if self.ceiling is not None and self.ceiling.sure else None
        return [item for item in (nics if few else None, sure) if item is not None]


class ReferenceCompared(msgspec.Struct, frozen=True, kw_only=True):
    """The tests of one input among the reference systems. `warnings` are on what was left out."""

    name: str
    tests: list[PlacedTest]
    added: int | None
    warnings: list[str]

    @property
    def has_finding(self) -> bool:
        """Return whether any test is clearly below what is normal."""
        return any(test.is_low for test in self.tests)

    @property
    def is_judged(self) -> bool:
        """Return whether any test could be judged."""
        return any(test.is_judged for test in self.tests)


class _MergedCurve(NamedTuple):
    test: MeasuredTest
    label: str
    run: MeasuredRun
    in_place: bool
    times_us: dict[int, float]


def compare_with_reference(
    path: Path, runs: Sequence[MeasuredRun], request: ReferenceRequest, warnings: list[str]
) -> ReferenceCompared:
    """Return each collective of `runs`, which were read from `path`, among reference systems.

    Raises InputError for an invalid option or reference file.
    """
    curves = [*published_curves(), *_own_curves(request.references)]
    topology = _topology(path, request.topology)
    nics = _nics(request.nics) or _nics_of(topology)
    merged = _merged(runs)
    tests = [_placed_test(item, request, topology, nics, curves) for item in merged]
    added = None
    if request.output is not None:
        pairs = zip(merged, tests, strict=True)
        own = [_own_curve(item, test, request.output) for item, test in pairs]
        added = add_curves(request.output, own)
    return ReferenceCompared(name=path.name, tests=tests, added=added, warnings=warnings)


def is_one_measurement(runs: Sequence[MeasuredRun]) -> bool:
    """Return whether no two runs are of one collective, so that they are not to be compared."""
    found = [name for run in runs for name in {test.collective for test, _ in run.curves}]
    return len(found) == len(set(found))


def _own_curves(paths: Sequence[Path]) -> list[ReferenceCurve]:
    """Return the curves of files, and of the `reference` folder in the user's configuration."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    folder = Path(base).expanduser() / "nccltune" / "reference"
    found = list(paths) + ([folder] if folder.is_dir() else [])
    return [curve for path in found for curve in read_curves(path)]


def _topology(path: Path, given: Path | None) -> Topology | None:
    found = given
    if found is None and path.is_dir():
        found = Study(path).topology_path
    return None if found is None else load_topology(found)


def _nics(text: str | None) -> tuple[int, float] | None:
    if text is None:
        return None
    match = _NICS.fullmatch(text.strip())
    if match is None or not int(match[1]) or not float(match[2]):
        raise InputError(
            f"{text!r} is not the NICs of a node and their rate in Gbit/s",
            where="--nics",
            hint="--nics 8x400 for 8 NICs of 400 Gbit/s",
        )
    return int(match[1]), float(match[2])


def _nics_of(topology: Topology | None) -> tuple[int, float] | None:
    """Return the number and rate of the NICs of a topology if they are alike and known."""
    nets = [] if topology is None else nets_of(topology)
    rates = {net.mbit_per_s for net in nets}
    rate = rates.pop() if len(rates) == 1 else None
    return (len(nets), rate / 1e3) if rate else None


def _merged(runs: Sequence[MeasuredRun]) -> list[_MergedCurve]:
    """Return one curve for each collective and scale: the default, of the plainest test.

    Runs of one test become their median.
    """
    tests: dict[tuple[Collective, object], dict[tuple[MeasuredTest, str], list[MeasuredRun]]]
    tests = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for test, label in run.curves:
            tests[test.collective, test.scale][test, label].append(run)
    found = []
    for keys in tests.values():
        key = min(keys, key=lambda key: _oddness(*key))
        times: dict[bool, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for run in keys[key]:
            for point, log_time in run.curves[key].times.items():
                times[point.in_place][point.bytes].append(log_time)
        in_place = not times[False]
        merged = {
            size: math.exp(median(values)) for size, values in sorted(times[in_place].items())
        }
        found.append(_MergedCurve(*key, keys[key][0], in_place, merged))
    return found


def _oddness(test: MeasuredTest, label: str) -> tuple[bool, bool, bool, bool, bool]:
    return (
        label != "default",
        test.graph,
        test.registered,
        test.dtype not in (None, "float"),
        test.redop not in (None, "sum", "none"),
    )


def _placed_test(
    item: _MergedCurve,
    request: ReferenceRequest,
    topology: Topology | None,
    nics: tuple[int, float] | None,
    curves: Sequence[ReferenceCurve],
) -> PlacedTest:
    facts, test = item.run.facts, item.test
    nodes, ranks = test.scale
    shown = facts.gpu if gpu_class(facts.gpu) is not None else request.gpu or facts.gpu
    per_gpu = None
    if nics is not None and nodes and ranks:
        per_gpu = nics[0] * nics[1] * nodes / ranks
    system = SystemShown(gpu=shown, nodes=nodes, gpus=ranks, nic_gbps_per_gpu=per_gpu)
    placement = None
    if ranks is not None:
        placement = place(system, test.collective, item.times_us, curves)
    busbw = 0.0 if placement is None else placement.bandwidth.busbw_gb_per_s
    return PlacedTest(
        run=item.run.name,
        title=test.titled(item.label),
        collective=test.collective,
        system=system,
        nccl=facts.nccl,
        in_place=item.in_place,
        missing=system.missing,
        rule=rule_text(system),
        placement=placement,
        nics=_nic_rate(nics, system, test.collective, busbw),
        ceiling=_ceiling(topology, facts, system, test.collective, busbw),
        causes=causes(
            facts,
            nodes=nodes,
            gpus=ranks or 0,
            largest=max(item.times_us),
            label=item.label,
            doubts=item.run.doubts,
            left_out=item.run.left_out,
        ),
    )


def _nic_rate(
    nics: tuple[int, float] | None, system: SystemShown, collective: Collective, busbw: float
) -> NicRate | None:
    """Return the NIC rate. Collectives of send and receive send another share by the NICs."""
    if nics is None or system.one_fabric or not collective.tuned:
        return None
    rate = nics[0] * nics[1] / 8
    most = 2.0 if system.nodes == 2 else 1.0
    return NicRate(
        nics=nics[0], gbit_per_s=nics[1], gb_per_s=rate, share=busbw / rate, most=_TOLERANCE * most
    )


def _ceiling(
    topology: Topology | None,
    facts: PlatformFacts,
    system: SystemShown,
    collective: Collective,
    busbw: float,
) -> CeilingShown | None:
    if topology is None or system.nodes is None or system.gpus is None:
        return None
    platform = Platform(
        name="compare",
        gpu=system.gpu,
        nccl_version=facts.nccl,
        settings=facts.settings,
        emulated_nodes=bool(facts.emulated),
    )
    scale = Scale(system.nodes, system.gpus)
    found = expectations(topology, platform, [(collective, scale)]).expectations
    if not found:
        return None
    one = found[0]
    share = busbw / one.busbw_gb_per_s
    return CeilingShown(gb_per_s=one.busbw_gb_per_s, share=share, limit=one.limit, sure=one.sure)


def _own_curve(item: _MergedCurve, test: PlacedTest, output: Path) -> ReferenceCurve:
    """Return the curve as one of a reference file. Raises InputError if a fact is missing."""
    system = test.system
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
        settings=None if item.label == "default" else item.label,
        collective=test.collective,
        source=test.run,
        read=ReadAs.OWN,
        in_place=item.in_place,
        points=tuple(item.times_us.items()),
    )

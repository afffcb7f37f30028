# SPDX-License-Identifier: Apache-2.0
"""The effect of a change on the ceiling, and the commands that verify it."""

import shlex
from collections.abc import Callable, Sequence

import msgspec

from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.topology import Topology
from nccltune.topology.flows.calibration import Calibration
from nccltune.topology.flows.expect import UNMEASURED, Expected, expect
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.hardware.change import nets_of
from nccltune.topology.hardware.classify import lacks_p2p
from nccltune.topology.nccl_model.routes import FlowKind


class WhatIfChange(msgspec.Struct, frozen=True):
    """A change of NCCL settings, hardware or the number of nodes. `words` describes the change."""

    words: str
    settings: dict[str, str] = {}
    hardware: Callable[[Topology], Topology] | None = None
    nodes: int | None = None


class WhatIfCase(msgspec.Struct, frozen=True, kw_only=True):
    """The platform before the change, and the collective to predict."""

    topology: Topology
    collective: Collective = Collective.ALLREDUCE
    nodes: int = 1
    ranks_per_node: int | None = None
    settings: dict[str, str] = {}
    calibration: Calibration | None = None
    nccl_version: Version | None = None

    def expected(self) -> Expected:
        """Return the ceiling of the case. Raises InputError if the model cannot predict it."""
        return expect(
            self.topology,
            collective=self.collective,
            nodes=self.nodes,
            ranks_per_node=self.ranks_per_node,
            settings=self.settings,
            calibration=self.calibration,
            nccl_version=self.nccl_version,
        )

    def changed(self, change: WhatIfChange) -> "WhatIfCase":
        """Return the case with a change applied. Raises InputError for an unknown device or
        place."""
        return msgspec.structs.replace(
            self,
            topology=change.hardware(self.topology) if change.hardware else self.topology,
            settings={**self.settings, **change.settings},
            nodes=change.nodes or self.nodes,
        )


class WhatIfResult(msgspec.Struct, frozen=True, kw_only=True):
    """The ceiling after a change; `gain` over now, None if they rest on unlike assumptions.

    `confirm` are the commands that verify it, none if a ceiling rests on assumptions.
    """

    change: WhatIfChange
    expected: Expected
    gain: float | None
    confirm: tuple[str, ...]


def what_if(
    case: WhatIfCase, changes: Sequence[WhatIfChange]
) -> tuple[Expected, list[WhatIfResult]]:
    """Return the present ceiling, and the result of each change alone.

    Raises InputError if the model cannot predict a ceiling, or if a change names a missing device.

    >>> from nccltune.examples import example
    >>> from nccltune.topology.files.load import load_topology
    >>> case = WhatIfCase(topology=load_topology(example("h200x4-1-node")))
    >>> now, (after,) = what_if(case, [WhatIfChange("tree", {"NCCL_ALGO": "tree"})])
    >>> f"{now.busbw_gb_per_s:.1f} {after.expected.busbw_gb_per_s:.1f}"
    '394.2 254.3'
    """
    now = case.expected()
    answers = []
    for change in changes:
        after = case.changed(change)
        found = after.expected()
        answers.append(
            WhatIfResult(
                change=change,
                expected=found,
                gain=_gain(now, found),
                confirm=verification_commands(case, change, now.ranks_per_node)
                if now.sure and found.sure
                else (),
            )
        )
    return now, answers


def _gain(now: Expected, after: Expected) -> float | None:
    if set(now.notes) - {UNMEASURED} != set(after.notes) - {UNMEASURED}:
        return None
    return after.busbw_gb_per_s / now.busbw_gb_per_s if now.busbw_gb_per_s else 1.0


def answerable(
    case: WhatIfCase, changes: Sequence[WhatIfChange]
) -> tuple[list[WhatIfChange], list[str]]:
    """Return the changes that the model can predict, and sentences that explain the others."""
    fine: list[WhatIfChange] = []
    reasons: dict[str, list[str]] = {}
    for change in changes:
        try:
            case.changed(change).expected()
        except InputError as error:
            reasons.setdefault(error.message, []).append(change.words)
        else:
            fine.append(change)
    return fine, [f"{'; '.join(words)}: no answer, {why}" for why, words in reasons.items()]


def combined_change(changes: Sequence[WhatIfChange]) -> WhatIfChange:
    """Return one change that applies all changes in their order."""
    changes = tuple(changes)

    def hardware(topology: Topology) -> Topology:
        for change in changes:
            topology = change.hardware(topology) if change.hardware else topology
        return topology

    settings: dict[str, str] = {}
    for change in changes:
        settings.update(change.settings)
    nodes = next((change.nodes for change in reversed(changes) if change.nodes), None)
    plugged = any(change.hardware for change in changes)
    return WhatIfChange("all of these", settings, hardware if plugged else None, nodes)


def suggested_changes(case: WhatIfCase, now: Expected) -> list[WhatIfChange]:
    """Return the changes of settings that could matter here, for a user who names none."""
    found: list[WhatIfChange] = []
    nets = [net for net in nets_of(case.topology) if net.index is not None or net.name]
    by_network = FlowKind.NETWORK in now.flows_gb_per_s
    if by_network and any(net.gdr for net in nets):
        reads = FlowKind.GDR_READ in now.flows_gb_per_s
        words = "GPUDirect reads off" if reads else "GPUDirect reads on"
        found.append(WhatIfChange(words, {"NCCL_NET_GDR_READ": "0" if reads else "1"}))
    kinds = now.flows_gb_per_s.keys()
    if kinds & {FlowKind.P2P_WRITE, FlowKind.INTER_SOCKET}:
        found.append(WhatIfChange("no P2P: through host memory", {"NCCL_P2P_LEVEL": "LOC"}))
    if {FlowKind.GPU_TO_HOST, FlowKind.HOST_TO_GPU} <= kinds and not lacks_p2p(case.topology):
        found.append(WhatIfChange("P2P at any distance", {"NCCL_P2P_LEVEL": "SYS"}))
    names = list(dict.fromkeys(net.name for net in nets if net.name and net.gdr))
    if by_network and len(names) > 1:
        half = names[: len(names) // 2]
        found.append(
            WhatIfChange(f"{len(half)} of {len(names)} NICs", {"NCCL_IB_HCA": "=" + ",".join(half)})
        )
    return found


def verification_commands(case: WhatIfCase, change: WhatIfChange, gpus: int) -> tuple[str, ...]:
    """Return the shell commands that verify a change.

    Settings are A/B-tested; around a change of hardware a sweep runs before and after. The launcher
    of several nodes is the user's to put in for `NAME`.
    """

    def started(nodes: int) -> str:
        return f" --launcher NAME --nodes {nodes} --gpus {gpus}" if nodes > 1 else ""

    if change.hardware or change.nodes:
        sizes = f"--collectives {case.collective.value} --sizes 256M-1G"
        after = change.nodes or case.nodes
        return (
            f"nccltune sweep -o studies/before {sizes}{started(case.nodes)}",
            f"nccltune sweep -o studies/after {sizes}{started(after)}",
        )
    words = shlex.join(f"{name}={value}" for name, value in change.settings.items())
    alone = f" -g {gpus}" if case.nodes == 1 else ""
    program = f"{case.collective.nccl_tests_name}_perf -b 1G -e 4G -f 2{alone}"
    return (f"nccltune ab {words}{started(case.nodes)} -- {program}",)

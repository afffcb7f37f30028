# SPDX-License-Identifier: Apache-2.0
"""From a study's topology to what the links allow each of its collectives and scales."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nccltune.analyze.expected import Expectation
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError, NccltuneError
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.model.topology import Topology
from nccltune.topology.calibration import Calibration
from nccltune.topology.expect import Expected, expect
from nccltune.topology.flow_settings import READ
from nccltune.topology.kinds import FlowKind


class Told(NamedTuple):
    """What the topology says, and sentences for what it cannot say."""

    expectations: list[Expectation]
    silent: list[str]


def expectations(
    topology: Topology,
    platform: Platform,
    asked: Iterable[tuple[Collective, Scale]],
    calibration: Calibration | None = None,
) -> Told:
    """The ceiling of every collective and scale with the settings of the platform, by the default
    efficiencies where there is no `calibration` of it.

    Emulated nodes are not what the file describes: nothing is expected of them. Scales whose nodes
    have different numbers of ranks, and collectives made of send and receive, are left out.
    """
    found: list[Expectation] = []
    silent: dict[str, None] = {}
    if platform.emulated_nodes:
        return Told([], [])
    settings = {name: value for name, value in platform.settings.items() if name in READ}
    for collective, scale in dict.fromkeys(asked):
        if not collective.tuned or scale.ranks % scale.nodes:
            continue
        try:
            made = expect(
                topology,
                collective=collective,
                nodes=scale.nodes,
                ranks_per_node=scale.ranks // scale.nodes,
                settings=settings,
                calibration=calibration,
                nccl_version=version_of(platform.nccl_version),
            )
        except InputError as error:
            silent[_sentence(error)] = None
            continue
        found.append(
            Expectation(
                collective=collective,
                scale=scale,
                busbw_gb_per_s=made.busbw_gb_per_s,
                limit=limit(made),
                hoped_gb_per_s=made.nccl_busbw_gb_per_s,
                sure=made.sure,
            )
        )
    return Told(found, list(silent))


def limit(made: Expected) -> str:
    """`GPU0 -> NVS is full with GPU to GPU over NVLink`."""
    state = "full" if made.used > 0.995 else f"{100 * made.used:.0f} % full"
    return f"{made.bottleneck} ({made.capacity_gb_per_s:.3g} GB/s) is {state} with {_kinds(made)}"


def _kinds(made: Expected) -> str:
    kinds = sorted(made.load_by_kind.items(), key=lambda item: -item[1])
    shown = [item for item in kinds if item[1] >= 0.02 * made.capacity_gb_per_s] or kinds[:1]
    return " and ".join(_words(shown))


def _words(kinds: list[tuple[FlowKind, float]]) -> Iterator[str]:
    for kind, rate in kinds:
        yield kind.prose if len(kinds) == 1 else f"{kind.prose} ({rate:.3g})"


def version_of(text: str | None) -> tuple[int, int, int] | None:
    """`2.28.9` as numbers; None where it is unknown."""
    parts = (text or "").split(".")
    if len(parts) < 3 or not all(part.isdecimal() for part in parts[:3]):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def _sentence(error: NccltuneError) -> str:
    return error.message

# SPDX-License-Identifier: Apache-2.0
"""Compute the ceiling of each collective and scale in a study, from the study's topology."""

from collections.abc import Iterable
from typing import NamedTuple

from nccltune.analyze.expected import Expectation
from nccltune.model.choice import Algorithm, PartialChoice
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.model.scale import Scale
from nccltune.model.topology import Topology
from nccltune.topology.flows.calibration import Calibration
from nccltune.topology.flows.expect import Expected, expect
from nccltune.topology.flows.settings import READ
from nccltune.topology.hardware.classify import with_named_gpus
from nccltune.topology.nccl_model.settings import known_version


class TopologyExpectations(NamedTuple):
    """The ceilings of collectives and scales; `silent` says why others have none."""

    expectations: list[Expectation]
    silent: list[str]


def expectations(
    topology: Topology,
    platform: Platform,
    asked: Iterable[tuple[Collective, Scale, PartialChoice | None]],
    calibration: Calibration | None = None,
) -> TopologyExpectations:
    """Return the ceiling of every collective and scale asked for, with the platform's settings.

    A third element such as `NCCL_ALGO=Ring` is a further setting.

    Uneven nodes, and emulated nodes, which the topology does not describe, have none.
    """
    found: list[Expectation] = []
    silent: dict[str, None] = {}
    if platform.emulated_nodes:
        return TopologyExpectations([], [])
    topology = with_named_gpus(topology, platform.gpu)
    settings = {name: value for name, value in platform.settings.items() if name in READ}
    for collective, scale, limits in dict.fromkeys(asked):
        if scale.ranks % scale.nodes:
            continue
        try:
            made = expect(
                topology,
                collective=collective,
                nodes=scale.nodes,
                ranks_per_node=scale.ranks // scale.nodes,
                settings=settings | dict([limits.split("=")] if limits else []),
                calibration=calibration,
                nccl_version=known_version(platform.nccl_version),
                nvlink_domains=platform.nvlink_domains,
            )
        except InputError as error:
            silent[error.message] = None
            continue
        found.append(
            Expectation(
                collective=collective,
                scale=scale,
                limits=limits,
                busbw_gb_per_s=made.busbw_gb_per_s,
                limit=limit(made),
                algorithm=made.algorithm.value,
                ring_gb_per_s=made.alternatives.get(Algorithm.RING),
                hoped_gb_per_s=made.nccl_busbw_gb_per_s,
                sure=made.sure,
                at_most=made.at_most,
            )
        )
    return TopologyExpectations(found, list(silent))


def limit(made: Expected) -> str:
    """Return text such as `GPU0 -> NVS (360 GB/s) is full with GPU to GPU over NVLink`."""
    state = "full" if made.used > 0.995 else f"{100 * made.used:.0f} % full"
    return f"{made.bottleneck} ({made.capacity_gb_per_s:.3g} GB/s) is {state} with {_kinds(made)}"


def _kinds(made: Expected) -> str:
    kinds = sorted(made.load_by_kind.items(), key=lambda item: -item[1])
    shown = [item for item in kinds if item[1] >= 0.02 * made.capacity_gb_per_s] or kinds[:1]
    names = [(made.flow_words(kind), rate) for kind, rate in shown]
    return " and ".join(f"{name} ({rate:.3g})" if names[1:] else name for name, rate in names)

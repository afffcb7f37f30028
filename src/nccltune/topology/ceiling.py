# SPDX-License-Identifier: Apache-2.0
"""From flows to the ceiling of a collective: which link is full, with what, how fast that is."""

from collections import defaultdict

import msgspec

from nccltune.model.choice import Algorithm
from nccltune.topology.calibration import Calibration
from nccltune.topology.flows import Flows
from nccltune.topology.kinds import FlowKind
from nccltune.topology.links import Link
from nccltune.topology.loads import loads_of
from nccltune.topology.reach import Reach
from nccltune.topology.solve import Demand, max_min

_DIGITS = 9
_Place = tuple[int, str]
"""A role's number and a link's name."""
Channels = list[dict[_Place, dict[FlowKind, float]]]
"""For each channel: GB/s of a link for each GB/s of its rate, by kind."""


class FullLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link as it is loaded at the ceiling: GB/s of it by kind, in the node called `role`."""

    link: Link
    role: str
    by_kind: dict[FlowKind, float]

    @property
    def used(self) -> float:
        """Of 1."""
        return sum(self.by_kind.values()) / self.link.gb_per_s if self.link.gb_per_s else 1.0


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """What the links allow. `channel_rates` are max-min fair; NCCL gives every channel the same
    share of the bytes, so the slowest of them sets the pace of all: `busbw_gb_per_s`."""

    busbw_gb_per_s: float
    algorithm: Algorithm
    channels: int
    channel_rates: tuple[float, ...]
    bottleneck: FullLink
    links: tuple[FullLink, ...]
    """All that carry anything, fullest first."""


def ceiling(reach: Reach, flows: Flows, calibration: Calibration, *, pattern: int = 0) -> Ceiling:
    """The ceiling of `flows`; `pattern` is that of a tree's search (3 costs it bandwidth).

    Nodes of one role are alike, so one of each is enough; channels that load the same links alike
    are one demand.
    """
    by_name = {link.name: link for link in reach.links}
    loads: Channels = [{} for _ in range(flows.channels)]
    for number, role in enumerate(flows.roles):
        found = loads_of(role.parts, flows.channels, reach.links, calibration)
        for channel, links in enumerate(found):
            loads[channel].update({(number, name): kinds for name, kinds in links.items()})
    alike: dict[tuple[tuple[_Place, float], ...], list[int]] = defaultdict(list)
    for channel, places in enumerate(loads):
        totals = {place: round(sum(kinds.values()), _DIGITS) for place, kinds in places.items()}
        alike[tuple(sorted(totals.items()))].append(channel)
    demands = [
        Demand({_key(place): load for place, load in totals}, len(members))
        for totals, members in alike.items()
    ]
    capacity = {_key(place): by_name[place[1]].gb_per_s for totals in alike for place, _ in totals}
    shares = max_min(demands, capacity)
    rates = [0.0] * flows.channels
    for rate, members in zip(shares.rates, alike.values(), strict=True):
        for channel in members:
            rates[channel] = rate
    slowest = min(range(len(demands)), key=lambda place: shares.rates[place])
    pace = shares.rates[slowest] * _algorithm_efficiency(flows.algorithm, pattern, calibration)
    full = _full_links(flows, loads, by_name, pace)
    held = shares.held_by[slowest]
    return Ceiling(
        busbw_gb_per_s=pace * flows.channels,
        algorithm=flows.algorithm,
        channels=flows.channels,
        channel_rates=tuple(rates),
        bottleneck=full[held],
        links=tuple(sorted(full.values(), key=lambda one: (-round(one.used, 6), one.link.name))),
    )


def _key(place: _Place) -> str:
    """A role's link as the solver's name of it."""
    return f"{place[0]} {place[1]}"


def _algorithm_efficiency(algorithm: Algorithm, pattern: int, calibration: Calibration) -> float:
    if algorithm is Algorithm.TREE:
        return calibration["tree"] * (calibration["plain_tree"] if pattern == 3 else 1.0)
    return calibration["nvls"] if algorithm is Algorithm.NVLS else 1.0


def _full_links(
    flows: Flows, loads: Channels, by_name: dict[str, Link], pace: float
) -> dict[str, FullLink]:
    """Every link's load by kind when all channels run at `pace`."""
    totals: dict[_Place, dict[FlowKind, float]] = defaultdict(lambda: defaultdict(float))
    for channel in loads:
        for place, kinds in channel.items():
            for kind, load in kinds.items():
                totals[place][kind] += load * pace
    return {
        _key(place): FullLink(
            link=by_name[place[1]], role=flows.roles[place[0]].words, by_kind=dict(kinds)
        )
        for place, kinds in totals.items()
    }

# SPDX-License-Identifier: Apache-2.0
"""Compute the ceiling of a collective: the bandwidth that the links allow, and the limiting link.

A role is a group of nodes with the same traffic (`flows.py`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from nccltune.model.choice import Algorithm
from nccltune.topology.flows.calibration import Calibration, tree_figure
from nccltune.topology.flows.flows import Flows, loads_of
from nccltune.topology.hardware.links import Link
from nccltune.topology.nccl_model.routes import FlowKind, NodeRoutes

_EQUAL = 1e-9
"""Relative tolerance: links that fill up at rates within it count as full at the same rate."""


class Demand(msgspec.Struct, frozen=True):
    """`count` equal demands; `loads` are the GB/s on a link for each GB/s of the demand."""

    loads: Mapping[str, float]
    count: int = 1


class Shares(msgspec.Struct, frozen=True):
    """Max-min fair shares, in the order of the given demands.

    `rates` are in GB/s, for a single one of `count` demands, each `held_by` a link. `used` is the
    load of each link in GB/s.
    """

    rates: tuple[float, ...]
    held_by: tuple[str, ...]
    used: Mapping[str, float]


def max_min(demands: Sequence[Demand], capacity: Mapping[str, float]) -> Shares:
    """Return max-min fair rates of `demands` over links of `capacity` GB/s.

    Shares are max-min fair if no rate can grow without lowering a rate that is equal or lower. The
    algorithm is progressive filling (water-filling): all rates rise together, a link that becomes
    full stops the demands on it, and the other rates rise further.

    A link of capacity 0 or less gives rate 0. Raises ValueError for a demand that loads no link,
    because its rate has no bound.

    >>> max_min([Demand({"a": 1.0}), Demand({"a": 1.0, "b": 2.0})], {"a": 30.0, "b": 20.0}).rates
    (20.0, 10.0)
    """
    for demand in demands:
        if not any(load > 0 for load in demand.loads.values()):
            raise ValueError("a demand that loads no link has no bound")
    left = {name: max(0.0, value) for name, value in capacity.items()}
    rates = [0.0] * len(demands)
    held = [""] * len(demands)
    rising = set(range(len(demands)))
    level = 0.0
    while rising:
        # The GB/s by which each link's load grows, for each GB/s by which all rising demands grow.
        slope = dict.fromkeys(left, 0.0)
        for number in rising:
            for name, load in demands[number].loads.items():
                slope[name] += load * demands[number].count
        room = {name: left[name] / rise for name, rise in slope.items() if rise > 0}
        step = min(room.values())
        level += step
        full = {name for name, value in room.items() if value <= step + _EQUAL * level}
        left = {
            name: 0.0 if name in full else left[name] - step * rise for name, rise in slope.items()
        }
        for number in sorted(rising):
            loads = demands[number].loads
            stops = [name for name, load in loads.items() if load > 0 and name in full]
            if stops:
                rates[number] = level
                held[number] = min(stops, key=lambda name: (-loads[name], name))
                rising.remove(number)
    used = dict.fromkeys(capacity, 0.0)
    for demand, rate in zip(demands, rates, strict=True):
        for name, load in demand.loads.items():
            used[name] += load * rate * demand.count
    return Shares(tuple(rates), tuple(held), used)


_DIGITS = 9
_Place = tuple[int, str]
"""A link of a role: the number of the role and the name of the link."""
Channels = list[dict[_Place, dict[FlowKind, float]]]
"""For each channel: load by link and kind of flow, in GB/s for each GB/s of the channel's rate."""


class FullLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link in the nodes of a role, with its load at the ceiling in GB/s by kind of flow."""

    link: Link
    role: str
    by_kind: dict[FlowKind, float]

    @property
    def used(self) -> float:
        """Return the load divided by the bandwidth; 1 is full."""
        wire = self.link.wire_gb_per_s
        return sum(self.by_kind.values()) / wire if wire else 1.0


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """The bandwidth that the links allow.

    Every channel has the same share of the bytes, so the slowest of the max-min fair
    `channel_rates` (GB/s) determines it.
    """

    busbw_gb_per_s: float
    algorithm: Algorithm
    channels: int
    channel_rates: tuple[float, ...]
    bottleneck: FullLink
    links: tuple[FullLink, ...]
    """All links with a load, the fullest first."""


def ceiling(node: NodeRoutes, flows: Flows, calibration: Calibration) -> Ceiling:
    """Return the ceiling of `flows`; one node stands for all of a role."""
    by_name = {link.name: link for link in node.links}
    loads: Channels = [{} for _ in range(flows.channels)]
    for number, role in enumerate(flows.roles):
        found = loads_of(role.parts, flows.channels, node.links, calibration)
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
    is_tree = flows.algorithm is Algorithm.TREE and len(node.gpus) > 1
    capacity = {
        _key(place): by_name[place[1]].wire_gb_per_s
        * (calibration[tree_figure(by_name[place[1]].kind)] if is_tree else 1.0)
        for totals in alike
        for place, _ in totals
    }
    shares = max_min(demands, capacity)
    rates = [0.0] * flows.channels
    for rate, members in zip(shares.rates, alike.values(), strict=True):
        for channel in members:
            rates[channel] = rate
    slowest = min(range(len(demands)), key=lambda place: shares.rates[place])
    pace = shares.rates[slowest]
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
    return f"{place[0]} {place[1]}"


def _full_links(
    flows: Flows, loads: Channels, by_name: dict[str, Link], pace: float
) -> dict[str, FullLink]:
    """Return every link's load by kind of flow if all channels run at `pace` GB/s."""
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

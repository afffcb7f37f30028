# SPDX-License-Identifier: Apache-2.0
"""Max-min fair shares of links: the rate of each demand, and the link that limits it.

A *demand* is a set of flows that run at one rate, such as one channel of a ring. Each GB/s of its
rate takes a fixed number of GB/s of each link that it uses. Shares are max-min fair if no rate can
grow without lowering a rate that is equal or lower. The algorithm is progressive filling
(water-filling). All rates rise together. A link that becomes full stops the demands on it, and the
other rates rise further.
"""

from collections.abc import Mapping, Sequence

import msgspec

_EQUAL = 1e-9
"""Relative tolerance: links that fill up at rates within it count as full at the same rate."""


class Demand(msgspec.Struct, frozen=True):
    """`count` equal demands.

    `loads` maps the name of a link to the GB/s that one demand takes from the link for each GB/s of
    the demand's rate.
    """

    loads: Mapping[str, float]
    count: int = 1


class Shares(msgspec.Struct, frozen=True):
    """Max-min fair shares, in the order of the given demands.

    `rates` are in GB/s, each for a single one of `count` equal demands. `held_by` names the link
    that stops each demand. If several links stop it, the one with its largest load is named. `used`
    is the load of each link in GB/s.
    """

    rates: tuple[float, ...]
    held_by: tuple[str, ...]
    used: Mapping[str, float]


def max_min(demands: Sequence[Demand], capacity: Mapping[str, float]) -> Shares:
    """Return max-min fair rates of `demands` over links of `capacity` GB/s.

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

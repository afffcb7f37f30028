# SPDX-License-Identifier: Apache-2.0
"""The load that flows put on the links of a node, in GB/s.

A flow loads a link by more than its own rate if the efficiency of this kind of flow on the link is
below 1. The data of a read goes in one direction and the read requests go in the other. Requests
cost little, unless peer GPUs write in the same direction as the requests. Peers write in bursts at
the full rate of the link, and PCIe lets no read request pass a posted write, so the requests wait.
A NIC has a limited number of outstanding requests, so each waiting request lowers its bandwidth.
Writes of a NIC cause no such wait: they arrive at the network's rate and leave gaps.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nccltune.topology.flows.calibration import Calibration
from nccltune.topology.hardware.links import Link, LinkKind
from nccltune.topology.nccl_model.flow_kind import FlowKind
from nccltune.topology.nccl_model.routes import Leg, twins


class FlowLoad(NamedTuple):
    """A leg (section of a route) of a channel, with GB/s for each GB/s of the channel's rate."""

    channel: int
    leg: Leg
    amount: float


Loads = list[dict[str, dict[FlowKind, float]]]
"""For each channel: load by link name and kind of flow, in GB/s for each GB/s of channel rate."""

_PEER_WRITES = (FlowKind.P2P_WRITE, FlowKind.INTER_SOCKET)


def loads_of(
    parts: Iterable[FlowLoad], channels: int, links: Sequence[Link], calibration: Calibration
) -> Loads:
    """Return the loads of `parts` on the links, if all `channels` channels run at the same rate."""
    parts = list(parts)
    twin = twins(links)
    found: list[dict[int, dict[FlowKind, float]]] = [
        defaultdict(lambda: defaultdict(float)) for _ in range(channels)
    ]
    requests: list[dict[int, float]] = [defaultdict(float) for _ in range(channels)]
    gdr_reads: dict[int, float] = defaultdict(float)
    peer_writes: dict[int, float] = defaultdict(float)
    for part in parts:
        for place in part.leg.links:
            link = links[place]
            cost = calibration.cost(part.leg.kind, link.kind, through_intel=part.leg.through_intel)
            found[part.channel][place][part.leg.kind] += part.amount * cost
            if link.kind is not LinkKind.PCI:
                continue
            if part.leg.kind.is_read:
                requests[part.channel][twin[place]] += part.amount * calibration["read_request"]
            if part.leg.kind is FlowKind.GDR_READ:
                gdr_reads[twin[place]] += part.amount
            if part.leg.kind in _PEER_WRITES:
                peer_writes[place] += part.amount
    _add_waiting_requests(parts, links, twin, requests, gdr_reads, peer_writes, calibration)
    for channel, waiting in enumerate(requests):
        for place, amount in waiting.items():
            found[channel][place][FlowKind.READ_REQUEST] += amount
    return [
        {links[place].name: dict(kinds) for place, kinds in channel.items()} for channel in found
    ]


def _add_waiting_requests(
    parts: Sequence[FlowLoad],
    links: Sequence[Link],
    twin: Sequence[int],
    requests: Sequence[dict[int, float]],
    gdr_reads: dict[int, float],
    peer_writes: dict[int, float],
    calibration: Calibration,
) -> None:
    """Raise the cost of a NIC's read requests that wait behind writes of peer GPUs.

    It is lower in proportion if peers write fewer bytes than NICs read.
    """
    extra = calibration["read_beside_peer_writes"] - calibration["read_request"]
    for part in parts:
        if part.leg.kind is not FlowKind.GDR_READ:
            continue
        for place in part.leg.links:
            if links[place].kind is not LinkKind.PCI:
                continue
            back = twin[place]
            mixed = min(1.0, peer_writes[back] / gdr_reads[back]) if gdr_reads[back] else 0.0
            requests[part.channel][back] += part.amount * mixed * max(0.0, extra)

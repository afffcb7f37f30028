# SPDX-License-Identifier: Apache-2.0
"""The goal of an attempt of NCCL's channel search, and the best result of all attempts."""

from typing import NamedTuple

import msgspec

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.topology.nccl_model.settings import PathKind


class Ring(NamedTuple):
    """The GPUs of a channel in order, and its NICs in and out. A tree's GPUs start at its head."""

    gpus: tuple[int, ...]
    net_in: int | None = None
    net_out: int | None = None


class SearchGoal(msgspec.Struct):
    """The conditions that an attempt of the search has to satisfy."""

    pattern: Pattern
    least: int
    most: int
    cross_nic: int
    intra_type: PathKind
    inter_type: PathKind
    intra_gb_per_s: float = 0.0
    inter_gb_per_s: float = 0.0
    same_channels: bool = True

    def set_speed(self, gb_per_s: float) -> None:
        """Set the speed of a channel, the same inside the node and to NICs."""
        self.intra_gb_per_s = self.inter_gb_per_s = gb_per_s


class BestChannels(msgspec.Struct):
    """The best channels so far, with the values of the goal that they satisfy."""

    pattern: Pattern
    cross_nic: int
    intra_type: PathKind
    inter_type: PathKind
    intra_gb_per_s: float
    inter_gb_per_s: float
    same_channels: bool
    rings: list[Ring]
    hops: int

    @property
    def booked_gb_per_s(self) -> float:
        """Return the bandwidth of all channels together to NICs, in GB/s."""
        return len(self.rings) * self.inter_gb_per_s

    def as_goal(self, goal: SearchGoal) -> SearchGoal:
        """Return a goal of the best channels' values, to improve on, within `goal`'s channels."""
        return SearchGoal(
            pattern=self.pattern,
            least=goal.least,
            most=goal.most,
            cross_nic=self.cross_nic,
            intra_type=self.intra_type,
            inter_type=self.inter_type,
            intra_gb_per_s=self.intra_gb_per_s,
            inter_gb_per_s=self.inter_gb_per_s,
            same_channels=self.same_channels,
        )

# SPDX-License-Identifier: Apache-2.0
"""What NCCL's search looks for, and the best that it found."""

from typing import NamedTuple

import msgspec

from nccltune.formats.graph_xml import Pattern
from nccltune.topology.settings import PathKind


class Ring(NamedTuple):
    """A channel's GPUs in order (of a tree: from its head down), and its NICs in and out."""

    gpus: tuple[int, ...]
    net_in: int | None = None
    net_out: int | None = None


class Goal(msgspec.Struct):
    """What a try looks for."""

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
        """The same speed inside the node and to NICs."""
        self.intra_gb_per_s = self.inter_gb_per_s = gb_per_s


class Best(msgspec.Struct):
    """The best channels found so far, with the goal they were found for."""

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
    def booked(self) -> float:
        """GB/s of all channels to NICs."""
        return len(self.rings) * self.inter_gb_per_s

    def as_goal(self, goal: Goal) -> Goal:
        """A goal to improve on this."""
        return Goal(
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

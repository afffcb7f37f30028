# SPDX-License-Identifier: Apache-2.0
"""What the channel search looks for, and its rules by version of NCCL (2.19.3 to 2.31).

The sources are `graph/search.cc`, `graph/connect.cc` and `transport/nvls.cc`.
"""

from typing import NamedTuple

import msgspec

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.nccl_model.settings import PathKind, PathRules

_KINDS = tuple(kind for kind in PathKind if kind < PathKind.DIS)
_BEFORE = (0, 0, 0)


class SearchRules:
    """The rules of one version of NCCL."""

    def __init__(self, version: Version) -> None:
        missing = {PathKind.C2C: (2, 26, 0), PathKind.P2C: (2, 27, 0)}
        self.kinds: tuple[PathKind, ...] = tuple(
            kind for kind in _KINDS if missing.get(kind, _BEFORE) <= version
        )
        """The path types of the version, best first. C2C exists since 2.26, P2C since 2.27."""
        self.own_kinds = version >= (2, 25, 0)
        """Only path types of the machine are tried, before from NVL or PIX up to SYS."""
        self.far_nets_before_sm90 = version >= (2, 29, 0)
        """All paths to NICs are tried before compute capability 9.0."""
        self.split_nvlink = version >= (2, 26, 0)
        """A ring needs two channels if NVLink joins the GPUs into two groups."""
        self.crossed = 1 if version < (2, 23, 0) else 2
        """The value of crossNic in a search that crosses NICs."""
        self.crossing_loss = 0.15 if version < (2, 20, 0) else 0.0
        """The share of bandwidth that channels lose in comparisons if they cross NICs."""
        self.pairs_nets = version >= (2, 20, 0)
        """An odd channel that crosses NICs uses those of the channel before in reverse."""
        self.neighbours_only = version >= (2, 21, 0)
        """A GPU with NVSwitches has only its neighbours as next GPUs."""
        self.near_gpus = version >= (2, 27, 0)
        """Channels begin at each GPU near the NIC: widest, then best type.

        Before, at those of the widest path and fewest hops, at another for each channel.
        """
        self.own_gpu_first = version >= (2, 27, 5)
        """The NIC's own GPU is first, and only equal channels repeat; before, all do."""
        self.unbounded_single_gpu = version < (2, 21, 0)
        """The first speed of a node with one GPU is limited by its NIC only."""
        self.nets_on_one_node = version >= (2, 28, 7)
        """A node keeps its NICs in a job on one node, so crossNic is tried there, too."""
        self.nets_in_fallback = version >= (2, 29, 0)
        """The simple order uses the NICs of its first and last GPU, not NIC 0."""
        self.two_devices = version >= (2, 30, 0)
        """A GPU is two devices in NCCL's graph."""
        self.shares_by_rest = PathRules(version).shares_by_rest
        """The rule of this name in `PathRules`."""
        self.head_search = 1 if version < (2, 22, 0) else 2 if version < (2, 23, 0) else 3
        """Heads of NVLS and CollNet try one NIC (1), or all: 2 keeps them, 3 releases them."""
        self.nvls_heads = 32 if version >= (2, 25, 0) else None
        """The most heads of NVLS: one for each GPU, or at most this."""
        self.collnet_heads = 8 if version >= (2, 25, 0) else None
        """The most heads of CollNet direct: one for each GPU, or at most this."""
        self.collnet_direct = version >= (2, 22, 0)
        """CollNet direct has a search of its own. Before, it uses the channels of chain."""
        self.most_channels = 64 if version >= (2, 25, 0) else 32
        """`MAXCHANNELS`."""
        self.doubled_to = 90 if version < (2, 25, 0) else 999
        """The last compute capability that gets twice the channels for fast rings between nodes."""
        self.doubled_below = 17 if version < (2, 20, 0) else 16
        """They are doubled if there are fewer channels than this."""
        self.raised_for_nvls = (2, 20, 0) <= version < (2, 28, 0)
        """There are at least as many channels as NVLS has."""
        self.nvls_channels: dict[int, tuple[int, int]] = {0: (16, 16)} | (
            {} if version < (2, 25, 0) else {100: (32 if version < (2, 27, 0) else 24, 32)}
        )
        """The channels of NVLS on one node and on several, by the least compute capability."""


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

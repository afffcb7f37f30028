# SPDX-License-Identifier: Apache-2.0
"""What the channel search looks for, and its rules by version of NCCL (2.19.3 to 2.31).

The sources are `graph/search.cc`, `graph/connect.cc` and `transport/nvls.cc`.
"""

from typing import NamedTuple

import msgspec

from nccltune.formats.topology.graph_xml import Pattern
from nccltune.topology.hardware.bandwidth import Version
from nccltune.topology.nccl_model.settings import PathKind, rules_of

_KINDS = tuple(kind for kind in PathKind if kind < PathKind.DIS)
_BEFORE = (0, 0, 0)


class SearchRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one version of NCCL."""

    kinds: tuple[PathKind, ...]
    """The path types of the version, best first. C2C exists since 2.26, P2C since 2.27."""
    own_kinds: bool
    """Since 2.25 only path types of the machine are tried, before from NVL or PIX up to SYS."""
    far_nets_before_sm90: bool
    """Since 2.29 all paths to NICs are tried before compute capability 9.0."""
    split_nvlink: bool
    """Since 2.26 a ring needs two channels if NVLink joins the GPUs into two groups."""
    crossed: int
    """The value of crossNic in a search that crosses NICs: 1 before 2.23, then 2."""
    crossing_loss: float
    """The share of bandwidth that channels lose in comparisons if they cross NICs: 0.15 in 2.19."""
    pairs_nets: bool
    """Since 2.20 an odd channel that crosses NICs uses those of the channel before in reverse."""
    neighbours_only: bool
    """Since 2.21 a GPU with NVSwitches has only its neighbours as next GPUs."""
    near_gpus: bool
    """Since 2.27 channels begin at each GPU near the NIC: widest, then best type.

    Before, at those of the widest path and fewest hops, at another for each channel.
    """
    own_gpu_first: bool
    """Since 2.27.5 the NIC's own GPU is first, and only equal channels repeat; before, all do."""
    unbounded_single_gpu: bool
    """Before 2.21 the first speed of a node with one GPU is limited by its NIC only."""
    nets_on_one_node: bool
    """Since 2.28.7 a node keeps its NICs in a job on one node, so crossNic is tried there, too."""
    nets_in_fallback: bool
    """Since 2.29 the simple order uses the NICs of its first and last GPU, not NIC 0."""
    two_devices: bool
    """Since 2.30 a GPU is two devices in NCCL's graph."""
    shares_by_rest: bool
    """The rule of this name in `PathRules`."""
    head_search: int
    """Heads of NVLS and CollNet try one NIC (1, before 2.22), or all: 2 (2.22) keeps, 3
    releases."""
    nvls_heads: int | None
    """The most heads of NVLS: one for each GPU, since 2.25 at most 32."""
    collnet_heads: int | None
    """The most heads of CollNet direct: one for each GPU, since 2.25 at most 8."""
    collnet_direct: bool
    """Since 2.22 CollNet direct has a search of its own. Before, it uses the channels of chain."""
    most_channels: int
    """`MAXCHANNELS`."""
    doubled_to: int
    """The last compute capability that gets twice the channels for fast rings between nodes."""
    doubled_below: int
    """They are doubled if there are fewer channels than this."""
    raised_for_nvls: bool
    """From 2.20 to 2.27 there are at least as many channels as NVLS has."""
    nvls_channels: dict[int, tuple[int, int]]
    """The channels of NVLS on one node and on several, by the least compute capability."""


def search_rules(version: Version) -> SearchRules:
    """Return the search rules of a version."""
    missing = {PathKind.C2C: (2, 26, 0), PathKind.P2C: (2, 27, 0)}
    return SearchRules(
        kinds=tuple(kind for kind in _KINDS if missing.get(kind, _BEFORE) <= version),
        own_kinds=version >= (2, 25, 0),
        far_nets_before_sm90=version >= (2, 29, 0),
        split_nvlink=version >= (2, 26, 0),
        crossed=1 if version < (2, 23, 0) else 2,
        crossing_loss=0.15 if version < (2, 20, 0) else 0.0,
        pairs_nets=version >= (2, 20, 0),
        neighbours_only=version >= (2, 21, 0),
        near_gpus=version >= (2, 27, 0),
        own_gpu_first=version >= (2, 27, 5),
        unbounded_single_gpu=version < (2, 21, 0),
        nets_on_one_node=version >= (2, 28, 7),
        nets_in_fallback=version >= (2, 29, 0),
        two_devices=version >= (2, 30, 0),
        shares_by_rest=rules_of(version).shares_by_rest,
        head_search=1 if version < (2, 22, 0) else 2 if version < (2, 23, 0) else 3,
        nvls_heads=32 if version >= (2, 25, 0) else None,
        collnet_heads=8 if version >= (2, 25, 0) else None,
        collnet_direct=version >= (2, 22, 0),
        most_channels=64 if version >= (2, 25, 0) else 32,
        doubled_to=90 if version < (2, 25, 0) else 999,
        doubled_below=17 if version < (2, 20, 0) else 16,
        raised_for_nvls=(2, 20, 0) <= version < (2, 28, 0),
        nvls_channels={0: (16, 16)}
        | ({} if version < (2, 25, 0) else {100: (32 if version < (2, 27, 0) else 24, 32)}),
    )


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

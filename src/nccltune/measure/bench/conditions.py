# SPDX-License-Identifier: Apache-2.0
"""The bench's name in samples, and the properties of the calls that it measures."""

from collections.abc import Mapping
from typing import NamedTuple

from nccltune.model.collective import Collective

TOOL = "nccltune-bench"
REPLAY_TOOL = "nccltune-bench replay"
DTYPE = "float"
REDOP = "sum"
_REDUCING = frozenset({Collective.ALLREDUCE, Collective.REDUCESCATTER, Collective.REDUCE})
_ROOTED = frozenset({Collective.BROADCAST, Collective.REDUCE})


class CallKind(NamedTuple):
    """How a program makes its calls, as far as NCCL's tuner may see it.

    `registered` is whether the buffers are registered. `group_calls` is the number of equal calls
    between `ncclGroupStart` and `ncclGroupEnd`. `graph` is whether a CUDA graph makes them.

    >>> CallKind(registered=True, group_calls=4).title
    'registered, 4 calls a group'
    """

    registered: bool = False
    group_calls: int = 1
    graph: bool = False

    @property
    def title(self) -> str:
        """Return a title such as `registered, 4 calls a group`; empty for plain calls."""
        parts = ["CUDA graph"] if self.graph else []
        parts += ["registered"] if self.registered else []
        parts += [f"{self.group_calls} calls a group"] if self.group_calls > 1 else []
        return ", ".join(parts)


PLAIN = CallKind()


def conditions(collective: Collective) -> tuple[str, str | None, int | None]:
    """Return the data type, reduction and root that a collective is measured with, if any."""
    return (DTYPE, REDOP if collective in _REDUCING else None, 0 if collective in _ROOTED else None)


_RESTRICTING = {
    "NCCL_ALGO": "only these algorithms can be chosen",
    "NCCL_PROTO": "only these protocols can be chosen",
    "NCCL_BUFFSIZE": "the buffers of the simple protocol",
    "NCCL_LL_BUFFSIZE": "the buffers of the ll protocol",
    "NCCL_LL128_BUFFSIZE": "the buffers of the ll128 protocol",
    "NCCL_MIN_NCHANNELS": "no fewer channels than this",
    "NCCL_MAX_NCHANNELS": "no more channels than this",
    "NCCL_MIN_CTAS": "no fewer channels than this",
    "NCCL_MAX_CTAS": "no more channels than this",
    "NCCL_NTHREADS": "threads a channel",
    "NCCL_TOPO_FILE": "the topology is read from a file",
    "NCCL_GRAPH_FILE": "rings and trees are read from a file",
    "NCCL_CROSS_NIC": "whether rings cross NICs",
    "NCCL_NET": "which network is used",
    "NCCL_NET_PLUGIN": "which network plugin is used",
    "NCCL_IB_HCA": "which InfiniBand or RoCE devices are used",
}
_OFF = {
    ("NCCL_NVLS_ENABLE", "0"): "NVLink SHARP is off",
    ("NCCL_P2P_DISABLE", "1"): "no direct transfers between GPUs",
    ("NCCL_P2P_LEVEL", "LOC"): "no direct transfers between GPUs",
    ("NCCL_SHM_DISABLE", "1"): "no transfers through shared memory",
    ("NCCL_IB_DISABLE", "1"): "InfiniBand and RoCE are off",
    ("NCCL_NET_GDR_LEVEL", "LOC"): "GPUDirect RDMA is off",
    ("NCCL_COLLNET_ENABLE", "0"): "SHARP in the network is off",
    ("NCCL_GRAPH_REGISTER", "0"): "buffers of CUDA graphs are not registered",
}


def restrictions(settings: Mapping[str, str]) -> list[str]:
    """Return a text for each setting that changes the results, such as `NCCL_P2P_DISABLE=1
    (...)`."""
    found = []
    for name, value in sorted(settings.items()):
        meaning = _RESTRICTING.get(name) or _OFF.get((name, value.strip().upper()))
        if meaning is not None:
            found.append(f"{name}={value} ({meaning})")
    return found

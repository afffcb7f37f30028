# SPDX-License-Identifier: Apache-2.0
"""NCCL settings that change the results of a measurement, each with its effect."""

from collections.abc import Mapping

FILTERING = ("NCCL_ALGO", "NCCL_PROTO")
"""If one of these variables is set, NCCL offers a tuner plugin only the algorithms or protocols
that the variable allows. This holds for all versions of NCCL."""
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
    """Return a text for each setting in `settings` that changes the results.

    For example: `NCCL_P2P_DISABLE=1 (no direct transfers between GPUs)`.
    """
    found = []
    for name, value in sorted(settings.items()):
        meaning = _RESTRICTING.get(name) or _OFF.get((name, value.strip().upper()))
        if meaning is not None:
            found.append(f"{name}={value} ({meaning})")
    return found

# SPDX-License-Identifier: Apache-2.0
"""The kinds of flows: which device moves the bytes, and whether the transfer is posted.

Flows of equal size load a PCIe link differently by kind. A write is posted: it needs no answer. A
read sends a request in one direction and gets its completion in the other.
"""

from enum import StrEnum


class FlowKind(StrEnum):
    """A kind of flow. The value is the name in files and JSON."""

    NVLINK = "nvlink"
    P2P_WRITE = "p2p_write"
    INTER_SOCKET = "inter_socket"
    GDR_READ = "gdr_read"
    GDR_WRITE = "gdr_write"
    GPU_TO_HOST = "gpu_to_host"
    HOST_TO_GPU = "host_to_gpu"
    HOST_TO_NIC = "host_to_nic"
    NIC_TO_HOST = "nic_to_host"
    NETWORK = "network"
    READ_REQUEST = "read_request"
    """Requests of reads, opposite to the direction of their data. It is not a flow of its own."""

    @property
    def prose(self) -> str:
        """Return a description for people, such as "NIC reads GPU"."""
        return _PROSE[self]

    @property
    def is_read(self) -> bool:
        """Return whether the flow is non-posted: its requests travel opposite to its data."""
        return self in _READS


_PROSE = {
    FlowKind.NVLINK: "GPU to GPU over NVLink",
    FlowKind.P2P_WRITE: "GPU writes GPU",
    FlowKind.INTER_SOCKET: "GPU writes GPU across sockets",
    FlowKind.GDR_READ: "NIC reads GPU",
    FlowKind.GDR_WRITE: "NIC writes GPU",
    FlowKind.GPU_TO_HOST: "GPU writes host memory",
    FlowKind.HOST_TO_GPU: "GPU reads host memory",
    FlowKind.HOST_TO_NIC: "NIC reads host memory",
    FlowKind.NIC_TO_HOST: "NIC writes host memory",
    FlowKind.NETWORK: "network",
    FlowKind.READ_REQUEST: "read requests",
}
_READS = frozenset({FlowKind.GDR_READ, FlowKind.HOST_TO_GPU, FlowKind.HOST_TO_NIC})

# SPDX-License-Identifier: Apache-2.0
"""The kinds of flows: who moves the bytes and whether it waits for an answer.

Two flows of the same size cost a PCIe link differently by kind: a write is posted and gone, a read
is a request one way and its completion the other.
"""

from enum import StrEnum


class FlowKind(StrEnum):
    """A kind; the value is what files and JSON say."""

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
    """Requests of reads, against their data: no flow of its own."""

    @property
    def prose(self) -> str:
        """In words."""
        return _PROSE[self]

    @property
    def is_read(self) -> bool:
        """Whether it is non-posted: its requests go against its data."""
        return self in _READS

    @property
    def is_bounce(self) -> bool:
        """Whether it goes to or from host memory."""
        return self in _BOUNCES


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
_BOUNCES = frozenset(
    {FlowKind.GPU_TO_HOST, FlowKind.HOST_TO_GPU, FlowKind.HOST_TO_NIC, FlowKind.NIC_TO_HOST}
)

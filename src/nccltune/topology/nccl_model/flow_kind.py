# SPDX-License-Identifier: Apache-2.0
"""The kinds of flows. A kind is which device moves the bytes, and whether it writes or reads.

Flows of equal size but different kind load a PCIe link differently. A write is posted: it needs no
answer. A read sends a request in one direction and gets its data in the other.
"""

from enum import StrEnum


class FlowKind(StrEnum):
    """A kind of flow. Its value is its name in files and JSON."""

    NVLINK = "nvlink"
    NVLS = "nvls"
    NVLS_BLACKWELL = "nvls_blackwell"
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
    """Read requests, which travel opposite to the data. They are part of a read."""

    @property
    def prose(self) -> str:
        """Return a description for people, such as "NIC reads GPU"."""
        return _PROSE[self]

    @property
    def is_read(self) -> bool:
        """Return whether the flow is a read: its requests travel opposite to its data."""
        return self in _READS


_PROSE = {
    FlowKind.NVLINK: "GPU to GPU over NVLink",
    FlowKind.NVLS: "GPU to NVSwitch, reduced there",
    FlowKind.NVLS_BLACKWELL: "GPU to NVSwitch, reduced there",
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

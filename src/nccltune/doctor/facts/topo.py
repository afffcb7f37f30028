# SPDX-License-Identifier: Apache-2.0
"""Facts of topology and graph files."""

from typing import Annotated

from nccltune.doctor.facts.declaration import FactRecord, fact, records


class TopologyDevice(FactRecord):
    """One record of the fact `topo.devices`."""

    bus_id: Annotated[str | None, "bus id"] = None
    kind: Annotated[str | None, "gpu, nic, bridge, nvswitch, other"] = None
    vendor: Annotated[str | None, "0x10de"] = None
    device: Annotated[str | None, "0x2335"] = None
    speed: Annotated[str | None, ("link_speed as it stands there, empty where it is empty")] = None
    width: Annotated[int | None, "link_width as it stands there"] = None
    numa: Annotated[int | None, "numaid of its CPU, -1 where unknown"] = None


TOPO_DEVICES = records(
    "topo.devices",
    TopologyDevice,
    meaning="PCI devices of the topology that NCCL sees or is given",
    read=(
        "NCCL_TOPO_DUMP_FILE; the file NCCL_TOPO_FILE names; "
        "/var/run/nvidia-topologyd/virtualTopology.xml"
    ),
)


class TopologyGpu(FactRecord):
    """One record of the fact `topo.gpus`."""

    index: Annotated[int | None, "dev"] = None
    bus_id: Annotated[str | None, "bus id"] = None
    sm: Annotated[int | None, "compute capability"] = None
    nvlinks: Annotated[int | None, "sum of its <nvlink> counts; absent for xGMI and bridges"] = None
    nvlink_to_itself: Annotated[bool | None, "a target is its own bus id"] = None


TOPO_GPUS = records(
    "topo.gpus",
    TopologyGpu,
    meaning="GPUs of that topology",
    read="as topo.devices; a dump, not a skeleton",
)
TOPO_GIVEN = fact(
    "topo.given",
    bool,
    meaning="NCCL is given a topology file (NCCL_TOPO_FILE, or nvidia-topologyd's)",
    read="settings; /var/run/nvidia-topologyd/virtualTopology.xml",
)
TOPO_MISSING_DEVICES = fact(
    "topo.missing_devices",
    list[str],
    meaning=(
        "bus ids of GPUs and NICs that the given topology file names and the node does not have; "
        "invented switches do not count"
    ),
    read="the given file against /sys/bus/pci/devices",
)


class ChannelEnd(FactRecord):
    """One record of the fact `graph.ends`."""

    channel: Annotated[int | None, "its number"] = None
    gpu: Annotated[int | None, "GPU"] = None
    nic: Annotated[str | None, "mlx5_0"] = None
    kind: Annotated[str | None, "path kind of the two by the hardware"] = None
    best_nic: Annotated[str | None, "nearest NIC of that GPU by the hardware"] = None
    best_kind: Annotated[str | None, "path kind to that one"] = None


GRAPH_ENDS = records(
    "graph.ends",
    ChannelEnd,
    meaning=(
        "GPU next to the NIC at each end of a channel of the graph dump, judged by the hardware"
    ),
    read="NCCL_GRAPH_DUMP_FILE against sysfs or nvidia-smi topo -m",
)
GRAPH_MISSING_DEVICES = fact(
    "graph.missing_devices",
    list[str],
    meaning="GPUs and NICs that the file NCCL_GRAPH_FILE names and the node does not have",
    read="NCCL_GRAPH_FILE against the GPUs",
)
GRAPH_GIVEN_GPUS = fact(
    "graph.given_gpus",
    int,
    meaning="GPUs in a channel of the file NCCL_GRAPH_FILE names",
    read="NCCL_GRAPH_FILE",
)

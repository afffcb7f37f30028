# SPDX-License-Identifier: Apache-2.0
"""Facts of NICs, RDMA ports, GIDs and measurements of the network."""

from typing import Annotated

from nccltune.doctor.facts.declaration import FactRecord, fact, records


class NodeNic(FactRecord):
    """One record of the fact `nics`."""

    name: Annotated[str | None, "eth0"] = None
    driver: Annotated[str | None, ("mlx5_core, gve, virtio_net, ena, bridge, bonding, veth")] = None
    driver_version: Annotated[str | None, "as ethtool -i prints it"] = None
    bus_id: Annotated[str | None, "bus id; absent for one without a device"] = None
    virtual: Annotated[bool | None, "no device behind it (lo, bridge, veth, tun)"] = None
    state: Annotated[str | None, "up, down, unknown, no-carrier"] = None
    speed_mbit_per_s: Annotated[int | None, "as the kernel reports it"] = None
    speed_max_mbit_per_s: Annotated[int | None, "fastest mode that ethtool lists"] = None
    mtu: Annotated[int | None, "bytes"] = None
    other_mtu: Annotated[
        int | None, "what the same text shows before, of another host or of an earlier time"
    ] = None
    numa: Annotated[int | None, "NUMA node, -1 where unknown"] = None
    rdma: Annotated[str | None, "its RDMA device"] = None
    networks: Annotated[list[str] | None, "its IPv4 networks, as ip addr shows them"] = None


NICS = records(
    "nics",
    NodeNic,
    meaning="network interfaces, virtual ones too",
    read="/sys/class/net; ip -d addr; ethtool",
)


class NicCounter(FactRecord):
    """One record of the fact `nic_counters`."""

    nic: Annotated[str | None, "interface"] = None
    counter: Annotated[str | None, "its name"] = None
    value: Annotated[int | None, "at the last reading"] = None
    earlier: Annotated[
        int | None, ("at the reading before it; absent where there is one reading")
    ] = None


NIC_COUNTERS = records(
    "nic_counters",
    NicCounter,
    meaning=(
        "counters of interfaces that show loss or congestion: drops, discards, pause, ECN, CNP"
    ),
    read="ethtool -S",
)


class RdmaPortState(FactRecord):
    """One record of the fact `hcas`."""

    name: Annotated[str | None, "mlx5_0"] = None
    port: Annotated[int | None, "port"] = None
    driver: Annotated[str | None, "mlx5_core, efa, irdma, bnxt_re"] = None
    bus_id: Annotated[str | None, "bus id"] = None
    numa: Annotated[int | None, "NUMA node, -1 where unknown"] = None
    firmware: Annotated[str | None, "version"] = None
    link_layer: Annotated[str | None, "InfiniBand, Ethernet, Unspecified (EFA)"] = None
    state: Annotated[str | None, "ACTIVE, INIT, DOWN, ARMED"] = None
    phys_state: Annotated[str | None, "LinkUp, Polling, Disabled"] = None
    before: Annotated[str | None, "another state of the same port in an earlier reading"] = None
    rate_gbit_per_s: Annotated[float | None, "now"] = None
    lid: Annotated[int | None, "LID of the port"] = None
    mtu: Annotated[int | None, "active MTU, bytes"] = None
    mtu_max: Annotated[int | None, "largest MTU, bytes"] = None
    sm_lid: Annotated[
        int | None, ("LID of the subnet manager, 0 for none; absent where there is no InfiniBand")
    ] = None


HCAS = records(
    "hcas",
    RdmaPortState,
    meaning="ports of RDMA devices (InfiniBand, RoCE, EFA); empty where there are none",
    read="/sys/class/infiniband; ibstat; ibv_devinfo; rdma link",
)


class RdmaErrorCount(FactRecord):
    """One record of the fact `hca_errors`."""

    hca: Annotated[str | None, "mlx5_0"] = None
    port: Annotated[int | None, "port"] = None
    counter: Annotated[
        str | None,
        ("symbol_error, link_downed, rnr_nak_retry_err, packet_seq_err, np_cnp_sent, ..."),
    ] = None
    value: Annotated[int | None, "at the last reading"] = None
    peer: Annotated[str | None, "what ibqueryerrors names at the other end"] = None


class RdmaCounterReading(RdmaErrorCount):
    """One record of the fact `hca_counters`."""

    earlier: Annotated[
        int | None, ("at the reading before it; absent where there is one reading")
    ] = None


HCA_COUNTERS = records(
    "hca_counters",
    RdmaCounterReading,
    meaning="error and congestion counters of RDMA ports",
    read="/sys/class/infiniband/*/ports/*/{counters,hw_counters}; perfquery; rdma statistic",
)


class SingleCounter(FactRecord):
    """One record of the fact `counters_once`."""

    device: Annotated[str | None, "eth0, mlx5_0 port 1, GPU 3"] = None
    counter: Annotated[str | None, "its name"] = None
    value: Annotated[int | None, "what it has counted since it began"] = None


COUNTERS_ONCE = records(
    "counters_once",
    SingleCounter,
    meaning=(
        "counters of errors or loss above 0 in files that people give, read once: when they "
        "counted is not known"
    ),
    read="ethtool -S; /sys/class/infiniband/*/ports/*/hw_counters; perfquery; nvidia-smi nvlink -e",
)


class LinkErrors(FactRecord):
    """One record of the fact `gpu.link_errors`."""

    gpu: Annotated[str | None, "GPU 3"] = None
    counter: Annotated[str | None, "link 5: CRC Errors"] = None
    value: Annotated[int | None, "at the last reading"] = None
    earlier: Annotated[
        int | None, ("at the reading before it; absent where there is one reading")
    ] = None


GPU_LINK_ERRORS = records(
    "gpu.link_errors",
    LinkErrors,
    meaning="counters of errors of NVLinks",
    read="nvidia-smi nvlink -e",
)


HCA_ERRORS = records(
    "hca_errors",
    RdmaErrorCount,
    meaning=(
        "error counters of RDMA ports that are not 0, of one reading: link and symbol errors, "
        "lost links, errors of received packets"
    ),
    read="/sys/class/infiniband/*/ports/*/counters; perfquery",
)


class GidEntry(FactRecord):
    """One record of the fact `gids`."""

    hca: Annotated[str | None, "mlx5_0"] = None
    port: Annotated[int | None, "port"] = None
    index: Annotated[int | None, "its number"] = None
    gid: Annotated[str | None, "eight groups of hex digits"] = None
    type: Annotated[str | None, "RoCE v1, RoCE v2"] = None
    link_local: Annotated[bool | None, "begins with fe80"] = None


GIDS = records(
    "gids",
    GidEntry,
    meaning="GIDs of Ethernet ports that are not empty",
    read="/sys/class/infiniband/*/ports/*/{gids,gid_attrs}; show_gids",
)
RDMA_DEVICES_SEEN = fact(
    "rdma.devices_seen",
    bool,
    meaning=(
        "PCI devices that can do RDMA (Mellanox, EFA, ...) are there, whether or not a driver "
        "took them"
    ),
    read="/sys/bus/pci/devices; lspci",
)
RDMA_VERBS = fact(
    "rdma.verbs",
    bool,
    meaning="libibverbs.so.1 can be opened",
    read="dlopen; ldconfig -p",
)
RDMA_DEV = fact(
    "rdma.dev",
    bool,
    meaning="/dev/infiniband holds uverbs devices",
    read="/dev/infiniband",
)


class RdmaTest(FactRecord):
    """One record of the fact `rdma.tests`."""

    hca: Annotated[str | None, "mlx5_0"] = None
    peer: Annotated[str | None, "host, or host:device"] = None
    gbit_per_s: Annotated[float | None, "average"] = None
    bytes: Annotated[int | None, "size of a message"] = None
    gpu: Annotated[bool | None, "from and to GPU memory"] = None
    mtu: Annotated[int | None, "MTU of the path, in bytes"] = None
    qps: Annotated[int | None, "queue pairs, of a test in one direction"] = None


RDMA_TESTS = records(
    "rdma.tests",
    RdmaTest,
    meaning="RDMA bandwidth measured between two ports",
    read="ib_write_bw, ib_read_bw; NCCL's diagnostics net bw",
)


class FabricLink(FactRecord):
    """One record of the fact `rdma.fabric_links`."""

    text: Annotated[str | None, "the line"] = None
    rate: Annotated[str | None, "width and speed of a lane: 4X 25.78125 Gbps"] = None
    could_be: Annotated[str | None, "what both ends could do, where that is more"] = None


RDMA_FABRIC_LINKS = records(
    "rdma.fabric_links",
    FabricLink,
    meaning="links of the InfiniBand fabric that are up",
    read="iblinkinfo",
)


class RailReach(FactRecord):
    """One record of the fact `rdma.rail_pings`."""

    from_rail: Annotated[int | None, "number of the NIC here"] = None
    to_rail: Annotated[int | None, "number of the NIC there"] = None
    reached: Annotated[bool | None, "it answered"] = None


RDMA_RAIL_PINGS = records(
    "rdma.rail_pings",
    RailReach,
    meaning="whether a NIC of this node reaches a NIC of another",
    read="ping -I, one a pair of NICs; ibping",
)

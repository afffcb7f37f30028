# SPDX-License-Identifier: Apache-2.0
"""Parse NCCL's messages of transports between ranks, NICs, NVLink SHARP and bootstrap.

Source: `transport/{p2p,shm,net,coll_net,net_ib,net_socket,nvls}.cc`, `graph/paths.cc`,
`graph/topo.cc` and `bootstrap.cc` of 2.18.3, 2.24.3, 2.27.3, 2.29.2 and 2.30.7, Meta's copy of
2.31, and the strings of libnccl.so of 2.32.3.

The text `SHM/direct/direct` became `SHM/direct` in NCCL 2.30. NCCL 2.27 added `/GDRDMA(PCI)`.
"""

import re

import msgspec

VIA = r"via (?P<via>NET/[^/]+/\S+|\S+)"
"""A regular expression for the transport of a connection, for use in other expressions. Names of
plugins may have blanks, as in `NET/AWS Libfabric/0`."""
_CONNECTION = re.compile(
    r"(?:Channel|Ring) (?P<channel>\d+)(?:/(?P<index>\d+))? : (?P<source>\d+)(?:\[\w+\])? -> "
    rf"(?P<target>\d+)(?:\[\w+\])? (?:\[(?P<way>send|receive)\] )?{VIA}"
)
_COLLNET = re.compile(
    r"CollNet (?P<channel>\d+)/\d+ : (?P<rank>\d+) \[(?P<way>send|receive)\] "
    r"via (?P<via>COLLNET/[^/]+/\S+)"
)
_NET = re.compile(r"(?P<name>[^/]+)/(?P<device>\d+)(?:\((?P<proxy>\d+)\))?(?P<rest>(?:/.*|\(.*)?)$")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using ?(?:\[0\])?(?P<interface>[^\s:]+):")
_NICS = re.compile(r"NET/(?P<network>\w+) ?: Using(?P<rest> .*)")
# Since 2.30 a device is printed with its rail and plane: mlx5_0:1:0:1/IB, mlx5_0:1::1/IB.
_IB_DEVICE = re.compile(r"\[\d+\](?P<name>[^\s:]+):(?P<port>\d+)(?::\d*)?(?::\d+)?/(?P<link>\w+)")
# NCCL 2.1 to 2.3 prints a line for each device.
_EARLY_NIC = re.compile(
    r"NET : Using interface (?P<socket>[^\s:]+):|NET/IB: \[\d+\] (?P<name>[^\s:]+):(?P<port>\d+)/"
    r"(?P<link>\w+)"
)
_SOCKET_DEVICE = re.compile(r"\[\d+\](?P<name>[^\s:]+):")
_NVLS = re.compile(r"NVLS multicast support is (?P<not>not )?available on dev (?P<device>\d+)")
_P2P_OFF = re.compile(
    r"P2P is disabled between (?P<what>NVLINK )?connected GPUs (?P<one>\d+) and (?P<other>\d+)"
)
_PXN_OFF = "PXN Disabled as plugin is v4"


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A connection from one rank to another in one channel.

    `transport` is P2P, SHM, NET or COLLNET. `how` is the text after it: `CUMEM`, `direct` or
    `IB/0/GDRDMA`. `way` is the end that logs the connection, `send` or `receive`; None if the line
    does not state it. NET and COLLNET also have `network`, `device` (the number of the NIC), `gdr`
    (GPUDirect RDMA), and `proxy`, the rank whose NIC is used (PXN). For COLLNET, `source` and
    `target` are the same rank.
    """

    channel: int
    source: int
    target: int
    transport: str
    how: str
    way: str | None = None
    network: str | None = None
    device: int | None = None
    gdr: bool | None = None
    proxy: int | None = None


class Nic(msgspec.Struct, frozen=True, kw_only=True):
    """A NIC that NCCL uses. `link` is IB or RoCE; None for a socket interface."""

    network: str
    name: str
    port: int | None = None
    link: str | None = None


class Nics(msgspec.Struct, frozen=True, kw_only=True):
    """The NICs of one host that a network uses.

    `relaxed_ordering` is whether the line of network IB has `[RO]`; None for other networks.
    `one_of_several` is True for versions that print one NIC a line.
    """

    network: str
    nics: tuple[Nic, ...]
    relaxed_ordering: bool | None = None
    one_of_several: bool = False


class Bootstrap(msgspec.Struct, frozen=True):
    """The interface over which ranks connect at the start.

    The address of the interface is not kept.
    """

    interface: str


class Multicast(msgspec.Struct, frozen=True):
    """Whether NVLink SHARP is available. NCCL prints no such line if NCCL_NVLS_ENABLE is 0."""

    available: bool


class PxnOff(msgspec.Struct, frozen=True):
    """PXN is off because the network plugin is too old."""


class P2pOff(msgspec.Struct, frozen=True):
    """NVML reports that two connected GPUs have no P2P access to each other."""

    one: int
    other: int
    nvlink: bool


def read_connection(message: str) -> Connection | None:
    """Parse `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM`; return None for another line."""
    if (match := _CONNECTION.match(message)) is not None:
        ends = int(match["source"]), int(match["target"])
    elif (match := _COLLNET.match(message)) is not None:
        ends = int(match["rank"]), int(match["rank"])
    else:
        return None
    # Before NCCL 2.12 the line is `via direct shared memory`.
    via = "SHM/direct" if match["via"] == "direct" else match["via"]
    transport, _, how = via.partition("/")
    plain = Connection(
        channel=int(match["channel"]),
        source=ends[0],
        target=ends[1],
        transport=transport,
        how=how,
        way=match["way"],
    )
    if transport not in ("NET", "COLLNET") or (net := _NET.match(how)) is None:
        return plain
    return msgspec.structs.replace(
        plain,
        network=net["name"],
        device=int(net["device"]),
        gdr="GDRDMA" in net["rest"],
        proxy=int(net["proxy"]) if net["proxy"] else None,
    )


def read_nics(message: str) -> Nics | None:
    """Parse `NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:..`; return None for another line."""
    match = _NICS.match(message)
    if match is None:
        return _early_nic(message)
    listed, network = match["rest"].partition(";")[0], match["network"]
    ports = tuple(
        Nic(network=network, name=item["name"], port=int(item["port"]), link=item["link"])
        for item in _IB_DEVICE.finditer(listed)
    )
    # A network without IB ports lists its interfaces with their addresses. Examples are Socket and
    # plugins such as FastSocket. Only the names of these interfaces are kept.
    return Nics(
        network=network,
        nics=ports
        or tuple(
            Nic(network=network, name=item["name"]) for item in _SOCKET_DEVICE.finditer(listed)
        ),
        relaxed_ordering="[RO]" in match["rest"] if network == "IB" else None,
    )


def _early_nic(message: str) -> Nics | None:
    match = _EARLY_NIC.match(message)
    if match is None:
        return None
    if match["socket"] is not None:
        nic = Nic(network="Socket", name=match["socket"])
    else:
        nic = Nic(network="IB", name=match["name"], port=int(match["port"]), link=match["link"])
    return Nics(network=nic.network, nics=(nic,), one_of_several=True)


def read_bootstrap(message: str) -> Bootstrap | None:
    """Parse `Bootstrap: Using eth0:192.0.2.2<0>`; return None for another line."""
    match = _BOOTSTRAP.match(message)
    return Bootstrap(match["interface"]) if match is not None else None


def read_multicast(message: str) -> Multicast | None:
    """Parse `NVLS multicast support is [not ]available on dev 0`; return None for another line."""
    match = _NVLS.match(message)
    return Multicast(match["not"] is None) if match is not None else None


def read_p2p_off(message: str) -> P2pOff | None:
    """Parse `P2P is disabled between connected GPUs 1 and 0`; return None for another line."""
    match = _P2P_OFF.match(message)
    if match is None:
        return None
    return P2pOff(int(match["one"]), int(match["other"]), match["what"] is not None)


def read_pxn_off(message: str) -> PxnOff | None:
    """Parse `PXN Disabled as plugin is v4`; return None for another line."""
    return PxnOff() if message.startswith(_PXN_OFF) else None

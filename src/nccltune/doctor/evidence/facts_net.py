# SPDX-License-Identifier: Apache-2.0
"""Facts of network interfaces, RDMA ports, their GIDs, counters and measurements."""

import re
from operator import itemgetter
from typing import Any

import msgspec

from nccltune.doctor.evidence.parsers.ethtool import parse_ethtool
from nccltune.doctor.evidence.parsers.gids import (
    gid_entry,
    is_gid,
    parse_devinfo_gids,
    parse_show_gids,
)
from nccltune.doctor.evidence.parsers.interfaces import parse_interfaces
from nccltune.doctor.evidence.parsers.nvlink import parse_nvlink_errors
from nccltune.doctor.evidence.parsers.perftest import parse_perftest
from nccltune.doctor.evidence.parsers.pings import parse_rail_pings
from nccltune.doctor.evidence.parsers.rdma_counters import (
    parse_counter_files,
    parse_far_ends,
    parse_rdma_counters,
)
from nccltune.doctor.evidence.parsers.rdma_ports import (
    parse_fabric_links,
    parse_rdma_ports,
    parse_verbs_devices,
    phys_name,
    state_name,
)
from nccltune.doctor.evidence.parsers.text import bus_id, real, whole
from nccltune.doctor.evidence.parsers.tree import Tree
from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.network import (
    COUNTERS_ONCE,
    GIDS,
    GPU_LINK_ERRORS,
    HCA_COUNTERS,
    HCA_ERRORS,
    HCAS,
    NIC_COUNTERS,
    NICS,
    RDMA_DEV,
    RDMA_DEVICES_SEEN,
    RDMA_FABRIC_LINKS,
    RDMA_RAIL_PINGS,
    RDMA_TESTS,
    RDMA_VERBS,
    GidEntry,
    LinkErrors,
    NicCounter,
    NodeNic,
    RdmaCounterReading,
    RdmaErrorCount,
    RdmaPortState,
    SingleCounter,
)

_NET, _RDMA = "/sys/class/net/", "/sys/class/infiniband/"
_KERNEL_MTUS = (4096, 2048, 1024, 512, 256)
_ROCE_HEADERS = 96
"""Bytes of an Ethernet frame's payload that RoCE may need for its headers (rdma/ib_addr.h)."""
_VIRTUAL = re.compile(
    r"lo$|docker|veth|br[-\d]|v(?:ir|m)br|cni|flannel|cali|tun|tap|dummy|kube|vxlan|ovs|macv|ipvl"
    r"|vnet\d|wg\d|lx[cd]|podman|tailscale|zt"
)
_VERBS = re.compile(r"libibverbs\.so\.1\b")


def add_net(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `nics`, `nic_counters`, `hcas`, `hca_counters`, `hca_errors`, `counters_once`, `gids`,
    `gpu.link_errors` and `rdma.*` (except `rdma.devices_seen`)."""
    _nics(evidence, facts)
    _hcas(evidence, facts)
    _counters(evidence, facts)
    _verbs(evidence, facts)
    _measured(evidence, facts)
    links = evidence.parsed("iblinkinfo", parse_fabric_links)
    if links is not None and links[0]:
        facts.add(RDMA_FABRIC_LINKS, links[0], links[1].place())


def _nics(evidence: NodeEvidence, facts: Facts) -> None:
    item = evidence.tree("net")
    ethtool = evidence.parsed("ethtool", parse_ethtool)
    told = ethtool[0].interfaces if ethtool is not None else {}
    if item is None:
        _shown_nics(evidence, facts, told)
        return
    tree, raw = item
    names = sorted(
        path[len(_NET) :]
        for path in (*tree.links, *tree.values)
        if path.startswith(_NET) and "/" not in path[len(_NET) :]
    )
    found = []
    for name in dict.fromkeys(names):
        values = {
            key: tree.get(f"{_NET}{name}/{key}") for key in ("operstate", "speed", "mtu", "uevent")
        }
        target = tree.links.get(_NET + name)
        tool = told.get(name)
        virtual = "/virtual/" in target.text if target is not None else None
        driver = tree.link(f"{_NET}{name}/device/driver") or (tool.driver if tool else None)
        speed = whole(values["speed"])
        rdma = next(
            (
                p.rpartition("/")[2]
                for p in tree.values
                if p.startswith(f"{_NET}{name}/device/infin")
            ),
            None,
        )
        found.append(
            NodeNic(
                name=name,
                driver=driver or _device_type(values["uevent"]),
                driver_version=tool.driver_version if tool else None,
                bus_id=_last_bus_id(target.text if target is not None else "")
                or (tool.bus_id if tool else None),
                virtual=virtual,
                state=values["operstate"],
                # The kernel reports -1 if it does not know the speed.
                speed_mbit_per_s=speed if speed is not None and speed > 0 else None,
                mtu=whole(values["mtu"]),
                numa=whole(tree.get(f"{_NET}{name}/device/numa_node")),
                rdma=rdma,
            )
        )
    facts.add(NICS, found, evidence.where(raw, "/sys/class/net"))


def _shown_nics(evidence: NodeEvidence, facts: Facts, told: dict[str, NodeNic]) -> None:
    """Add the interfaces that `ip addr`, `ip link` or ethtool show, for a node without sysfs."""
    shown = evidence.parsed("addresses", parse_interfaces)
    nics = {name: one for name, one in told.items() if one.state or one.speed_mbit_per_s}
    for one in shown[0] if shown is not None else []:
        nics[one.name or ""] = nics.get(one.name or "", one).filled(one)
    found = [
        msgspec.structs.replace(one, virtual=True if _VIRTUAL.match(name) else None)
        for name, one in nics.items()
    ]
    raw = shown[1] if shown is not None else evidence.get("ethtool")
    if found and raw is not None:
        facts.add(NICS, found, raw.place())


def _device_type(uevent: str | None) -> str | None:
    """Return the kernel's type of an interface, such as bridge, bonding, vlan; else None."""
    match = re.search(r"^DEVTYPE=(\w{1,32})$", uevent or "", re.M)
    return {"bond": "bonding"}.get(match[1], match[1]) if match else None


def _last_bus_id(target: str) -> str | None:
    places = [found for part in target.split("/") if (found := bus_id(part)) is not None]
    return places[-1] if places else None


def _hcas(evidence: NodeEvidence, facts: Facts) -> None:
    told, told_source = _told_ports(evidence)
    item = evidence.tree("rdma")
    if item is None:
        if told:
            facts.add(HCAS, list(told.values()), told_source)
        _shown_gids(evidence, facts)
        return
    tree, raw = item
    source = evidence.where(raw, "/sys/class/infiniband")
    values = tree.children(_RDMA)
    linked = {path[len(_RDMA) :].partition("/")[0] for path in tree.links if path.startswith(_RDMA)}
    names = sorted({*values, *linked})
    nics = {nic.rdma: nic for nic in facts.value(NICS) or [] if nic.rdma}
    records, gids = [], []
    for name in names:
        parts = [rest.split("/", 2) for rest in values.get(name, {})]
        ports = sorted({part[1] for part in parts if part[0] == "ports" and len(part) > 1})
        for port in filter(str.isdecimal, ports):
            record = _record(tree, name, int(port), nics.get(name))
            extra = told.get((name, int(port)))
            if extra is not None:
                # Prefer the MTU of a tool. `_record` only estimates it from the interface's MTU.
                mtu = record.mtu if extra.mtu is None else extra.mtu
                record = msgspec.structs.replace(record.filled(extra), mtu=mtu)
            records.append(record)
            if record.link_layer == "Ethernet":
                gids += _gids(values[name], name, int(port))
    facts.add(HCAS, records, source)
    if not _shown_gids(evidence, facts):
        facts.add(GIDS, gids, source)


def _told_ports(
    evidence: NodeEvidence,
) -> tuple[dict[tuple[str | None, int | None], RdmaPortState], str]:
    """Return the RDMA ports that tools list, by (device, port number), and their source.

    The source is the output of the first tool that lists a port.
    """
    found: dict[tuple[str | None, int | None], RdmaPortState] = {}
    source = ""
    for name in ("ibv_devinfo", "ibstat", "ibstatus", "rdma-link"):
        item = evidence.parsed(name, parse_rdma_ports)
        if item is None or not item[0].ports:
            continue
        source = source or item[1].place(item[0].line)
        for port in item[0].ports:
            key = (port.name, port.port)
            known = found.get(key, port)
            if known.lid == port.lid and port.lid not in (None, 0, 0xFFFF):
                # The last reading counts. Ports of other nodes have other LIDs.
                if known.state != port.state and known.phys_state and port.phys_state:
                    port.before = f"{known.state} {known.phys_state}"
                found[key] = port.filled(known)
            else:
                found[key] = known.filled(port)
    return found, source


def _record(tree: Tree, name: str, port: int, nic: NodeNic | None) -> RdmaPortState:
    base, at = _RDMA + name, f"{_RDMA}{name}/ports/{port}/"
    layer = tree.get(at + "link_layer")
    state, phys = tree.get(at + "state"), tree.get(at + "phys_state")
    target = tree.links.get(base)
    mtu = None
    if layer == "Ethernet" and nic is not None and nic.mtu:
        room = nic.mtu - _ROCE_HEADERS
        mtu = next((size for size in _KERNEL_MTUS if size <= room), None)
    return RdmaPortState(
        name=name,
        port=port,
        driver=tree.link(base + "/device/driver"),
        bus_id=bus_id(tree.link(base + "/device") or "")
        or _last_bus_id(target.text if target else ""),
        numa=whole(tree.get(base + "/device/numa_node")),
        firmware=tree.get(base + "/fw_ver"),
        link_layer=layer,
        state=state_name(state) if state else None,
        phys_state=phys_name(phys) if phys else None,
        rate_gbit_per_s=real(tree.get(at + "rate")),
        mtu=mtu,
        sm_lid=whole(tree.get(at + "sm_lid")) if layer == "InfiniBand" else None,
    )


def _gids(values: dict[str, str], name: str, port: int) -> list[GidEntry]:
    at = f"ports/{port}/"
    found = []
    for rest, text in values.items():
        if not rest.startswith(at + "gids/"):
            continue
        index, gid = whole(rest.rpartition("/")[2]), text.lower()
        if index is not None and is_gid(gid):
            kind = values.get(f"{at}gid_attrs/types/{index}", "")
            named = {"IB/RoCE v1": "RoCE v1"}.get(kind, kind) or None
            found.append((index, gid_entry(name, port, index, gid, named)))
    return [entry for _, entry in sorted(found, key=itemgetter(0))]


def _shown_gids(evidence: NodeEvidence, facts: Facts) -> bool:
    # ibv_devinfo prints GIDs only with -v.
    devinfo = evidence.parsed("ibv_devinfo", parse_devinfo_gids)
    shown = evidence.parsed("show_gids", parse_show_gids)
    shown = shown or (devinfo if devinfo and devinfo[0].records else None)
    if shown is None:
        return False
    facts.add(GIDS, shown[0].records, shown[1].place())
    return True


def _counters(evidence: NodeEvidence, facts: Facts) -> None:
    readings: list[dict[tuple[str, int, str], int]] = []
    ends: dict[tuple[str, int], str] = {}
    source = ""
    once: list[SingleCounter] = []
    for name in ("counters", "rdma-statistic", "perfquery"):
        for raw in evidence.all(name):
            parser = parse_counter_files if name == "counters" else parse_rdma_counters
            readings += evidence.parse(raw, parser).readings
            ends |= evidence.parse(raw, parse_far_ends)
            source = source or evidence.where(raw, "/sys/class/infiniband")
    if readings:
        ports = _pairs(readings)
        found = [
            RdmaCounterReading(hca=hca, port=port, counter=counter, value=value, earlier=before)
            for (hca, port, counter), value, before in ports
        ]
        if any(readings):
            facts.add(HCA_COUNTERS, found, source)
        single = [(key, value) for key, value, before in ports if before is None]
        facts.add(
            HCA_ERRORS,
            [
                RdmaErrorCount(
                    hca=hca, port=at, counter=name, value=value, peer=ends.get((hca, at))
                )
                for (hca, at, name), value in single
                if name in _ERRORS
            ],
            source,
        )
        once += [
            SingleCounter(device=f"{hca} port {port}", counter=counter, value=value)
            for (hca, port, counter), value in single
            if counter not in _ERRORS and _LOSS.search(counter)
        ]
    nics = evidence.all("ethtool")
    pairs = _pairs([one for raw in nics for one in evidence.parse(raw, parse_ethtool).readings])
    if pairs:
        seen = [
            NicCounter(nic=nic, counter=counter, value=value, earlier=before)
            for (nic, counter), value, before in pairs
        ]
        facts.add(NIC_COUNTERS, seen, nics[-1].place())
    links = evidence.all("nvlink-errors")
    errors = _pairs([one for raw in links for one in evidence.parse(raw, parse_nvlink_errors)])
    if links:
        counted = [
            LinkErrors(gpu=gpu, counter=counter, value=value, earlier=before)
            for (gpu, counter), value, before in errors
        ]
        facts.add(GPU_LINK_ERRORS, counted, links[-1].place())
    once += [
        SingleCounter(device=device, counter=counter, value=value)
        for (device, counter), value, before in (*pairs, *errors)
        if before is None and counter[8:] != "_bytes"
    ]
    # A collector reads each counter of a node, and many are above 0 on every healthy node.
    if once and not evidence.live and not evidence.has_index:
        once.sort(key=lambda one: -(one.value or 0))
        facts.add(COUNTERS_ONCE, once, "the files with counters")


def _pairs(readings: list[dict[Any, int]]) -> list[tuple[Any, int, int | None]]:
    """Return each counter with its last value and the value before that (None if read once).

    Counters for which neither value is positive are omitted, because most counters are 0.
    """
    last: dict[Any, int] = {}
    before: dict[Any, int] = {}
    for reading in readings:
        for key, value in reading.items():
            if key in last:
                before[key] = last[key]
            last[key] = value
    return [
        (key, value, before.get(key))
        for key, value in sorted(last.items())
        if value or before.get(key)
    ]


_LOSS = re.compile(r"err|timeout|discard|drop|out_of_buffer|out_of_sequence|nak|adp_retrans")
# Counters for which ibqueryerrors has a limit, under their sysfs names and perfquery names.
_ERRORS = frozenset(
    {
        *("symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors"),
        *("local_link_integrity_errors", "excessive_buffer_overrun_errors"),
        *("SymbolErrorCounter", "LinkDownedCounter", "LinkErrorRecoveryCounter", "PortRcvErrors"),
        *("LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors"),
    }
)


def _verbs(evidence: NodeEvidence, facts: Facts) -> None:
    libraries, cached = evidence.tree("libraries"), evidence.text("ldconfig")
    found = [path for path in (libraries[0].links if libraries else ()) if _VERBS.search(path)]
    if found or (cached is not None and _VERBS.search(cached[0])):
        facts.add(RDMA_VERBS, True, found[0] if found else "ldconfig -p")
    elif libraries is not None and cached is not None:
        facts.add(RDMA_VERBS, False, "ldconfig -p and the library path")
    devices = evidence.tree("devices")
    listed = evidence.parsed("dev-infiniband", parse_verbs_devices)
    if listed is not None and listed[0]:
        facts.add(RDMA_DEVICES_SEEN, True, listed[1].place())
        facts.add(RDMA_DEV, "uverbs" in listed[0], listed[1].place())
    if devices is not None:
        paths = [*devices[0].values, *devices[0].links]
        has = any(path.startswith("/dev/infiniband/uverbs") for path in paths)
        facts.add(RDMA_DEV, has, evidence.where(devices[1], "/dev/infiniband"))


def _measured(evidence: NodeEvidence, facts: Facts) -> None:
    """Add measurements of other tools: RDMA bandwidth, and pings between the NICs of a node."""
    raws = evidence.all("perftest")
    tests = [run for raw in raws for run in evidence.parse(raw, parse_perftest).records]
    if tests:
        facts.add(RDMA_TESTS, tests, raws[0].place())
    pings = evidence.parsed("rail-pings", parse_rail_pings)
    if pings is not None:
        facts.add(RDMA_RAIL_PINGS, pings[0].records, pings[1].place())

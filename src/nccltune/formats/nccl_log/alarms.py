# SPDX-License-Identifier: Apache-2.0
"""Find signs of a broken platform in an NCCL log, for which NCCL itself prints no error.

Each alarm states a fact of the log and what to check. No alarm guesses a cause. Source: NCCL 2.18
to 2.30 (`graph/search.cc`, `graph/paths.cc`, `transport/nvls.cc`, `init.cc`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from nccltune.formats.nccl_log.graph import PATTERNS
from nccltune.formats.nccl_log.run import RunLog
from nccltune.model.scale import count

_SLOWEST_PCI = 1.0
"""Bandwidth of PCI Gen1 x4 in GB/s. A slower link belongs to a virtual or hidden switch, not to a
card."""


class AlarmKind(StrEnum):
    """The kind of an alarm."""

    FALLBACK = "fallback"
    TWO_CHANNELS = "two_channels"
    NO_NVLS = "no_nvls"
    MISSING_NVLINK = "missing_nvlink"
    P2P_OFF = "p2p_off"
    SLOW_LINK = "slow_link"
    NO_GDR = "no_gdr"
    PXN_OFF = "pxn_off"


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """One sign of a broken platform.

    - `sentence`: the fact that the log shows.
    - `look_at`: what to check first.
    - `chosen`: a setting of the user causes this state, so it is no failure.
    - `line`: the number of the log line (from 1), if one line shows the fact.
    """

    kind: AlarmKind
    sentence: str
    look_at: str
    chosen: bool = False
    line: int | None = None


def alarms(log: RunLog) -> list[Alarm]:
    """Return all alarms of a log. Missing lines, for example those of GRAPH, cause no alarm."""
    return [
        *_fallback(log),
        *_two_channels(log),
        *_no_nvls(log),
        *_missing_nvlink(log),
        *_p2p_off(log),
        *_slow_links(log),
        *_no_gdr(log),
        *_pxn_off(log),
    ]


def _fallback(log: RunLog) -> Iterator[Alarm]:
    # NCCL up to 2.26 logs a fallback as a warning, later versions as a GRAPH line. In all versions
    # the logged graph shows the fallback.
    patterns = {item.pattern: item.line for item in log.fallbacks}
    for graph in log.graphs:
        if graph.fell_back:
            patterns.setdefault(graph.pattern, 0)
    if not patterns:
        return
    names = " and ".join(PATTERNS.get(pattern, f"pattern {pattern}") for pattern in patterns)
    yield Alarm(
        kind=AlarmKind.FALLBACK,
        sentence=f"NCCL found no path for its {names} and fell back to one channel in the order of "
        "ranks, booked at 0.1 GB/s over SYS",
        look_at="compare the NVLinks of all GPUs (nvidia-smi nvlink -s) and the topology "
        "(NCCL_TOPO_DUMP_FILE): a GPU without links, a stale NCCL_TOPO_FILE or NCCL_GRAPH_FILE",
        line=next((line for line in patterns.values() if line), None),
    )


def _two_channels(log: RunLog) -> Iterator[Alarm]:
    if not any(counts.coll <= 2 for counts in log.channels) or not _nvlink_is_all(log):
        return
    named = next((name for name in ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS") if _set(log, name)), "")
    because = f"; {named} is set" if named else ""
    yield Alarm(
        kind=AlarmKind.TWO_CHANNELS,
        sentence="a communicator within one node has 2 coll channels though its GPUs are connected "
        f"by NVLink, where NCCL takes 8 to 32{because}",
        look_at="the graphs of the log (NCCL_DEBUG_SUBSYS=INIT,GRAPH): their bandwidth shows which "
        "link held the search back",
        chosen=bool(named),
    )


def _nvlink_is_all(log: RunLog) -> bool:
    """Return whether there is one node, and all its GPUs reach each other by NVLink."""
    pairs = [
        path
        for path in log.paths.values()
        if path.source.startswith("GPU/")
        and path.target.startswith("GPU/")
        and path.source != path.target
    ]
    return log.nodes == 1 and bool(pairs) and all(path.kind in ("NVL", "NVB") for path in pairs)


def _no_nvls(log: RunLog) -> Iterator[Alarm]:
    if not log.channels or any(counts.nvls != 0 for counts in log.channels):
        return
    switch = any(link.target.startswith("NVS/") for s in log.systems.values() for link in s.links)
    if log.multicast is None and not (switch and _set(log, "NCCL_NVLS_ENABLE")):
        # NCCL prints no line about multicast if NVLS is switched off. A log without INIT lines has
        # no such line either. So the missing line alone is no sign of a broken platform.
        return
    if log.multicast is None:
        yield Alarm(
            kind=AlarmKind.NO_NVLS,
            sentence="no NVLink SHARP channels: NCCL_NVLS_ENABLE is set by the environment",
            look_at="leave it unset, and measure again",
            chosen=True,
        )
    elif log.multicast:
        yield Alarm(
            kind=AlarmKind.NO_NVLS,
            sentence="NVLink SHARP is available, and yet there are 0 nvls channels",
            look_at="NVLinks of all GPUs of the node (nvidia-smi nvlink -s), ranks that share a "
            "GPU, and whether all GPUs of the node take part",
        )
    elif switch:
        yield Alarm(
            kind=AlarmKind.NO_NVLS,
            sentence="there is an NVSwitch, and the driver reports NVLink SHARP as not available",
            look_at="of Hopper and later GPUs: the fabric manager (systemctl status "
            "nvidia-fabricmanager), in a VM whether multicast is passed through; earlier GPUs "
            "have none",
        )


def _missing_nvlink(log: RunLog) -> Iterator[Alarm]:
    for system in log.systems.values():
        gpus = {link.target for link in system.links if link.target.startswith("GPU/")}
        total: dict[str, float] = defaultdict(float)
        for link in system.of_kind("NVL"):
            if link.source in gpus:
                total[link.source] += link.gb_per_s
        if not total:
            continue
        usual, _ = Counter(total.values()).most_common(1)[0]
        for gpu in sorted(gpus):
            if total[gpu] < 0.99 * usual:
                has = f"{total[gpu]:.3g} GB/s of NVLink" if total[gpu] else "no NVLink"
                yield Alarm(
                    kind=AlarmKind.MISSING_NVLINK,
                    sentence=f"{gpu} has {has}, others of its node have {usual:.4g} GB/s",
                    look_at="nvidia-smi nvlink -s on that GPU: drain the node and reset the GPU; "
                    "do not cover it up with a topology file",
                )


def _p2p_off(log: RunLog) -> Iterator[Alarm]:
    if not log.p2p_off:
        return
    nvlink = any(item.nvlink for item in log.p2p_off)
    pairs = count(len(log.p2p_off), "pair")
    if nvlink:
        look_at = (
            "nvidia-smi topo -p2p n and nvidia-smi nvlink -s: reset or replace; not "
            "NCCL_IGNORE_DISABLED_P2P"
        )
    else:
        look_at = "nvidia-smi topo -p2p p, then ACS and IOMMU settings; in a VM its topology"
    yield Alarm(
        kind=AlarmKind.P2P_OFF,
        sentence=f"the driver refuses direct access at {pairs} of "
        f"{'NVLink' if nvlink else 'PCI'}-connected GPUs, so that data goes through host memory",
        look_at=look_at,
    )


def _slow_links(log: RunLog) -> Iterator[Alarm]:
    slow = {
        (link.source, link.target): link.gb_per_s
        for system in log.systems.values()
        for link in system.of_kind("PCI")
        if link.gb_per_s < _SLOWEST_PCI
    }
    if slow:
        (source, target), rate = min(slow.items(), key=lambda item: item[1])
        yield Alarm(
            kind=AlarmKind.SLOW_LINK,
            sentence=f"NCCL books {rate:.2g} GB/s for {source} - {target}"
            + (f" and {count(len(slow) - 1, 'link')} more" if len(slow) > 1 else "")
            + ": a virtual switch that reports Gen1 x1, or a link that did not train",
            look_at="the topology (NCCL_TOPO_DUMP_FILE); in a VM give it a topology file",
        )


def _no_gdr(log: RunLog) -> Iterator[Alarm]:
    if log.gdr_receive is not False or not any(nic.link for nic in log.nics):
        return
    chosen = _set(log, "NCCL_NET_GDR_LEVEL")
    yield Alarm(
        kind=AlarmKind.NO_GDR,
        sentence="NICs of InfiniBand or RoCE are used without GPUDirect RDMA: what arrives goes "
        "through host memory" + ("; NCCL_NET_GDR_LEVEL is set" if chosen else ""),
        look_at="nvidia-peermem or dma-buf (lsmod, 'GPU Direct RDMA Disabled for HCA' in the log), "
        "and the distance of NIC and GPU",
        chosen=chosen,
    )


def _pxn_off(log: RunLog) -> Iterator[Alarm]:
    if log.pxn_off:
        yield Alarm(
            kind=AlarmKind.PXN_OFF,
            sentence="PXN is off: the network plugin has interface v4",
            look_at="a newer network plugin (aws-ofi-nccl, nccl-rdma-sharp-plugins)",
        )


def _set(log: RunLog, name: str) -> bool:
    return name in log.named or (log.plain is not None and name in log.plain.settings)

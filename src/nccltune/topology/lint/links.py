# SPDX-License-Identifier: Apache-2.0
"""Rules for PCIe links for which NCCL assumes a wrong bandwidth, and for NVLinks."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from nccltune.model.finding import Severity
from nccltune.model.topology import Dialect, Pci, Topology
from nccltune.topology.hardware import bandwidth
from nccltune.topology.hardware.classify import kind_of_target
from nccltune.topology.hardware.links import NodeKind
from nccltune.topology.lint.issue import Issue, PlacedDevice, gpus, issue_about, placed

_VIRTUAL = {("0x104c", "0x8232"), ("0x104c", "0x8233"), ("0x1b36", "0x000c"), ("0x1b36", "0xc")}
"""Ids of QEMU's switches and ports in a VM, whose link values are not real: TI XIO3130, its own."""
_WITH_LINK_SPEEDS = (Dialect.NCCL, Dialect.RCCL)


def check_links(topology: Topology) -> Iterator[Issue]:
    """Report wrong link values, virtual switches, idle GPUs, and links slower than their twins'."""
    every = list(placed(topology))
    if topology.dialect in _WITH_LINK_SPEEDS:
        yield from _speeds(topology, every)
        yield from _widths(topology, every)
    slow = [one.device for one in every if is_virtual(one.device) and _gb_per_s(one.device) < 3]
    yield from issue_about(
        topology, Severity.ERROR, "virtual-switch", slow,
        f"{{}}: a virtual machine's switch at {bandwidth.pci(slow[0]).how if slow else ''}; NCCL "
        f"books all that crosses it at {_gb_per_s(slow[0]) if slow else 0:.2f} GB/s",
        "give NCCL a file of the real tree: nccltune topo convert, then NCCL_TOPO_FILE",
    )  # fmt: skip
    yield from _idle(topology, every)
    yield from _unlike_twins(topology, every)


def _gb_per_s(device: Pci) -> float:
    return bandwidth.pci(device).gb_per_s


def is_virtual(device: Pci) -> bool:
    """Return whether QEMU presents this bridge to a VM. Its link values are not real."""
    return (device.vendor, device.device) in _VIRTUAL


def _is_invented(bus_id: str) -> bool:
    """Return whether a bus id is made up, as in files for VMs. sysfs has no such device."""
    return bus_id.lower().startswith("ffff:ff")


def _speeds(topology: Topology, every: list[PlacedDevice]) -> Iterator[Issue]:
    by_text: dict[str, list[Pci]] = defaultdict(list)
    missing = []
    for one in every:
        speed = one.device.speed
        if speed is None:
            if _is_invented(one.device.bus_id):
                missing.append(one.device)
        elif bandwidth.pci_generation(speed) is None:
            by_text[speed].append(one.device)
    for text, devices in by_text.items():
        number = text.strip().removesuffix("GT/s").strip()
        is_bare = text.strip().endswith("GT/s") and bandwidth.pci_generation(f"{number} GT/s PCIe")
        hint = (
            f'write link_speed="{number} GT/s PCIe": NCCL compares the text, "PCIe" included'
            if is_bare
            else 'write what the link has, such as link_speed="16.0 GT/s PCIe" (Gen4)'
        )
        yield from issue_about(
            topology, Severity.WARNING, "link-speed-unknown", devices,
            f"{{}}: NCCL does not know link_speed '{text}' and assumes Gen3", hint,
        )  # fmt: skip
    yield from issue_about(
        topology, Severity.WARNING, "link-speed-missing", missing,
        "{}: no link_speed, and sysfs has no such device: NCCL assumes Gen3",
        'add link_speed="16.0 GT/s PCIe" (or what it has) and link_width="16"',
    )  # fmt: skip


def _widths(topology: Topology, every: list[PlacedDevice]) -> Iterator[Issue]:
    devices = [one.device for one in every]
    yield from issue_about(
        topology, Severity.WARNING, "link-width-zero",
        (device for device in devices if device.width == 0),
        "{}: link_width 0, which NCCL reads as 16",
        "write the width: in a virtual machine sysfs does not know it",
    )  # fmt: skip
    odd = [one for one in devices if one.width and one.width not in bandwidth.WIDTHS]
    negative = [one for one in odd if one.width is not None and one.width < 0]
    yield from issue_about(
        topology, Severity.ERROR, "link-width-odd", (one for one in odd if one not in negative),
        "{}: link_width is no width of PCIe, and NCCL multiplies by it",
        "write 1, 2, 4, 8, 12, 16 or 32 (255 is the kernel's value for unknown)",
    )  # fmt: skip
    yield from issue_about(
        topology, Severity.ERROR, "link-width-negative", negative,
        "{}: a negative link_width gives the link a negative bandwidth, so that NCCL finds no ring "
        "over it",
        "write 1, 2, 4, 8, 12, 16 or 32 (-1 stands for unknown in some files)",
    )  # fmt: skip
    missing = [device for device in devices if device.width is None and device.speed is not None]
    yield from issue_about(
        topology, Severity.WARNING, "link-width-missing",
        (device for device in missing if _is_invented(device.bus_id)),
        "{}: no link_width, and sysfs has no such device: NCCL assumes 16",
        'add link_width="16", or what it has',
    )  # fmt: skip
    yield from issue_about(
        topology, Severity.NOTE, "link-width-asked",
        (device for device in missing if not _is_invented(device.bus_id)),
        "{}: no link_width; NCCL reads it from sysfs, nccltune assumes 16",
        'add link_width="16", or what it has',
    )  # fmt: skip


def _idle(topology: Topology, every: list[PlacedDevice]) -> Iterator[Issue]:
    """Report GPUs at PCIe generation 1 or 2.

    NVML reports the current one, lower while idle, and NCCL since 2.30.7 computes with it. With
    C2C it reaches its CPU over that.
    """
    found = []
    for one in every:
        generation = bandwidth.pci_generation(one.device.speed)
        gpu = one.device.gpu
        if gpu is not None and not gpu.c2c and generation is not None and generation < 3:
            found.append(one.device)
    speeds = {device.speed for device in found if device.speed}
    yield from issue_about(
        topology, Severity.WARNING, "idle-gpu", found,
        f"{{}}: a GPU at {' and '.join(sorted(speeds))}, as idle GPUs report; NCCL 2.30.7 and "
        "later uses that speed",
        "dump again with persistence mode on (nvidia-smi -pm 1) or under load, or write link_speed",
    )  # fmt: skip


def _unlike_twins(topology: Topology, every: list[PlacedDevice]) -> Iterator[Issue]:
    """Report devices with a slower link than their model's others: a bad slot or loose card."""
    twins: dict[tuple[str | None, ...], list[Pci]] = defaultdict(list)
    for one in every:
        device = one.device
        is_leaf = device.gpu is not None or device.nets
        if is_leaf and device.vendor and device.speed is not None:
            twins[device.vendor, device.device, device.subsystem_device].append(device)
    for devices in twins.values():
        best = max(_gb_per_s(device) for device in devices)
        worse = [device for device in devices if _gb_per_s(device) < best]
        idle = [device for device in worse if (bandwidth.pci_generation(device.speed) or 3) < 3]
        yield from issue_about(
            topology, Severity.WARNING, "slower-than-twin",
            (device for device in worse if device not in idle),
            f"{{}}: {bandwidth.pci(worse[0]).how if worse else ''}, and the same model elsewhere "
            f"in this machine has {best:g} GB/s",
            "reseat the card or check the slot: compare LnkSta with LnkCap in lspci -vv",
        )  # fmt: skip


def check_nvlinks(topology: Topology) -> Iterator[Issue]:
    """Report NVLinks that are missing, that lead nowhere, or that only one end lists."""
    found = gpus(topology)
    by_bus = {one.device.bus_id.lower(): gpu for one, gpu in found}
    yield from issue_about(
        topology, Severity.ERROR, "nvlink-self",
        (
            one.device for one, gpu in found
            if any(link.target.lower() == one.device.bus_id.lower() for link in gpu.nvlinks)
        ),
        "{}: an NVLink whose target is the GPU itself; NCCL does not use it",
        "write the other GPU's bus id, or leave the <nvlink> out: NCCL then asks NVML",
    )  # fmt: skip
    counts = {
        one.device.bus_id: sum(
            link.count for link in gpu.nvlinks
            if link.target.lower() != one.device.bus_id.lower()
        )
        for one, gpu in found
    }  # fmt: skip
    yield from _uneven(topology, counts)
    one_way = []
    unknown = []
    for one, gpu in found:
        me = one.device.bus_id.lower()
        for link in gpu.nvlinks:
            target = link.target.lower()
            peer = by_bus.get(target)
            if kind_of_target(link, peer is not None) is not NodeKind.GPU or target == me:
                continue
            if peer is None:
                unknown.append(one.device)
            elif not any(back.target.lower() == me for back in peer.nvlinks):
                one_way.append(one.device)
    yield from issue_about(
        topology, Severity.ERROR, "nvlink-one-way", dict.fromkeys(one_way),
        "{}: an NVLink that the GPU at its other end does not list; NCCL stops with an error",
        "dump the topology again with all GPUs of the node in one job; check nvidia-smi nvlink -s",
    )  # fmt: skip
    yield from issue_about(
        topology, Severity.NOTE, "nvlink-elsewhere", dict.fromkeys(unknown),
        "{}: an NVLink to a GPU that the file does not name; NCCL does not use it",
        "a dump has the GPUs of one job only; dump from a job on all GPUs of the node",
    )  # fmt: skip


def _uneven(topology: Topology, counts: dict[str, int]) -> Iterator[Issue]:
    if len(set(counts.values())) < 2:
        return
    devices = {one.device.bus_id: one.device for one, _ in gpus(topology)}
    usual = Counter(counts.values()).most_common()
    # If several counts are equally frequent, take the highest as the healthy one.
    most = max(count for count, times in usual if times == usual[0][1])
    none = [bus_id for bus_id, count in counts.items() if not count]
    fewer = [bus_id for bus_id, count in counts.items() if 0 < count < most]
    yield from issue_about(
        topology, Severity.ERROR, "nvlink-missing", (devices[bus_id] for bus_id in none),
        f"{{}}: no NVLink, where its peers have {most or max(counts.values())}; NCCL falls back to "
        "a few slow channels without a warning",
        "take the GPU out of service and reset it (nvidia-smi nvlink -s); do not hide the fault "
        "with a topology file",
    )  # fmt: skip
    for count in sorted({counts[bus_id] for bus_id in fewer}):
        yield from issue_about(
            topology, Severity.ERROR, "nvlink-fewer",
            (devices[bus_id] for bus_id in fewer if counts[bus_id] == count),
            f"{{}}: {count} NVLinks, where its peers have {most}",
            "inactive links: nvidia-smi nvlink -s, Xid 74 in dmesg; reset the GPU or replace it",
        )  # fmt: skip

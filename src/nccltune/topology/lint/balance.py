# SPDX-License-Identifier: Apache-2.0
"""Rules for badly placed GPUs and NICs: no NIC near, shared uplinks, slots that are too narrow."""

from collections import Counter
from collections.abc import Iterator

from nccltune.model.finding import Severity
from nccltune.model.scale import count
from nccltune.model.topology import Dialect, Pci, Topology
from nccltune.topology.hardware import bandwidth
from nccltune.topology.hardware.classify import PciKind, broadcom_generation, model_of, pci_kind
from nccltune.topology.hardware.fill_in import filled, leaves_nvlink_out, nvlink_is_unknown
from nccltune.topology.lint.issue import Issue, PlacedDevice, gpus, issue_about, placed, shortened
from nccltune.topology.lint.links import is_virtual

_WIRE = 60 / 80 / (8 * 128 / 130 / 8)
"""What NCCL assumes of a PCIe link by its raw bandwidth: 0.75 GB/s a Gen3 lane of 0.985."""
_HEADROOM = 0.95
_BELOW_PORT, _SAME_CPU, _OTHER_CPU = range(3)


def check_balance(topology: Topology) -> Iterator[Issue]:
    """Apply all rules about the placement of GPUs and NICs."""
    every = list(placed(topology))
    named = bool(gpus(topology))
    kinds = {id(one.device): pci_kind(one.device, named) for one in every}
    held = [one for one in every if kinds[id(one.device)] is PciKind.GPU]
    nics = [one for one in every if kinds[id(one.device)] is PciKind.NIC]
    whole = filled(topology)
    joined = any(gpu.nvlinks for _, gpu in gpus(whole)) or leaves_nvlink_out(whole)
    if topology.dialect is not Dialect.SYSFS:
        # sysfs lists every NIC, so the nearest one may be a management NIC that NCCL does not use.
        # So this rule is skipped for sysfs.
        yield from _far(topology, held, nics, joined=joined)
    yield from _shared(topology, every, held, joined=joined)
    yield from _slots(topology, nics)
    yield from _uneven(topology, held)
    yield from _nvlink(topology, held)


def _far(
    topology: Topology, held: list[PlacedDevice], nics: list[PlacedDevice], *, joined: bool
) -> Iterator[Issue]:
    """Report GPUs farther from a NIC than their peers, but with C2C or linked switches."""
    if not nics or any(one.device.switch_links for one in placed(topology)):
        return
    if any(gpu.c2c for _, gpu in gpus(topology)):
        return
    near = {id(one.device): min(_distance(one, nic) for nic in nics) for one in held}
    best = min(near.values(), default=_BELOW_PORT)
    across = [one for one in held if near[id(one.device)] == _OTHER_CPU > best]
    cpus = shortened(dict.fromkeys(str(one.cpu.numa) for one in across))
    where = shortened(dict.fromkeys(nic.device.bus_id for nic in nics))
    through_peer = "; GPUs with NVLink to one beside the NIC send through it (PXN)"
    yield from issue_about(
        topology, Severity.WARNING, "nic-other-cpu", (one.device for one in across),
        f"{{}}: GPUs of CPU {cpus}, which has no NIC; their path to {where} crosses the link "
        f"between CPUs, without GPUDirect RDMA{through_peer if joined else ''}",
        "move a NIC to each CPU that has GPUs, or run on the GPUs beside the NIC",
    )  # fmt: skip
    through = [one for one in held if near[id(one.device)] == _SAME_CPU > best]
    yield from issue_about(
        topology, Severity.NOTE if joined else Severity.WARNING, "nic-other-switch",
        (one.device for one in through),
        "{}: GPUs that reach a NIC through the CPU only, where their peers have one on their "
        f"switch{through_peer if joined else ''}",
        "move a NIC below each switch that has GPUs",
    )  # fmt: skip


def _distance(one: PlacedDevice, other: PlacedDevice) -> int:
    if one.cpu is not other.cpu:
        return _OTHER_CPU
    ports = [(each.above[0] if each.above else each.device) for each in (one, other)]
    return _BELOW_PORT if ports[0] is ports[1] else _SAME_CPU


def _shared(
    topology: Topology, every: list[PlacedDevice], held: list[PlacedDevice], *, joined: bool
) -> Iterator[Issue]:
    """Report uplinks that are narrower than the devices below them need.

    A single device may be faster; or all GPUs below together, if others are elsewhere without
    NVLink.
    """
    narrow: list[tuple[Pci, str]] = []
    crowded: list[tuple[Pci, str]] = []
    for one in every:
        up = bandwidth.pci(one.device)
        below = [gpu for gpu in held if any(device is one.device for device in gpu.above)]
        links = [bandwidth.pci(child) for child in one.device.children]
        known = [link.gb_per_s for link in links if link.sure]
        if one.device.speed is None or not up.sure or not known:
            continue
        if is_virtual(one.device) or _is_lower_level(one):
            continue
        total = sum(bandwidth.pci(gpu.device).gb_per_s for gpu in below)
        what = f"{count(len(below), 'GPU')} with {total:g} GB/s in all share" if below else "has"
        if up.gb_per_s < max(known):
            words = f"{what} an uplink of {up.gb_per_s:g} GB/s ({up.how}), less than one device's"
            narrow.append((one.device, f"{words} {max(known):g}"))
        elif len(below) > 1 and total > up.gb_per_s and len(below) < len(held) and not joined:
            crowded.append((one.device, f"{what} an uplink of {up.gb_per_s:g} GB/s ({up.how})"))
    for device, words in narrow:
        yield from issue_about(
            topology, Severity.WARNING, "narrow-switch", [device], f"{{}}: {words}",
            "check the slot (lspci -vv: LnkSta against LnkCap); in a virtual machine write the "
            "tree of the host",
        )  # fmt: skip
    # Equal switches have equal messages, so report them as one issue.
    for words in dict.fromkeys(words for _, words in crowded):
        yield from issue_about(
            topology, Severity.NOTE, "shared-uplink",
            (device for device, text in crowded if text == words), f"{{}}: {words}",
            "traffic to GPUs elsewhere shares it; GPUs of one switch reach each other without it",
        )  # fmt: skip


def _is_lower_level(one: PlacedDevice) -> bool:
    """Return whether a bridge is a Broadcom switch's lower level, whose uplink is in the chip."""
    generation = broadcom_generation(one.above[-1], 0) if one.above else 0
    return generation > 0 and broadcom_generation(one.device, 1) == generation


def _slots(topology: Topology, nics: list[PlacedDevice]) -> Iterator[Issue]:
    for one in nics:
        link = bandwidth.pci(one.device)
        # 10 Gbit/s is also what NCCL writes for a port whose speed the kernel does not know.
        speeds = [net.mbit_per_s or 0 for net in one.device.nets]
        ports = [speed / 8000.0 for speed in speeds if speed > 0 and speed != bandwidth.NO_SPEED]
        wire = link.gb_per_s / _WIRE * _HEADROOM
        if not link.sure or sum(ports) <= wire:
            continue
        alone = max(ports) > wire
        names = shortened(net.name or "?" for net in one.device.nets)
        yield from issue_about(
            topology, Severity.WARNING if alone else Severity.NOTE, "nic-slot", [one.device],
            f"{{}}: {names} with {sum(ports) * 8:g} Gbit/s in a slot of {link.how}, which carries "
            f"{link.gb_per_s / _WIRE * 8:.0f}",
            "move the NIC to a slot of its own generation and width (lspci -vv: LnkSta, LnkCap)",
        )  # fmt: skip


def _uneven(topology: Topology, held: list[PlacedDevice]) -> Iterator[Issue]:
    numbers = Counter(str(one.cpu.numa) for one in held)
    if len(set(numbers.values())) > 1:
        words = ", ".join(f"CPU {numa} has {number}" for numa, number in numbers.items())
        yield Issue(
            severity=Severity.NOTE, id="gpus-uneven", source=topology.source,
            message=f"GPUs are not spread evenly: {words}",
            hint="right for a job on some of the GPUs; else look for one that is missing",
        )  # fmt: skip


def _nvlink(topology: Topology, held: list[PlacedDevice]) -> Iterator[Issue]:
    """Report a file that leaves NVLink to detection, or GPUs that must have it in no file."""
    if len(held) < 2:
        return
    if nvlink_is_unknown(filled(topology)):
        yield Issue(
            severity=Severity.NOTE, id="nvlink-detected", source=topology.source,
            message="leaves NVLink to detection: the file lists none, and NCCL asks the driver",
            hint="for bandwidths that include NVLink, use a dump of NCCL: NCCL_TOPO_DUMP_FILE",
        )  # fmt: skip
        return
    if any(gpu.nvlinks for _, gpu in gpus(topology)):
        return
    models = [(one.device, model_of(one.device)) for one in held]
    without = [
        (device, model) for device, model in models if model and model.nvlink in ("switch", "cube")
    ]
    yield from issue_about(
        topology, Severity.WARNING, "nvlink-absent", (device for device, _ in without),
        f"{{}}: {without[0][1].name if without else ''} without any NVLink: NCCL uses PCIe alone",
        "check nvidia-smi nvlink -s and the fabric manager, then dump again",
    )  # fmt: skip

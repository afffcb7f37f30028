# SPDX-License-Identifier: Apache-2.0
"""Rules for PCI trees that no real machine has.

Such trees are flat, have duplicates, lack device classes, or have NICs out of reach.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from nccltune.model.finding import Severity
from nccltune.model.topology import Cpu, Dialect, Topology
from nccltune.topology.files.vm_file import lacks_kind
from nccltune.topology.hardware import bandwidth
from nccltune.topology.lint.issue import (
    Issue,
    PlacedDevice,
    gpus,
    issue_about,
    nets,
    placed,
    shortened,
)

_VERSIONS = {Dialect.NCCL: "1", Dialect.RCCL: "2", Dialect.FLAGCX: "1"}


def check_shape(topology: Topology) -> Iterator[Issue]:
    """Apply all rules about the whole PCI tree."""
    yield from _version(topology)
    yield from _classes(topology)
    yield from _doubles(topology)
    yield from _flat(topology)
    yield from _cpus(topology)
    yield from _nics(topology)
    is_matrix = topology.dialect is Dialect.SMI
    for what in topology.unread:
        yield _issue(
            topology, Severity.NOTE, "unread", f"not read: {what}",
            "NCCL_TOPO_DUMP_FILE has more" if is_matrix else "NCCL ignores it too", None,
        )  # fmt: skip


def _issue(
    topology: Topology, severity: Severity, identity: str, message: str, hint: str,
    line: int | None,
) -> Issue:  # fmt: skip
    return Issue(
        severity=severity, id=identity, source=topology.source, message=message, hint=hint,
        line=line,
    )  # fmt: skip


def _version(topology: Topology) -> Iterator[Issue]:
    wanted = _VERSIONS.get(topology.dialect)
    if wanted is not None and topology.version != wanted:
        found = f"version {topology.version}" if topology.version is not None else "no version"
        yield _issue(
            topology, Severity.ERROR, "version",
            f"<system> has {found}; {topology.dialect.value.upper()} reads version {wanted} only",
            f'write <system version="{wanted}">', 1,
        )  # fmt: skip


def _classes(topology: Topology) -> Iterator[Issue]:
    """Report files without a GPU, and devices without a class, which NCCL asks sysfs for."""
    bare = [one.device for one in placed(topology) if one.device.class_code is None]
    yield from issue_about(
        topology, Severity.WARNING, "class-missing", bare,
        "{}: no class; NCCL reads it from sysfs, so the bus ids must be those of the machine",
        'add class="0x060400" (switch), "0x030200" (GPU) or "0x020700" (NIC) and the vendor',
    )  # fmt: skip
    if topology.dialect in (Dialect.SMI, Dialect.SYSFS):
        return
    has_gpu = any(
        one.device.gpu is not None or (one.device.class_code or "").startswith("0x03")
        for one in placed(topology)
    )
    if not has_gpu:
        yield _issue(
            topology, Severity.NOTE, "no-gpu", "names no GPU; NCCL adds those that the job uses",
            "for a picture of all, dump it from a job: NCCL_TOPO_DUMP_FILE", None,
        )  # fmt: skip


def _doubles(topology: Topology) -> Iterator[Issue]:
    every = list(placed(topology))
    for host in dict.fromkeys(cpu.host_hash for cpu in topology.cpus):
        here = [one for one in every if one.cpu.host_hash == host]
        times = Counter(one.device.bus_id.lower() for one in here)
        seen: set[str] = set()
        again = []
        for one in here:
            bus_id = one.device.bus_id.lower()
            if times[bus_id] > 1 and bus_id in seen:
                again.append(one.device)
            seen.add(bus_id)
        yield from issue_about(
            topology, Severity.ERROR, "bus-id-twice", again,
            "{}: a bus id that is in the file twice",
            "bus ids are unique: remove the second device or change its bus id",
        )  # fmt: skip
        numbers: list[tuple[str, Callable[[object], int | None]]] = [
            ("dev", lambda gpu: getattr(gpu, "index", None)),
            ("rank", lambda gpu: getattr(gpu, "rank", None)),
        ]
        for word, number in numbers:
            held = [(one, number(one.device.gpu)) for one in here if one.device.gpu is not None]
            used = Counter(value for _, value in held if value is not None)
            yield from issue_about(
                topology, Severity.ERROR, f"{word}-twice",
                (one.device for one, value in held if value is not None and used[value] > 1),
                f"{{}}: GPUs with the same {word}", f"number them: {word} 0, 1, 2 ...",
            )  # fmt: skip


def _flat(topology: Topology) -> Iterator[Issue]:
    """Report GPUs directly below a CPU, where NCCL uses neither P2P nor GPUDirect RDMA.

    Not so if the file has a switch, for GPUs with C2C, nor, without a NIC, for one or with NVLink.
    """
    every = list(placed(topology))
    if topology.dialect is Dialect.SYSFS or any(one.device.children for one in every):
        return
    held = gpus(topology)
    has_nic = any(one.device.nets for one in every)
    if len(held) < 2 and not has_nic:
        return
    linked = any(link.target != one.device.bus_id for one, gpu in held for link in gpu.nvlinks)
    if (linked and not has_nic) or not held or any(gpu.c2c for _, gpu in held):
        return
    yield from issue_about(
        topology, Severity.WARNING, "flat", (one.device for one, _ in held),
        "{}: GPUs are directly below a CPU and the file has no switch; between them and to "
        "NICs NCCL uses neither P2P nor GPUDirect RDMA",
        "right for a machine without switches; for a virtual machine write the tree of its host: "
        "nccltune topo convert",
    )  # fmt: skip


def _cpus(topology: Topology) -> Iterator[Issue]:
    for cpu in topology.cpus:
        if cpu.numa is not None and cpu.numa < 0 and topology.dialect is not Dialect.SYSFS:
            yield _issue(
                topology, Severity.NOTE, "numa-unknown",
                "numaid -1: the kernel does not report the CPU of the devices, as in virtual "
                "machines",
                "if the host has two sockets, write them: nccltune topo convert", cpu.line,
            )  # fmt: skip
    bare = [cpu for cpu in topology.cpus if lacks_kind(cpu)]
    if bare and len(topology.cpus) > 1 and topology.dialect is not Dialect.SMI:
        yield _issue(
            topology, Severity.NOTE, "cpu-kind-missing",
            f"CPU {shortened(str(cpu.numa) for cpu in bare)}: without its kind, which NCCL adds "
            "only to CPUs above a rank's own GPUs; ranks that differ in it cannot start if a NIC "
            "is no PCI device",
            'write arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207" with the values '
            "of the machine; nccltune topo convert adds them",
            bare[0].line,
        )  # fmt: skip
    several = len({cpu.host_hash for cpu in topology.cpus}) < len(topology.cpus)
    odd = [cpu for cpu in topology.cpus if several and _is_unknown(cpu)]
    if odd:
        kinds = shortened(dict.fromkeys(f"{cpu.arch} {cpu.vendor or ''}".strip() for cpu in odd))
        yield _issue(
            topology, Severity.WARNING, "cpu-unknown",
            f"NCCL does not know the CPU '{kinds}' and assumes {bandwidth.local():g} GB/s between "
            "two of them",
            "known vendors are GenuineIntel, AuthenticAMD, CentaurHauls and '  Shanghai  '",
            odd[0].line,
        )  # fmt: skip


def _is_unknown(cpu: Cpu) -> bool:
    return cpu.arch is not None and bandwidth.between_cpus(cpu, None).gb_per_s == bandwidth.local()


def _nics(topology: Topology) -> Iterator[Issue]:
    slow = [net for net in nets(topology) if net.mbit_per_s is not None and net.mbit_per_s <= 0]
    if slow:
        yield _issue(
            topology, Severity.WARNING, "net-speed-unknown",
            f"{shortened(net.name or '?' for net in slow)}: speed {slow[0].mbit_per_s}, which NCCL "
            "reads as 10 Gbit/s",
            'write the speed in Mbit/s: speed="100000"', None,
        )  # fmt: skip
    outside = [net.name or "?" for cpu in topology.cpus for net in cpu.nets]
    if outside:
        yield _issue(
            topology, Severity.NOTE, "net-outside-pci",
            f"{shortened(outside)}: no PCI device (virtio, for one), so no GPUDirect RDMA",
            "if the machine has RDMA NICs, check why NCCL did not use them: NCCL_DEBUG=INFO", None,
        )  # fmt: skip
    if topology.dialect is Dialect.SYSFS:
        return
    if any(gpu.c2c for _, gpu in gpus(topology)) or not gpus(topology):
        return
    every = list(placed(topology))
    if any(one.device.switch_links for one in every):
        return
    # Devices below the same port of a CPU reach each other without passing through the CPU.
    near = {_port(one) for one in every if one.device.gpu is not None}
    far = [one.device for one in every if one.device.nets and _port(one) not in near]
    yield from issue_about(
        topology, Severity.WARNING, "nic-behind-cpu",
        far,
        "{}: a NIC that every GPU reaches through a CPU only, without GPUDirect RDMA",
        "for management it is fine; one that NCCL uses belongs in a slot below a GPU's switch: "
        "through the CPU about 16 of 24 GB/s are left",
    )  # fmt: skip


def _port(one: PlacedDevice) -> int:
    """Return an id of the CPU port above a device."""
    return id(one.above[0] if one.above else one.device)

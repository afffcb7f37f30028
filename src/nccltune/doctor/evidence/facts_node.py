# SPDX-License-Identifier: Apache-2.0
"""Facts of the node, its processor, kernel, limits and shared memory."""

import re
from collections.abc import Callable
from typing import TypeVar

from nccltune.doctor.evidence.parsers.kernel import (
    NO_PEERMEM,
    parse_cpus,
    parse_df,
    parse_huge_pages,
    parse_modules,
    parse_numa_balancing,
    parse_root_type,
    parse_status,
    shows_peer_modules,
)
from nccltune.doctor.evidence.parsers.kernel_log import parse_kernel_log
from nccltune.doctor.evidence.parsers.limits import parse_inspect, parse_limits
from nccltune.doctor.evidence.parsers.listed import parse_listed, remove_ipc
from nccltune.doctor.evidence.parsers.services import parse_services
from nccltune.doctor.evidence.parsers.text import whole
from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.doctor.facts import FactName, Facts
from nccltune.doctor.facts.gpu import GPU_PEER_MEMORY
from nccltune.doctor.facts.node import (
    CONTAINER_NUMA_CALLS,
    CPU_FAMILY,
    CPU_GOVERNORS,
    CPU_IDLE_STATES,
    CPU_NODES_WITHOUT_MEMORY,
    CPU_NUMA_NODES,
    CPU_SOCKETS,
    CPU_VENDOR,
    KERNEL_CMDLINE,
    KERNEL_HUGE_PAGES,
    KERNEL_LOG,
    KERNEL_NUMA_BALANCING,
    KERNEL_RELEASE,
    LIMITS_CPUS,
    LIMITS_MEMLOCK_KIB,
    LIMITS_OPEN_FILES,
    LIMITS_STACK_KIB,
    LOGIND_REMOVE_IPC,
    NODE_BOOT_ID,
    NODE_CONTAINER,
    NODE_MODULES,
    NODE_PEERMEM,
    NODE_SERVICES,
    NODE_SHM_DEVICE,
    NODE_VCPUS,
    NODE_VIRTUAL,
    SHM_BYTES,
    SHM_FREE_BYTES,
    SHM_NCCL_FILES,
    IdleState,
)
from nccltune.formats.topology.cpu_list import cpus_of

T = TypeVar("T")
_SHM = "/dev/shm"  # noqa: S108  # read, never written
_PARENT_ONLY = re.compile(
    r"\A\s*(?P<asked>[^\n]{0,80}\bdf [^\n]{0,80}/dev/shm/?[ \t\r]*\n)?"
    r"Filesystem [^\n]*\n[^\n]* /(?:dev)?\s*\Z"
)
_NCCL_FILE = re.compile(r"^-[rwxst-]{9}[^\n]{1,120} (?:/dev/shm/)?nccl-\w+\s*$", re.M)
_SHM_FILE = re.compile(r"df[-_](?:dev[-_])?shm\b[^/]*\Z")
_CPU = "/sys/devices/system/cpu/"
_CONTAINER = re.compile(r"docker|kubepods|containerd|crio|libpod|lxc|garden", re.IGNORECASE)


def add_node(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `cpu.*`, `limits.*`, `shm.*`, `logind.*`, `container.*` and `gpu.peer_memory`.

    Also add the facts `node.*` and `kernel.*` that no other module of this package adds.
    """
    _system(evidence, facts)
    _container(evidence, facts)
    _virtual(evidence, facts)
    _process(evidence, facts)
    _cpus(evidence, facts)
    _kernel(evidence, facts)
    _limits(evidence, facts)
    _shared_memory(evidence, facts)
    _services(evidence, facts)


def _system(evidence: NodeEvidence, facts: Facts) -> None:
    printed = evidence.parsed("sysctl", parse_numa_balancing)
    if printed is not None and printed[0] is not None:
        facts.add(KERNEL_NUMA_BALANCING, printed[0], printed[1].place())
    system = evidence.tree("system")
    if system is None:
        return
    tree, raw = system

    def put(fact: FactName[T], path: str, read: Callable[[str], T | None]) -> None:
        found = tree.values.get(path)
        value = read(found.text) if found is not None else None
        if found is not None and value is not None and value != "":
            facts.add(fact, value, evidence.where(raw, path, found.line))

    put(NODE_BOOT_ID, "/proc/sys/kernel/random/boot_id", str.strip)
    put(KERNEL_RELEASE, "/proc/sys/kernel/osrelease", str.strip)
    put(KERNEL_NUMA_BALANCING, "/proc/sys/kernel/numa_balancing", whole)
    pages = [
        number
        for path, value in tree.values.items()
        if path.startswith("/sys/kernel/mm/hugepages/")
        and (number := whole(value.text)) is not None
    ]
    meminfo = evidence.parsed("meminfo", parse_huge_pages)
    if pages:
        facts.add(KERNEL_HUGE_PAGES, sum(pages), evidence.where(raw, "/sys/kernel/mm/hugepages"))
    elif meminfo is not None and meminfo[0] is not None:
        facts.add(KERNEL_HUGE_PAGES, meminfo[0], meminfo[1].source)
    # The folder memory_peers exists only if a peer memory client was registered at some time. If
    # other files of /sys were read but none of this folder, the list of clients is empty.
    if any(path.startswith("/sys/") for path in tree.values):
        found = [path.split("/")[5] for path in tree.values if "/memory_peers/" in path]
        facts.add(
            GPU_PEER_MEMORY,
            sorted(set(found)),
            evidence.where(raw, "/sys/kernel/mm/memory_peers"),
        )


def _container(evidence: NodeEvidence, facts: Facts) -> None:
    """Add whether the files were read in a container.

    Signs of a container are files of its runtime, the cgroup, and the type of the root file system.
    """
    devices = evidence.tree("devices")
    marks = [
        path
        for path in ("/.dockerenv", "/run/.containerenv")
        if devices is not None and path in devices[0].values
    ]
    cgroup = evidence.text("cgroup")
    if marks and devices is not None:
        facts.add(NODE_CONTAINER, True, evidence.where(devices[1], marks[0]))
    elif cgroup is not None:
        root = evidence.parsed("mounts", parse_root_type)
        # A container with cgroup v2 and its own cgroup namespace sees only `0::/`. Then the type of
        # the root file system decides.
        layered = root is not None and root[0] in ("overlay", "fuse.fuse-overlayfs", "aufs")
        named = _CONTAINER.search(cgroup[0]) is not None
        place = root[1].place() if root is not None and layered and not named else None
        facts.add(NODE_CONTAINER, named or layered, place or cgroup[1].place())


def _virtual(evidence: NodeEvidence, facts: Facts) -> None:
    """Add whether the node is a virtual machine, from systemd or the CPU's hypervisor flag."""
    cpus = evidence.parsed("cpuinfo", parse_cpus)
    virt = evidence.text("virt")
    detected = virt[0].strip() if virt is not None else ""
    # If a hypervisor hides its CPU flag, systemd still detects the hypervisor by its name. So a
    # hypervisor that systemd found is used before the CPU flag.
    if virt is not None and detected and detected != "none":
        facts.add(NODE_VIRTUAL, True, virt[1].place())
    elif cpus is not None and cpus[0].virtual is not None:
        facts.add(NODE_VIRTUAL, cpus[0].virtual, cpus[1].place())
    elif virt is not None and detected == "none":
        facts.add(NODE_VIRTUAL, False, virt[1].place())


def _process(evidence: NodeEvidence, facts: Facts) -> None:
    """Add the CPUs of this process, and whether this process may call set_mempolicy.

    Call this after NODE_CONTAINER was added.
    """
    status = evidence.parsed("status", parse_status)
    if status is None:
        return
    state, raw = status
    if state.cpus is not None:
        facts.add(LIMITS_CPUS, state.cpus, raw.place())
    # The default seccomp profiles of Docker, Podman and containerd allow get_mempolicy and similar
    # calls only with CAP_SYS_NICE. Without a seccomp filter the calls are allowed. A filter outside
    # a container may have other rules, so no fact is added.
    if state.seccomp is False or state.sys_nice:
        facts.add(CONTAINER_NUMA_CALLS, True, f"Seccomp, CapEff in {raw.place()}")
    elif state.seccomp and state.sys_nice is False and facts.value(NODE_CONTAINER):
        facts.add(CONTAINER_NUMA_CALLS, False, f"Seccomp, CapEff in {raw.place()}")


def _cpus(evidence: NodeEvidence, facts: Facts) -> None:
    for name in ("lscpu", "cpuinfo"):
        found = evidence.parsed(name, parse_cpus)
        if found is None:
            continue
        cpus, raw = found
        if cpus.vendor is not None:
            facts.add(CPU_VENDOR, cpus.vendor, raw.place())
        for fact, value in (
            (CPU_FAMILY, cpus.family),
            (CPU_SOCKETS, cpus.sockets),
            (CPU_NUMA_NODES, cpus.numa_nodes),
            (NODE_VCPUS, cpus.online),
        ):
            if value is not None:
                facts.add(fact, value, raw.place())
        if cpus.without_memory is not None:
            facts.add(CPU_NODES_WITHOUT_MEMORY, cpus.without_memory, raw.place())
    item = evidence.tree("cpu")
    if item is None:
        return
    tree, raw = item
    online = tree.get(_CPU + "online")
    listed = cpus_of(online) if online else None
    if listed:
        facts.add(NODE_VCPUS, len(listed), evidence.where(raw, _CPU + "online"))
    nodes = [
        value.text
        for path, value in tree.values.items()
        if path.startswith("/sys/devices/system/node/") and path.endswith("/cpulist")
    ]
    if nodes:
        facts.add(
            CPU_NUMA_NODES,
            sum(1 for one in nodes if one),
            evidence.where(raw, "/sys/devices/system/node"),
        )
    governors = sorted(
        {v.text for path, v in tree.values.items() if path.endswith("/scaling_governor")}
    )
    if online is not None:
        facts.add(
            CPU_GOVERNORS,
            governors,
            evidence.where(raw, f"{_CPU}cpu*/cpufreq/scaling_governor"),
        )
        states = tree.children(_CPU + "cpu0/cpuidle")
        facts.add(
            CPU_IDLE_STATES,
            [
                IdleState(
                    name=values["name"],
                    latency_us=whole(values.get("latency")),
                    disabled=(values["disable"] != "0") if "disable" in values else None,
                )
                for _, values in sorted(states.items())
                if values.get("name")
            ],
            evidence.where(raw, _CPU + "cpu0/cpuidle"),
        )


def _kernel(evidence: NodeEvidence, facts: Facts) -> None:
    cmdline = evidence.text("cmdline")
    if cmdline is not None and cmdline[0].strip():
        line = re.search(r"^(?:BOOT_IMAGE|initrd|root)=.*", cmdline[0], re.M)
        facts.add(KERNEL_CMDLINE, line[0] if line else cmdline[0].strip(), cmdline[1].place(1))
    modules = evidence.parsed("modules", parse_modules)
    shown = evidence.parsed("modules", shows_peer_modules)
    without = evidence.parsed("modules", NO_PEERMEM.search)
    if without is not None and without[0] is not None:
        facts.add(NODE_PEERMEM, False, without[1].place())
    elif modules is not None and shown is not None and not shown[0] and modules[1].data.strip():
        evidence.problems.append(
            f"{modules[1].source}: only a part of lsmod, without the modules that rules need"
        )
    elif modules is not None:
        facts.add(NODE_MODULES, modules[0], modules[1].place())
    log = evidence.parsed("dmesg", parse_kernel_log)
    if log is not None and not log[0].denied:
        facts.add(KERNEL_LOG, log[0].lines, log[1].place())
        if log[0].left_out:
            evidence.problems.append(
                f"{log[1].source}: {log[0].left_out} more different lines were left out"
            )


def _limits(evidence: NodeEvidence, facts: Facts) -> None:
    for name in ("limits", "ulimit"):
        found = evidence.parsed(name, parse_limits)
        if found is None:
            continue
        limits, raw = found
        for fact, key in (
            (LIMITS_MEMLOCK_KIB, "memlock"),
            (LIMITS_STACK_KIB, "stack"),
            (LIMITS_OPEN_FILES, "files"),
        ):
            if key in limits and fact.name not in facts:
                facts.add(fact, limits[key].value, raw.place(limits[key].line))


def _shared_memory(evidence: NodeEvidence, facts: Facts) -> None:
    df = evidence.text("df-shm")
    if df is not None:
        space = parse_df(df[0], _SHM)
        # If df printed the file system of a parent folder, nothing is mounted at /dev/shm.
        # df prints the same row for other folders: the command or the file has to name this one.
        parent = _PARENT_ONLY.search(df[0])
        asked = not df[1].is_file or _SHM_FILE.search(df[1].source) is not None
        if space is not None or (parent is not None and (asked or parent["asked"])):
            size, free, line = space or (0, 0, None)
            facts.add(SHM_BYTES, size, df[1].place(line))
            facts.add(SHM_FREE_BYTES, free, df[1].place(line))
        if listed := _NCCL_FILE.findall(df[0]):
            facts.add(SHM_NCCL_FILES, len(listed), df[1].place())
    device = evidence.text("shm-device")
    if device is not None and device[0].strip().isdecimal():
        facts.add(NODE_SHM_DEVICE, device[0].strip(), device[1].place())
    found = evidence.parsed("docker-inspect", parse_inspect)
    for fact, value in (
        (LIMITS_MEMLOCK_KIB, found and found[0].memlock_kib),
        (SHM_BYTES, found and found[0].shm_bytes),
    ):
        if found is not None and value is not None and fact.name not in facts:
            facts.add(fact, value, found[1].place())


def _services(evidence: NodeEvidence, facts: Facts) -> None:
    services = evidence.parsed("services", parse_services)
    runs = None
    if services is not None and services[0]:
        states, raw = services
        logind = states.get("systemd-logind")
        runs = logind == "active" if logind is not None else None
        shown = {name: state for name, state in states.items() if name != "systemd-logind"}
        if shown:
            facts.add(NODE_SERVICES, shown, raw.place())
    devices = evidence.tree("devices")
    if runs is None and devices is not None and not facts.value(NODE_CONTAINER):
        # systemd runs if this folder exists (sd_booted(3) tests the same). In a container the test
        # is not valid, because the logind of the host may control shared memory.
        runs = "/run/systemd/system" in devices[0].values
    listed = evidence.parsed("logind", parse_listed)
    if runs is False:
        facts.add(LOGIND_REMOVE_IPC, False, "systemd-logind does not run")
    elif runs and listed is not None:
        value, where = remove_ipc(listed[0])
        facts.add(LOGIND_REMOVE_IPC, value, where)

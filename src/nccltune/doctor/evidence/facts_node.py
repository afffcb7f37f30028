# SPDX-License-Identifier: Apache-2.0
"""Facts of the node, its processor, kernel, limits and shared memory."""

import re
from collections.abc import Callable

from nccltune.doctor.evidence.parsers.kernel import (
    parse_cpus,
    parse_df,
    parse_huge_pages,
    parse_modules,
    parse_root_type,
    parse_status,
)
from nccltune.doctor.evidence.parsers.kernel_log import parse_kernel_log
from nccltune.doctor.evidence.parsers.limits import parse_limits
from nccltune.doctor.evidence.parsers.listed import parse_listed, remove_ipc
from nccltune.doctor.evidence.parsers.services import parse_services
from nccltune.doctor.evidence.parsers.text import whole
from nccltune.doctor.evidence.raw import Evidence
from nccltune.doctor.facts import Facts
from nccltune.formats.cpu_list import cpus_of

_SHM = "/dev/shm"  # noqa: S108  # asked about, not written to
_CPU = "/sys/devices/system/cpu/"
_CONTAINER = re.compile(r"docker|kubepods|containerd|crio|libpod|lxc|garden", re.IGNORECASE)


def add_node(evidence: Evidence, facts: Facts) -> None:
    """Put in `node.*`, `cpu.*`, `kernel.*` (without IOMMU groups), `limits.*`, `shm.*`,
    `logind.*` and `container.*`."""
    if evidence.get("system") is not None or evidence.get("status") is not None:
        # Files that belong to no node (logs, job files) have no host.
        source = "hostname" if evidence.live else "name of the folder"
        facts.add("node.host", evidence.host, source)
    _system(evidence, facts)
    _container(evidence, facts)
    _cpus(evidence, facts)
    _kernel(evidence, facts)
    _limits(evidence, facts)
    _shared_memory(evidence, facts)
    _services(evidence, facts)


def _system(evidence: Evidence, facts: Facts) -> None:
    system = evidence.tree("system")
    if system is None:
        return
    tree, raw = system

    def put(fact: str, path: str, made: Callable[[str], object]) -> None:
        found = tree.values.get(path)
        value = made(found.text) if found is not None else None
        if found is not None and value is not None and value != "":
            facts.add(fact, value, evidence.where(raw, path, found.line))

    put("node.boot_id", "/proc/sys/kernel/random/boot_id", str.strip)
    put("kernel.release", "/proc/sys/kernel/osrelease", str.strip)
    put("kernel.numa_balancing", "/proc/sys/kernel/numa_balancing", whole)
    pages = [
        number
        for path, value in tree.values.items()
        if path.startswith("/sys/kernel/mm/hugepages/")
        and (number := whole(value.text)) is not None
    ]
    meminfo = evidence.parsed("meminfo", parse_huge_pages)
    if pages:
        facts.add("kernel.huge_pages", sum(pages), evidence.where(raw, "/sys/kernel/mm/hugepages"))
    elif meminfo is not None and meminfo[0] is not None:
        facts.add("kernel.huge_pages", meminfo[0], meminfo[1].source)
    # The folder is only there where a peer memory client was ever registered.
    if any(path.startswith("/sys/") for path in tree.values):
        found = [path.split("/")[5] for path in tree.values if "/memory_peers/" in path]
        facts.add(
            "gpu.peer_memory",
            sorted(set(found)),
            evidence.where(raw, "/sys/kernel/mm/memory_peers"),
        )


def _container(evidence: Evidence, facts: Facts) -> None:
    devices = evidence.tree("devices")
    marks = [
        path
        for path in ("/.dockerenv", "/run/.containerenv")
        if devices is not None and path in devices[0].values
    ]
    cgroup = evidence.text("cgroup")
    if marks and devices is not None:
        facts.add("node.container", True, evidence.where(devices[1], marks[0]))
    elif cgroup is not None:
        root = evidence.parsed("mounts", parse_root_type)
        # With cgroup v2 and a namespace of its own a container sees nothing but `0::/`.
        layered = root is not None and root[0] in ("overlay", "fuse.fuse-overlayfs", "aufs")
        named = _CONTAINER.search(cgroup[0]) is not None
        place = root[1].place() if root is not None and layered and not named else None
        facts.add("node.container", named or layered, place or cgroup[1].place())
    cpus = evidence.parsed("cpuinfo", parse_cpus)
    status = evidence.parsed("status", parse_status)
    virt = evidence.text("virt")
    said = virt[0].strip() if virt is not None else ""
    # Where a hypervisor hides its flag, systemd still finds it by its name.
    if virt is not None and said and said != "none":
        facts.add("node.virtual", True, virt[1].place())
    elif cpus is not None and cpus[0].virtual is not None:
        facts.add("node.virtual", cpus[0].virtual, cpus[1].place())
    elif virt is not None and said == "none":
        facts.add("node.virtual", False, virt[1].place())
    if status is None:
        return
    state, raw = status
    if state.cpus is not None:
        facts.add("limits.cpus", state.cpus, raw.place())
    # get_mempolicy and its kin stand behind CAP_SYS_NICE in the default profiles of Docker, Podman
    # and containerd; without a filter they are free.
    if state.seccomp is False or state.sys_nice:
        facts.add("container.numa_calls", True, f"Seccomp, CapEff in {raw.place()}")
    elif state.seccomp and state.sys_nice is False and facts.value("node.container"):
        facts.add("container.numa_calls", False, f"Seccomp, CapEff in {raw.place()}")


def _cpus(evidence: Evidence, facts: Facts) -> None:
    for name in ("lscpu", "cpuinfo"):
        found = evidence.parsed(name, parse_cpus)
        if found is None:
            continue
        cpus, raw = found
        for fact, value in (
            ("cpu.vendor", cpus.vendor),
            ("cpu.family", cpus.family),
            ("cpu.model", cpus.model),
            ("cpu.sockets", cpus.sockets),
            ("cpu.numa_nodes", cpus.numa_nodes),
            ("node.vcpus", cpus.online),
        ):
            if value is not None:
                facts.add(fact, value, raw.place())
    item = evidence.tree("cpu")
    if item is None:
        return
    tree, raw = item
    online = tree.get(_CPU + "online")
    listed = cpus_of(online) if online else None
    if listed:
        facts.add("node.vcpus", len(listed), evidence.where(raw, _CPU + "online"))
    nodes = [
        value.text
        for path, value in tree.values.items()
        if path.startswith("/sys/devices/system/node/") and path.endswith("/cpulist")
    ]
    if nodes:
        facts.add(
            "cpu.numa_nodes",
            sum(1 for one in nodes if one),
            evidence.where(raw, "/sys/devices/system/node"),
        )
    governors = sorted(
        {v.text for path, v in tree.values.items() if path.endswith("/scaling_governor")}
    )
    if online is not None:
        facts.add(
            "cpu.governors",
            governors,
            evidence.where(raw, f"{_CPU}cpu*/cpufreq/scaling_governor"),
        )
        states = tree.children(_CPU + "cpu0/cpuidle")
        facts.add(
            "cpu.idle_states",
            [
                {
                    "name": values["name"],
                    "latency_us": whole(values.get("latency")),
                    "disabled": (values["disable"] != "0") if "disable" in values else None,
                }
                for _, values in sorted(states.items())
                if values.get("name")
            ],
            evidence.where(raw, _CPU + "cpu0/cpuidle"),
        )


def _kernel(evidence: Evidence, facts: Facts) -> None:
    cmdline = evidence.text("cmdline")
    if cmdline is not None and cmdline[0].strip():
        facts.add("kernel.cmdline", cmdline[0].strip(), cmdline[1].place(1))
    modules = evidence.parsed("modules", parse_modules)
    if modules is not None:
        facts.add("node.modules", modules[0], modules[1].place())
    log = evidence.parsed("dmesg", parse_kernel_log)
    if log is not None and not log[0].denied:
        facts.add(
            "kernel.log",
            [{"text": one.text, "line": one.line, "count": one.times} for one in log[0].lines],
            log[1].place(),
        )
        if log[0].left_out:
            evidence.problems.append(
                f"{log[1].source}: {log[0].left_out} more different lines were left out"
            )


def _limits(evidence: Evidence, facts: Facts) -> None:
    for name in ("limits", "ulimit"):
        found = evidence.parsed(name, parse_limits)
        if found is None:
            continue
        limits, raw = found
        for fact, value, key in (
            ("limits.memlock_kib", limits.memlock_kib, "memlock"),
            ("limits.stack_kib", limits.stack_kib, "stack"),
            ("limits.open_files", limits.open_files, "files"),
        ):
            if value is not None and fact not in facts:
                facts.add(fact, value, raw.place(limits.lines[key]))


def _shared_memory(evidence: Evidence, facts: Facts) -> None:
    df = evidence.text("df-shm")
    if df is not None:
        space = parse_df(df[0], _SHM)
        if space is not None:
            facts.add("shm.bytes", space.size, df[1].place(space.line))
            facts.add("shm.free_bytes", space.free, df[1].place(space.line))
        elif len(df[0].splitlines()) > 1:
            # df names the file system that holds the folder: nothing is mounted there.
            facts.add("shm.bytes", 0, df[1].place())
            facts.add("shm.free_bytes", 0, df[1].place())
    device = evidence.text("shm-device")
    if device is not None and device[0].strip().isdecimal():
        facts.add("node.shm_device", device[0].strip(), device[1].place())


def _services(evidence: Evidence, facts: Facts) -> None:
    services = evidence.parsed("services", parse_services)
    runs = None
    if services is not None and services[0]:
        states, raw = services
        logind = states.get("systemd-logind")
        runs = logind == "active" if logind is not None else None
        shown = {name: state for name, state in states.items() if name != "systemd-logind"}
        if shown:
            facts.add("node.services", shown, raw.place())
    devices = evidence.tree("devices")
    if runs is None and devices is not None and not facts.value("node.container"):
        # sd_booted(3). In a container the host's logind may rule what it shares.
        runs = "/run/systemd/system" in devices[0].values
    listed = evidence.parsed("logind", parse_listed)
    if runs is False:
        facts.add("logind.remove_ipc", False, "systemd-logind does not run")
    elif runs and listed is not None:
        value, where = remove_ipc(listed[0])
        facts.add("logind.remove_ipc", value, where)

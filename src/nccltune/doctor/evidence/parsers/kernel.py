# SPDX-License-Identifier: Apache-2.0
"""Parse short texts of the kernel: loaded modules, /proc/cpuinfo or lscpu, /proc/self/status, free
space of a file system, huge pages."""

import re
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of, whole
from nccltune.formats.topology.cpu_list import cpus_of

_MODULE = re.compile(r"^(?P<name>[A-Za-z0-9_-]{1,64})\s+\d+\s+(?:-|\d+)")
_SYS_NICE = 23
SIZES = {"1K-blocks": 1024, "1024-blocks": 1024, "512-blocks": 512, "1B-blocks": 1, "Size": 0}
_HUMAN = re.compile(r"(\d{1,4}(?:\.\d)?)([kKMGTP])|0")
_LETTER = re.compile(r"\d[kKMGTP] ")
_DECIMAL = re.compile(r"\bdf [^\n]{0,80}?(?:-\w*H|--si\b)")


_ASKED = re.compile(r"\blsmod *\| *e?grep +(?:-\w+ +)*['\"]?(?P<words>[\w.|\\-]+)")
_PEER = ("nvidia_peermem", "nv_peer_mem")
NO_PEERMEM = re.compile(
    r"\blsmod *\| *e?grep +(?:-(?!\w*[vc])\w+ +)*['\"]?(?:nvidia[_-])?peermem['\"]? *\n"
    r"[^\n]{0,80}[$#](?: |$)",
    re.M,
)
"""A filter for nvidia_peermem that let nothing through: the next line is a prompt."""


def shows_peer_modules(text: str) -> bool:
    """Return whether `lsmod` shows the modules of peer memory, or that they are not loaded.

    A part of its lines shows others only if the filter lets theirs, or nvidia with its users, pass.
    """
    words = [one for match in _ASKED.finditer(text) for one in re.split(r"\\?\|", match["words"])]
    return (
        re.search(r"^Module +Size|^\w+ \d+ \d+ \S+ Live 0x", text, re.M) is not None
        or ("lsmod" in text and not words)
        or any(re.search(rf"^{name}\b", text, re.M) for name in _PEER)
        or (words == ["nvidia"] and re.search(r"^nvidia +\d+ +\d", text, re.M) is not None)
        or all(any(word and word.replace("-", "_") in name for word in words) for name in _PEER)
    )


NUMA_BALANCING = (
    r"^kernel\.numa_balancing *= *(?P<a>\d)$|^[^\n]{0,80}/sys/kernel/numa_balancing\n(?P<b>\d)$"
)


def parse_numa_balancing(text: str) -> int | None:
    """Return the value that `sysctl` or `cat` printed, as people paste it."""
    found = re.search(NUMA_BALANCING, text, re.M)
    return int(found["a"] or found["b"]) if found else None


def parse_modules(text: str) -> list[str]:
    """Return names of modules in `/proc/modules` or `lsmod`, with underscores, sorted."""
    matches = (_MODULE.match(line) for _, line in lines_of(text))
    return sorted({match["name"].replace("-", "_") for match in matches if match})


def parse_iommu_types(text: str) -> tuple[list[str], int]:
    """Return the types of `cat /sys/kernel/iommu_groups/*/type`, DMA-FQ as DMA, and the number of
    groups. `uniq -c` may have counted the lines, or grep may have written the path before them."""
    kinds = re.findall(
        r"^(?:/\S+/type:| *(\d{1,6}) )?(identity|DMA|auto|blocked)(?:-FQ)?\s*$", text, re.M
    )
    return sorted({kind for _, kind in kinds}), sum(int(count or 1) for count, _ in kinds)


class Cpus(NamedTuple):
    """The processor. None marks a field that the text does not have."""

    vendor: str | None = None
    family: int | None = None
    sockets: int | None = None
    numa_nodes: int | None = None
    online: int | None = None
    virtual: bool | None = None
    without_memory: list[int] | None = None


def parse_cpus(text: str) -> Cpus:
    """Parse `/proc/cpuinfo`, English `lscpu`, or `numactl -H`.

    The text of `/proc/cpuinfo` may be cut to the first processor and all `physical id` lines.
    """
    if re.search(r"^(?:processor|vendor_id|CPU implementer)\s*:", text, re.M):
        return _cpuinfo(text)
    fields = _fields(text)
    virtual = "Hypervisor vendor" in fields or "hypervisor" in fields.get("Flags", "").split()
    return Cpus(
        vendor=fields.get("Vendor ID"),
        family=whole(fields.get("CPU family")),
        sockets=whole(fields.get("Socket(s)")),
        numa_nodes=whole(fields.get("NUMA node(s)", fields.get("available"))),
        online=_count(fields.get("On-line CPU(s) list")),
        virtual=virtual if "available" not in fields and fields else None,
        without_memory=_without_memory(fields) if "node 0 size" in fields else None,
    )


def _without_memory(fields: dict[str, str]) -> list[int]:
    """Return the NUMA nodes with CPUs and no memory, of `numactl -H`."""
    return [
        int(name.split()[1])
        for name, cpus in fields.items()
        if re.fullmatch(r"node \d{1,4} cpus", name)
        and cpus
        and re.fullmatch(r"0 [MG]B", fields.get(name.replace("cpus", "size"), ""))
    ]


def _cpuinfo(text: str) -> Cpus:
    fields = _fields(text)
    packages = {match[1].strip() for match in re.finditer(r"^physical id\s*:(.*)$", text, re.M)}
    flags = fields.get("flags")
    return Cpus(
        vendor=fields.get("vendor_id") or ("ARM" if "CPU implementer" in fields else None),
        family=whole(fields.get("cpu family")),
        sockets=len(packages) or None,
        virtual="hypervisor" in flags.split() if flags is not None else None,
    )


def _fields(text: str) -> dict[str, str]:
    """Return the first value of each `name: value`."""
    found: dict[str, str] = {}
    for _, line in lines_of(text):
        name, sign, value = line.partition(":")
        if sign:
            found.setdefault(name.strip(), value.strip())
    return found


def _count(text: str | None) -> int | None:
    cpus = cpus_of(text) if text else None
    return len(cpus) if cpus else None


class ProcStatus(NamedTuple):
    """Fields of `/proc/self/status`: allowed CPUs, whether the process has CAP_SYS_NICE, whether
    seccomp filters system calls. None marks a field that the text does not have."""

    cpus: list[int] | None
    sys_nice: bool | None
    seccomp: bool | None


def parse_status(text: str) -> ProcStatus:
    """Parse `/proc/PID/status`."""
    fields = _fields(text)
    capabilities = fields.get("CapEff", "")
    held = None
    if re.fullmatch(r"[0-9a-fA-F]{1,16}", capabilities):
        held = bool(int(capabilities, 16) >> _SYS_NICE & 1)
    filters = whole(fields.get("Seccomp"))
    return ProcStatus(
        cpus_of(fields.get("Cpus_allowed_list", "")) or None,
        held,
        None if filters is None else filters == 2,
    )


def parse_root_type(text: str) -> str | None:
    """Return the type of the file system that was mounted last at `/`, or None if there is none.

    `text` is that of `/proc/self/mounts`.
    """
    found = None
    for _, line in lines_of(text):
        words = line.split(" ")
        if len(words) >= 3 and words[1] == "/":
            found = words[2]
    return found


class Space(NamedTuple):
    """Size and free space of a file system in bytes, and the line number."""

    size: int
    free: int
    line: int


def parse_df(text: str, mount: str) -> Space | None:
    """Return the row of `df -P MOUNT`, `df -k` or `df -h` whose mount point is `mount`.

    A row without the header (`df -h | grep shm`) has KiB, or a letter of the unit at each size.
    """
    unit = None if "Filesystem" in text else 1024 if not _LETTER.search(text) else 0
    power = 1000 if _DECIMAL.search(text) else 1024
    for number, line in lines_of(text):
        words = line.split()
        if words[0] == "Filesystem" and len(words) > 1:
            unit = SIZES.get(words[1])
        elif unit is not None and words[-1] == mount and len(words) >= 5:
            size, free = (_space(words[at], unit, power) for at in (-5, -3))
            # No file system has 2^63 bytes or more, so a larger value is damaged.
            if (
                size is not None
                and free is not None
                and size >= 0
                and max(size, abs(free)) < 1 << 63
            ):
                return Space(size, free, number)
    return None


def _space(word: str, unit: int, power: int) -> int | None:
    if unit:
        value = whole(word)
        return value if value is None else value * unit
    match = _HUMAN.fullmatch(word)
    return (
        int(float(match[1] or 0) * power ** " KMGTP".index((match[2] or " ").upper()))
        if match
        else None
    )


def parse_huge_pages(text: str) -> int | None:
    """Return the number of huge pages, or None if the text has no such number.

    The number is the sum of the `nr_hugepages` lines of all sizes
    (`.../hugepages-1048576kB/nr_hugepages:4`). If the text has no such line, the number is
    `HugePages_Total` of `/proc/meminfo`.
    """
    sizes = re.findall(r"hugepages-\d+kB/nr_hugepages:(\d{1,12})\s*$", text, re.M)
    if sizes:
        return sum(int(size) for size in sizes)
    match = re.search(r"^HugePages_Total:\s+(\d{1,12})\s*$", text, re.M)
    return int(match[1]) if match else None

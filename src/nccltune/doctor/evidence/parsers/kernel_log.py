# SPDX-License-Identifier: Apache-2.0
"""Parse a kernel log (`dmesg`, `journalctl -k`). Only lines that rules may use are kept.

Addresses and numbers are kept: rules read Xids, bus ids and speeds from the text.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from nccltune.doctor.evidence.parsers.text import lines_of
from nccltune.doctor.facts.node import KernelLine

# A month in the words of any language.
_DAY = r"\S{2,9} +\d{1,2} [\d:]{8}"
_STAMP = re.compile(
    r"^(?:kern\s*:\w+\s*:\s*)?(?:<\d+>)?"
    r"(?:\[\s*\+?\d+\.\d+\]\s*|\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \d{4}\]\s*"
    r"|\[[^\W\d]{2,9} *\d{1,2} \d\d:\d\d\]\s*"
    rf"|\d{{4}}-\d\d-\d\d[T ][\d:.,+-]+\s+|{_DAY} )?"
)
_JOURNAL = re.compile(r"^\S+ kernel: (?:\[\s*\d+\.\d+\]\s*)?")
_TIMED = (
    r"(?:kern *:\w+ *: *)?(?:<\d+>)?(?:\[ *\+?\d{1,8}\.\d{6}\] "
    r"|\[[^\W\d]{2,9} *\d{1,2} \d\d:\d\d\] "
    rf"|\[[A-Z][a-z]{{2}} {_DAY} \d{{4}}\] |(?:{_DAY}|\d{{4}}-\d\d-\d\d[T ]\S+) \S+ kernel: "
    r"|\d{4}-\d\d-\d\dT[\d:]{8},\d{6}[+-]\d\d:?\d\d |(?:\S{1,80} )?kernel: )"
)
_BARE = (
    r"(?:\[[^\]\n]{1,40}\] {0,4})?(?:[a-z]\w{1,30} [0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
    r"(?: [\w.-]{1,20})?: |(?:Memory cgroup o|O)ut of memory: Kill|oom-kill:constraint=)"
)
"""A driver and its device, or the end of a process, with any stamp: people shorten stamps."""
KERNEL_LINE = rf"^(?:{_TIMED}|(?![ \t]*[>]{{3}} )[^\n]{{0,60}}?\bNVRM: |{_BARE})"
"""Start of a line that the kernel printed. Other programs print none."""
_IS_KERNEL = re.compile(KERNEL_LINE, re.M)
_DAEMON = re.compile(
    rf"^{_DAY} \S+ (?:sshd|cron|CRON|sudo|systemd-\w+|NetworkManager|dbus-daemon|rsyslogd|chronyd"
    r"|ntpd|dhclient|auditd|sssd\w*|snmpd|dockerd|containerd|kubelet|postfix\S*|rpc\.\w+)"
    r"(?:\[\d+\])?: ",
    re.M,
)
"""Start of a line of a service in the system's log, whose errors are of no job."""
_HAS_TIME = re.compile(r"^(?:<\d|\[[ \dA-Z]|\d{4}-|kern )", re.M)
# One sentence of the driver, in three lines.
_SPLIT = re.compile(
    r"(?P<gpu>NVRM: The NVIDIA GPU [0-9a-f:.]+)\s*\n[^\n]*?NVRM: (?P<id>\(PCI ID[^\n]*?)\s*\n"
    r"[^\n]*?NVRM: "
)
# In such a text a line without a mark of the kernel is of a program.
_MIXED = re.compile(rf"^{_TIMED}|\b(?:NCCL|UCX|Traceback|torch|libfabric)\b", re.M)
WORDS = (
    "pcie",
    "nvrm",
    "xid",
    "mlx[45]",
    "aer: ",
    "aer[]]",
    "iommu",
    "smmu",
    "dmar",
    "amd-vi",
    "link (is )?(up|down)",
    "link becomes",
    "limited by",
    "infiniband",
    "nvlink",
    "nvswitch",
    "gdrdrv",
    "peermem",
    "peer_mem",
    "bnxt_",
    "[^a-z]efa[^a-z]",
    "[^a-z]ena[^a-z]",
    "[^a-z]gve[^a-z]",
    "irdma",
    "hugepage",
    "out of memory",
    "oom-kill",
    "nvidia[: ]",
    "amdgpu.*(fail|err|timeout|fault|reset)",
    "hardware error",
    "machine check",
    "edac",
    "lockup",
    "blocked for more",
    "segfault at",
)
"""Patterns of lines to keep, as extended regular expressions that ignore case."""
# Lines are first converted to lower case. A pattern that ignores case would be four times slower.
_WANTED = re.compile("|".join(WORDS))
MOST = 2000


class KernelLog(NamedTuple):
    """The different lines of a kernel log that match WORDS, at most MOST.

    `left_out` is the number of other matching lines, repetitions included. `denied` is true if the
    kernel refused to show its log.
    """

    lines: list[KernelLine]
    left_out: int
    denied: bool


def parse_kernel_log(text: str) -> KernelLog:
    """Parse a kernel log. Lines of programs in the same text are ignored."""
    text = _SPLIT.sub(r"\g<gpu> \g<id> ", text)
    counts: dict[str, int] = {}
    left_out = 0
    mixed = _MIXED.search(text) is not None
    for _, line in lines_of(text):
        if mixed and _IS_KERNEL.match(line) is None:
            continue
        if _WANTED.search(line.lower()) is None:
            continue
        shown = plain_line(line)[:400]
        if shown in counts:
            counts[shown] += 1
        elif len(counts) < MOST:
            counts[shown] = 1
        else:
            left_out += 1
    denied = not counts and "Operation not permitted" in text[:2000]
    found = [KernelLine(text=shown, count=times) for shown, times in counts.items()]
    return KernelLog(found, left_out, denied)


# Failures that kernel lines state. `xid_fault` has the Xids that NVIDIA's catalogue lists as a
# fault of hardware or firmware. `xid_program` has the Xids that a program mostly causes itself.
# RPC, DHCP and databases have an `xid` of their own: in small letters it is one beside a GPU only.
_OF_GPU = r"(?:gpu|nvrm|nvidia|dcgm)"
_XID = (
    r"(?:\bXid \(.*?: |(?:\bX[Ii][Dd]"
    rf"|(?i:{_OF_GPU}.{{0,200}}?\bxid|\bxid(?=.{{0,200}}\b{_OF_GPU})))"
    r"(?i:s?(?: (?:error|code|event|number)s?){0,2}(?:[:=]? ?#?|-)))"
)
_FAILURES = (
    (
        "amdgpu",
        re.compile(
            r"amdgpu.*(?:Fatal error|probe of .* failed|[Uu]ncorrectable .*detected"
            r"|GPU (?:reset begin|[Rr]ecovery [Ff]ailed)|ring \S+ timeout|PSP .*failed"
            r"|MES failed|\bretry page fault)"
        ),
    ),
    ("gpu_lost", re.compile(rf"fallen off the bus|{_XID}79\b|GPU is lost|GPU .*lost!")),
    (
        "xid_fault",
        re.compile(
            rf"{_XID}(?:48|6[1-4]|69|78|9[245]|109|110|119|12[0-2]|136|14[03]"
            r"|15[14-8])\b|SXid(?!.*, (?:Non-fatal|Severity|Data))|NVSwitch fatal error"
        ),
    ),
    ("xid_nvlink", re.compile(rf"{_XID}(?:74|14[4-9]|150)\b")),
    ("xid_program", re.compile(rf"{_XID}\d{{1,3}}\b")),
    # Other knvlink functions also log at each start of the driver, with sound links.
    ("nvlink_state", re.compile(r"knvlink\w*PostRxDet\w*: .*[Ff]ailed")),
    (
        "peermem",
        re.compile(
            r"(?:nvidia_peermem|nv_peer_mem): (?:Unknown symbol|disagrees about version)"
            r"|could not insert '(?:nvidia_peermem|nv_peer_mem)': (?:Invalid arg|Unknown symbol)"
        ),
    ),
    (
        "driver",
        re.compile(
            r"(?i:NVRM: (?!Xid).*(?:mismatch|RmInit|rm_init|not supported|no nvidia|is 0M"
            r"|probe routine failed|RESET_REQUIRED))|nvidia[: ].*probe.* failed"
            r"|nvidia: Unknown symbol"
        ),
    ),
    (
        "driver_call",
        re.compile(
            r"(?i:(?:NVRM: (?!Xid|_kgspLogXid)|nvidia-peermem ).*"
            r"(?:failed|unable to|cannot|timed? ?out|error)|SXid.*, Non-fatal|NVSwitch non-fatal)"
        ),
    ),
    (
        "pcie",
        re.compile(
            r"AER: (?!(?:Multiple )?[Cc]orrect).*(?:Uncorrect|Fatal)|severity=Uncorrect"
            r"|DPC: (?:containment|unmasked)"
        ),
    ),
    ("pcie_corrected", re.compile(r"severity=Correct|AER: (?:Multiple )?[Cc]orrect\w+ error")),
    (
        "crashed",
        re.compile(r"segfault at .* in lib(?:nccl|rccl|cuda|mlx5|ibverbs|fabric|efa|bnxt|vgpu)"),
    ),
    ("memory", re.compile(r"Out of memory: Kill|oom-kill|[Mm]emory cgroup out of memory")),
    ("machine", re.compile(r"^(?!.*amdgpu).*\[Hardware Error\]|Machine [Cc]heck|EDAC .*\bUE\b")),
    (
        "nic",
        re.compile(
            # A tool asked for a register that the firmware does not have: no fault of the NIC.
            r"(?:mlx5|bnxt|irdma|\befa(?:_\d+)?\b|hfi1|cxi_\w+)(?!.*ACCESS_REG.*status bad).*"
            r"(?:health compromised|device's health|fatal"
            r"|firmware.*(?:error|fail|timeout)|timeout|nsupported cable|[Hh]igh [Tt]emperature"
            r"|syndrome|[Ff]ailed|errors? detected|module event\[error\])"
        ),
    ),
    (
        "iommu",
        re.compile(
            r"IO_PAGE_FAULT|DMAR: \[DMA|\[fault reason|INVALID_DEVICE_REQUEST"
            r"|arm-smmu.*(?:fault|event 0x\w+ received|event: [CF]_)"
        ),
    ),
    ("hung", re.compile(r"blocked for more than \d+ sec|soft lockup|hard LOCKUP|rcu.* stall")),
)


# A line without any of these words states no failure. A search for these words is faster than
# _FAILURES, and nearly all lines have none of them.
_LIKELY = (
    *(
        "Xid",
        "XID",
        "xid",
        "lost",
        "fallen",
        "NVRM",
        "nvidia",
        "AER",
        "severity=",
        "DPC",
        "emory",
        "oom-kill",
    ),
    *("ardware", "achine", "EDAC", "health", "fatal", "fail", "irmware", "timeout", "cable"),
    *("emperature", "syndrome", "error", "blocked", "lockup", "LOCKUP", "stall", "PAGE_FAULT"),
    *("DMAR", "INVALID_DEVICE", "smmu", "Failed", "peer", "segfault", "amdgpu"),
)


def failure_kinds(lines: Sequence[str]) -> list[str | None]:
    """Return the kind of failure that each line of the kernel's log states, or None."""
    together = "\n".join(lines)
    likely = [word for word in _LIKELY if word in together]
    kinds = [
        _failure_kind(line) if any(word in line for word in likely) else None for line in lines
    ]
    wrong: set[str] = set()
    for at, line in enumerate(lines):
        if kinds[at] in ("xid_program", "xid_fault") and (match := _OF_PROGRAM.search(line)):
            if match["xid"] != "109":
                wrong.add(match["gpu"])
            elif match["gpu"] in wrong:
                kinds[at] = "xid_program"
    return kinds


# A program's wrong instruction or access, and the switch of its context that then times out.
_OF_PROGRAM = re.compile(r"\bXid \((?P<gpu>[^)]{1,40})\): (?P<xid>13|31|109)\b")
# The Xid of a channel that the driver ended after another Xid, which is the cause.
_EFFECT = re.compile(r"(?<=: )\d+, .*caused by previous Xid (\d+)")


def _failure_kind(line: str) -> str | None:
    if "recovery action changed" in line and "to 0x0 (None)" in line:
        return None
    if "caused by previous" in line:
        line = _EFFECT.sub(r"\1", line)
    return next((kind for kind, pattern in _FAILURES if pattern.search(line)), None)


_SLOT = re.compile(r"\b[0-9a-f]{2}:[0-9a-f]{2}(?=\.[0-7]\b)")
DRIVER_LINE = re.compile(
    r"^(?:(nvidia|amdgpu)|mlx\w+|bnxt\w+|efa|irdma|hfi1|cxi\w+) \w{4,8}:(\w\w:\w\w)\.\d", re.M
)
_OTHER = re.compile(r"(?:nvme|xhci_hcd|ahci|i915|megaraid_sas|mpt3sas) \w{4,8}:")


def is_of_others(line: str, gpus: set[str], nics: set[str]) -> bool:
    """Return whether the device in a line of the IOMMU is no GPU and no NIC, of known slots.

    Bus 00 has the chipset, such as Intel's graphics at 00:02, where the GPUs are on other buses.
    """
    at = _SLOT.search(line)
    if at is None or at[0] in gpus | nics:
        return False
    if at[0].startswith("00"):
        is_other = bool(gpus) or (at[0] == "00:02" and "DMAR" in line)
        return is_other and not any(slot.startswith("00") for slot in gpus)
    is_other = bool(gpus and nics) or _OTHER.match(line) is not None
    return is_other and not any(slot[:2] == at[0][:2] for slot in gpus | nics)


def has_kernel_lines(text: str) -> bool:
    """Return whether the kernel printed a line of `text`."""
    # The pattern alone would take seconds for a large log of a program.
    words = ("NVRM: ", "kernel: ", "ut of memory: Kill", "oom-kill:", " 0000:", "mlx5_core 0")
    likely = any(word in text for word in words) or _HAS_TIME.search(text) is not None
    return likely and _IS_KERNEL.search(text) is not None


def without_kernel_lines(text: str) -> str:
    """Return `text` with each line of the kernel, and of services, replaced by an empty one."""
    if not has_kernel_lines(text) and _DAEMON.search(text) is None:
        return text
    return "\n".join(
        "" if _IS_KERNEL.match(line) or _DAEMON.match(line) else line for line in text.split("\n")
    )


def plain_line(line: str) -> str:
    """Return a line of the kernel's log without time, host and process."""
    rest = line[_STAMP.match(line).end() :]  # type: ignore[union-attr]  # matches the empty text
    match = _JOURNAL.match(rest)
    return (rest[match.end() :] if match else rest).strip()


def wanted(line: str) -> bool:
    """Return whether a line matches WORDS. Rules use no other lines."""
    return _WANTED.search(line.lower()) is not None

# SPDX-License-Identifier: Apache-2.0
"""Recognise the kind of a file by its content and its name.

A mark is a regular expression that matches the output of one tool or the content of one file. If a
mark matches, the content decides. If no mark matches or the file is empty, the file name decides.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from nccltune.doctor.evidence.item_names import INDEX, is_source, item_of_name
from nccltune.doctor.evidence.parsers.failures import states_failure
from nccltune.doctor.evidence.parsers.gpu_query import SECTION
from nccltune.doctor.evidence.parsers.imex import LISTED, NOT_LISTED
from nccltune.doctor.evidence.parsers.kernel import NUMA_BALANCING
from nccltune.doctor.evidence.parsers.kernel_log import (
    KERNEL_LINE,
    has_kernel_lines,
    without_kernel_lines,
)
from nccltune.doctor.evidence.parsers.prose import has_workaround
from nccltune.doctor.evidence.parsers.rdma_ports import DEV_LISTED
from nccltune.formats.text.lines import encoding_of
from nccltune.formats.topology.nvidia_smi_matrix import PCI_MATRIX
from nccltune.formats.topology.xml_tree import dumps_in

HEAD_BYTES = 1 << 14
MOST_PARTED = 1 << 20
OUTPUT = "output"
"""Output of a program, launcher or tool. Only lines that state a failure are used."""
_JOBS = frozenset({".sh", ".sbatch", ".slurm", ".yaml", ".yml", ".job", ".bash"})
_IMAGE_NAME = re.compile(
    r"^(?:docker|container)file(?!.*\.(?:log|txt|out|err)$)|\.(?:docker|container)file$",
    re.IGNORECASE,
)
_XML = rb"\A\s*(?:<\?xml[^>]*>\s*)?(?:<!DOCTYPE[^>]*>\s*)?(?>(?:<!--.*?-->\s*)*)"
_BUS = rb"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"


_ULIMIT = rb"^[^\n]{0,80}\bulimit -l *\n(?:unlimited|\d+)$"


def _mark(pattern: bytes, flags: int = 0) -> re.Pattern[bytes]:
    return re.compile(pattern, re.M | flags)


# The first matching mark decides. Marks that also match in other tools' outputs come later.
_MARKS: tuple[tuple[str, re.Pattern[bytes]], ...] = (
    # _XML matches all XML comments as one atomic group. Otherwise the match could take forever.
    ("topology", _mark(_XML + rb"<system\b", re.S)),
    ("graph", _mark(_XML + rb"<graphs\b", re.S)),
    (
        "nvidia-smi-q",
        _mark(
            rb"<nvidia_smi_log|=NVSMI LOG=|^[ \t]+CliqueId\s+: |^[ \t]+(?:"
            + SECTION.encode()
            + rb")\n\s{1,80}\w[^\n]{0,200}(?: : |\n[^\n]{0,200} : )"
            rb"|^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:"
        ),
    ),
    (
        "nvidia-smi",
        _mark(
            rb"\| NVIDIA-SMI \S+|^GPU \d{1,4}: (?=[^\n]*\(UUID: )[^\n]*\n(?![ \t]+Link |NVML: )"
            rb"|^GPU \d{1,4}: (?>[^\n]*\(UUID: [^\n]*)\Z"
            rb"|^(?=[a-z])(?=[^\n]*\b(?:pci\.bus_id|driver_version|pcie\.link\.|memory\.(?:total|used)"
            rb"|compute_cap|fabric\.st|clocks[._]|temperature\.gpu|utilization\.gpu|ecc\.errors"
            rb"|persistence_mode|gpu_name|mig\.mode))[a-z][\w.]+(?: \[[\w/%]+\])?(?:,|$)"
            rb"|^[^\n]{0,80}\bnvidia-smi [^\n]{0,80}--query-gpu[= ][a-z][^\n]{0,400}\n"
            rb"[^\n,]{1,60},"
            rb"|NVIDIA-SMI has failed|^No devices were found|Failed to initialize NVML"
            rb"|Unable to determine the device handle|nvidia-smi: (?:command )?not found"
        ),
    ),
    (
        "nvlink",
        _mark(
            rb"^(?:GPU \d{1,4}: [^\n]*\n)?(?:[ \t]+Link \d{1,3}: (?:[\d.]+ GB/s|<inactive>)"
            rb"|NVML: Unable to retrieve NVLink)|^[ \t]*gpuId \d+:[ \t\r]*\n[ \t]*[UDX_] [UDX_]"
        ),
    ),
    (
        "nvlink-errors",
        _mark(
            rb"^(?:GPU \d{1,4}: [^\n]*\n)?[ \t]+Link \d{1,3}: (?:Replay|Recovery|CRC) Errors?: \d"
        ),
    ),
    (
        "p2p-r",
        _mark(
            rb"^(?>[^\n]*\bGPU1\b[^\n]*\n)?[ \t]*GPU\d+\s+(?:(?:X|OK|[CGT]?NS|DR|U)\s+)*"
            rb"(?:OK|[CGT]?NS|DR)\b"
        ),
    ),
    (
        "topo",
        _mark(
            rb"^[ \t]*(?:\x1b\[\d*m[ \t]*)?GPU0\s[^\n]*\n(?:[^\n]*\n)?\s*GPU0\s+X\b"
            rb"(?!\s+(?:OK|[CGT]?NS|DR)\b)|^[= ]*Link Type between two GPUs|^LINK TYPE TABLE:"
        ),
    ),
    ("ibstat", _mark(rb"^CA '")),
    ("ibstatus", _mark(rb"^Infiniband device '")),
    ("ibv_devinfo", _mark(rb"^hca_id:|^[ \t]+GID\[ *\d+\]:[ \t]+[\da-f]*:")),
    (
        "nvbandwidth",
        _mark(
            rb"^nvbandwidth Version|^[> \t]*\[CUDA Bandwidth Test\]"
            rb"|^[> \t]*(?:Host to Device|Device to Host) Bandwidth, \d+ Device"
            rb"|^[> \t]*(?:Running (?:host|device)_to_(?:host|device)_\w+\."
            rb"|memcpy (?:CE|SM) [CG]PU\(row\) )"
        ),
    ),
    (
        "perftest",
        _mark(rb"^[ \t]*#bytes\s+#?iterations\s+BW |(?:RDMA_(?:Write|Read)|Send) BW Test"),
    ),
    ("rdma-statistic", _mark(rb"^link \S+/\d{1,3} [a-z_]+ \d+ ")),
    (
        "rdma-link",
        _mark(
            rb"^(?:\d+: )?link \S+/\d{1,3} (?:\S+ )*state |^\S+ +port +\d{1,3} +==> +\S+ +\("
            rb"|^[^\n]{0,80}\bmlxlink [^\n]{0,80}-d +\S"
            rb"|^(?: *\")?Operational Info(?:[ \t]*$|\" : \{)"
        ),
    ),
    ("show_gids", _mark(rb"^DEV\s+PORT\s+INDEX\s+GID")),
    (
        "perfquery",
        _mark(
            rb"^# Port (?:extended )?counters: |^PortSelect:|^Errors for (?:0x[0-9a-f]+ )?\""
            rb"|^## +\d+ ports checked, 0 ports have errors"
        ),
    ),
    (
        "p2p-test",
        _mark(
            rb"^[> \t]*(?:\[P2P \(Peer-to-Peer\) GPU|(?:Uni|Bi)directional P2P=\w+ Bandwidth"
            rb"|Device=\d+ CAN(?:NOT)? Access Peer Device=|peer2peer (?:not )?supported *:)"
        ),
    ),
    # Of ibqueryerrors, `Link info` names the other end of the port above it.
    ("iblinkinfo", _mark(rb"^(?! +Link info:(?!.*Could)).{1,60}==\( *\d{1,2}X +.{1,60}\)==>")),
    ("sysctl", _mark(NUMA_BALANCING.encode())),
    ("dev-infiniband", _mark(DEV_LISTED.encode())),
    ("imex", _mark(rf"^Connectivity Table Legend|^Node #\d+\s|{LISTED}|{NOT_LISTED}".encode())),
    (
        "lspci",
        _mark(rb"^" + _BUS + rb" (?:[A-Z0-9][^\n:]*(?:\[[0-9a-f]{4}\])?: |[0-9a-f]{4}: )"),
    ),
    ("dmesg", _mark(KERNEL_LINE.encode())),
    ("nvidia-version", _mark(rb"^NVRM version: ")),
    (
        "modules",
        _mark(
            rb"^Module +Size +Used by|^\w+ \d+ \d+ \S+ Live 0x|^[^\n]{0,80}[$#] *(?:sudo )?lsmod\b"
            rb"|^(?:nv|ib_|mlx|rdma_|amd|gdr|efa|i?rdma|bnxt)\w* {2,}\d{4,9} +\d+(?: |$)"
        ),
    ),
    ("iommu", _mark(rb"^[^\n]{0,80}/iommu_groups/\S*/type\b|^ *\d+ DMA(?:-FQ)?$")),
    ("cmdline", _mark(rb"^(?:BOOT_IMAGE|initrd|root)=\S+ [^\n]*$")),
    ("lscpu", _mark(rb"^Architecture: +\w|^On-line CPU\(s\) list:|^available: \d+ nodes? \(")),
    ("cpuinfo", _mark(rb"^(?:processor|vendor_id|CPU implementer)\s*: ")),
    ("meminfo", _mark(rb"^MemTotal: +\d+ kB")),
    ("docker-inspect", _mark(rb'^[ \t]*"(?:HostConfig|ShmSize|IpcMode)": ?["{\d]')),
    ("df-shm", _mark(rb"^Filesystem +.*Mounted on|^(?:shm|tmpfs) +[\d.]+[^\n]* /dev/shm$")),
    ("ulimit", _mark(rb"^(?:core file size|open files|max locked memory) +\(|" + _ULIMIT)),
    ("limits", _mark(rb"^Limit +Soft Limit")),
    ("status", _mark(rb"^Cpus_allowed_list:|^CapEff:")),
    ("cgroup", _mark(rb"\A\d+:[\w,=-]*:/")),
    ("mounts", _mark(rb"^\S+ /\S* (?:overlay|ext4|xfs|tmpfs|nfs4?|btrfs|sysfs)\b")),
    (
        "addresses",
        _mark(
            rb"^\d+: [\w.@:-]+(?:: <|\s+inet6? )|^[\w.@:-]+ +Link encap:|^[\w.@:-]+: flags=\d+<"
            rb"|^lo +(?:UP|UNKNOWN) +(?:127\.|00:00:)"
        ),
    ),
    (
        "services",
        _mark(
            rb"^Id=\S+\.service$|^[a-z][a-z\d@.-]* +(?:active|inactive|failed|not-found)$"
            rb"|^[^\w\n]{0,5}[\w@.-]+\.service - |\bUnit \S+\.service (?:could not|not|is masked)"
        ),
    ),
    (
        "ethtool",
        _mark(rb"^== \S+\n(?:driver: |NIC statistics:)|^NIC statistics:|^Settings for [\w.@:-]+:"),
    ),
    ("ldconfig", _mark(rb"\blibs found in cache|^\t\S+\.so\S* \(libc6")),
    ("ofed", _mark(rb"\A(?:MLNX_OFED_LINUX|OFED-internal|DOCA)-")),
    ("gcloud", _mark(rb'\A\s*\{(?s:.)*"selfLink"')),
    ("aws-topology", _mark(rb'"NetworkNodes"\s*:')),
    ("aws-instance-type", _mark(rb'"InstanceTypes"\s*:')),
    ("cloud-metadata", _mark(rb'\A\s*\{(?s:.)*"(?:vmSize|instanceType|machineType)"\s*:')),
    ("lspci-tree", _mark(rb"^[ +-]*-\[[0-9a-f]{4}:[0-9a-f]{2}(?:-[0-9a-f]{2})?\]-")),
    ("acs", _mark(rb"^[ \t]*(?:ACSCtl|LnkSta):\s")),
    (
        "ethtool",
        _mark(rb"^[^\n]{0,80}[$#] *(?:sudo )?ethtool (?:-[Si] +)?\w\S*|^ {3,}(?:rx|tx)_\w+: \d+$"),
    ),
    (
        "env",
        _mark(
            rb"^[^\n]{0,80}[$#] *(?:env|printenv)(?: [^\n]{0,60})?\n(?:declare -x )?[A-Za-z_]\w*="
        ),
    ),
    ("rocm-smi", _mark(rb"^=+ ROCm System Management Interface =|^(?:ACCESS|WEIGHT|HOPS) TABLE:")),
    (INDEX, _mark(rb"^by\tnccltune ")),
    (
        OUTPUT,
        _mark(
            rb"^provider: [\w;]+\n +fabric: "
            rb"|^\| (?:Diagnostic +\| Result|Health Monitor Report)|\bnhc: +Health check "
            rb"|\"communicators_count\" *:|^Group +Comms +Nodes +Ranks"
        ),
    ),
)
_BY_ITEM = dict(reversed(_MARKS))
_DOCUMENTS = frozenset(
    {*("topology", "graph", "gcloud", "aws-topology", "aws-instance-type", "cloud-metadata"), INDEX}
)
"""Items that are a whole file, never one of the outputs in a text."""
# Marks that are tried only if the file is named after the item. They also match other files.
# For GPUs without NVLink, `nvidia-smi nvlink -s` prints the GPU line only.
_HINTED = {
    "dmesg": _mark(rb"^(?:<\d+>)?\[ *\d+\.\d+\] |^\S* ?kernel: "),
    "nvlink": _mark(rb"^\s+Link \d{1,3}: [\d<]|\A(?:GPU \d{1,4}: [^\n]*\n?)+\Z"),
    "libraries": _mark(rb"\A/[^\n:]+(?: -> |:)"),
    "plugins": _mark(rb"\A== \w+\t"),
    "profiles": _mark(rb"\A/[^\n:]+:\d+:"),
    "logind": _mark(rb"\A/[^\n:]+:\d+:"),
}
_SAME_MARK = {
    **{f"p2p-{kind}": "p2p-r" for kind in "wnap"},
    "nvidia-smi-sm": "nvidia-smi",
    "nvidia-smi-fabric": "nvidia-smi",
    "vm-host-lspci": "lspci",
    "given-topology": "topology",
    "virtual-topology": "topology",
    "given-graph": "graph",
}
"""Items with the same mark as another item. Only the file name distinguishes the two items."""
_TREES = (
    (b"/sys/bus/pci/", "pci"),
    (b"/sys/kernel/iommu_groups", "iommu"),
    (b"/sys/class/net/", "net"),
    (b"/sys/class/infiniband/", "rdma"),
    (b"/sys/devices/system/", "cpu"),
    (b"/dev/", "devices"),
    (b"/sys/", "system"),
    (b"/proc/", "system"),
)
_WITHOUT_ERRORS = frozenset({"topology", "graph", "nvidia-smi"})
"""Texts that are read for failures anyway, or whose words state none."""
_TREE_LINE = re.compile(rb"^(?:[-dlcbps][-rwxsStT]{9}[^\n]*? )?(/(?:sys|proc|dev)/[^\s:]+)", re.M)
_PATH_LINE = re.compile(rb"^(?:[-dlcbps][-rwxsStT]{9}[^\n]*? )?/\S", re.M)
_TREE_ITEMS = frozenset(item for _, item in _TREES) | {"counters"}
_LISTED = frozenset({"profiles", "logind", "libraries", "plugins"})
_SETTINGS = frozenset({"env", "etc-nccl-conf", "user-nccl-conf", "named-nccl-conf"})
_OFTEN_EMPTY = _TREE_ITEMS | _LISTED | _SETTINGS | {"packages", "cmdline", "modules", "dmesg"}
"""Items whose file may be empty. An empty file means that the node has no such entry."""
_COUNTER = re.compile(
    rb"^(?:[^\n]{0,80}[ \"'])?/sys/class/infiniband/[^/\n]+/ports/\d+/(?:hw_)?counters\b", re.M
)
_SCRIPT = re.compile(
    rb"^FROM \S+(?: AS \S+)?$|^#(?:SBATCH|PBS|BSUB|FLUX|OAR|\$) |^apiVersion: *\S|^services: *$"
    rb"|\A#!\s*/\S*(?:sh|env bash)\b|^[ \t]*(?:if|for|while) .*(?:then|do)$|^[ \t]*(?:fi|done)$",
    re.M,
)
_JOB = re.compile(
    _SCRIPT.pattern
    + rb"|^[ \t]*(?:exec +|time +|[$#] *)?(?:/\S+/)?(?:mpirun|mpiexec(?:\.hydra)?|srun|torchrun"
    rb"|prterun|deepspeed|accelerate launch) +(?:-|\\\n)",
    re.M,
)
_ASSIGNED = re.compile(rb"\s*(?:\$ +)?(?:declare -x +|export +)?[A-Za-z_]\w*=")
_LOG = (b"NCCL INFO ", b"NCCL WARN ", b"NCCL version ")
_TEST = (
    *(b"nThread ", b"out-of-place", b"Avg bus bandwidth", b"# Collective test", b"Out of bounds"),
    *(b"busbw #wrong", b"busbw  error", b'"nwrong"', b"# Using devices"),
)
# A row alone, with a launcher's tag before it or not.
_TEST_ROW = re.compile(
    rb"^(?:\[[\d,]+\]\S{0,12}|\d+:)?[ \t]*\d+\s+\d+\s+(?:u?int\d+|half|float|double|b?float\d+|fp8"
    rb"|f8)\w*\s+(?:sum|prod|min|max|avg|none|all|mulsum)\s+(?:-?\d+)?(?:\[\d+\])?\s+\d+"
    rb"(?:\.\d|\s+\d+\.\d)",
    re.M,
)
# What PyTorch, DeepSpeed, vLLM, SGLang and MLPerf print, also where all is well.
_PROGRAM = re.compile(
    rb"(?<![-\w])backend(?:=| )nccl\b|\bProcessGroupNCCL\.cpp:\d|\busing nccl==\d"
    rb"|\bFound nccl from library|^(?:\d+: )?:::MLLOG ",
    re.M,
)
_DIAGNOSTICS = b"NCCL DIAG "
_TOPO_PCI = re.compile(PCI_MATRIX.pattern.encode())
"""The same matrix of the same machine, with PCIe alone."""
_ONCE = {
    "nvidia-smi": _mark(rb"^\| NVIDIA-SMI "),
    "rdma-link": _mark(rb"^\S+ +port +\d{1,3} +==>"),
    **{item: _BY_ITEM[item] for item in ("topo", "show_gids", "ibv_devinfo", "ibstat")},
}
"""What one output of a tool has once, or once of each device."""


_COMMAND = re.compile(rb"== \S|[^\s$]{0,80}\$ ")


class FileItems(NamedTuple):
    """Items in a file.

    - `sure`: false if only the file name identifies the item
    - `sections`: offsets in bytes of the parts that an item has of a file with several outputs. An
      item without sections is the whole file.
    - `unclear`: items that the file has of several machines, with the offsets of each output. They
      are in no other field.
    """

    items: tuple[str, ...]
    sure: bool
    sections: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({})
    unclear: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType({})


def kinds_of(name: str, data: bytes, *, collected: bool = False) -> FileItems:
    """Return the items in a file, or no item if neither content nor name identifies an item.

    One file can hold several items: a test under NCCL_DEBUG=INFO prints its table, a log and NCCL's
    diagnostics. A file that a collector wrote has one item, which its name identifies.
    """
    hint, end = item_of_name(name)
    head = data[:HEAD_BYTES]
    same = _SAME_MARK.get(hint, hint)
    mark = _HINTED.get(hint) or _BY_ITEM.get(same)
    is_named = mark is not None and mark.search(head) is not None
    # A cluster has a hundred thousand files of a collector. In the others anything may be.
    if is_named and (collected or hint in _DOCUMENTS or hint in _LISTED):
        return FileItems((hint,), sure=True)
    if is_source(name):
        # Its comments, tables and searches hold words and lines of failures that did not happen.
        return FileItems((), sure=False)
    is_image = _IMAGE_NAME.search(name) is not None
    printed = tuple(item for item, is_in in _PRINTED if not is_image and is_in(data))
    if not printed and (is_image or end in _JOBS) and not head.lstrip().startswith(b"<"):
        return FileItems(("job",), sure=_JOB.search(head) is not None)
    sections = {} if head.lstrip()[:1] in (b"<", b"{") else _sections(data[:MOST_PARTED])
    if is_named:
        sections = {hint if item == same else item: spans for item, spans in sections.items()}
    unclear = {
        item: _machines(item, spans, data, bool(printed)) for item, spans in sections.items()
    }
    unclear = {item: spans for item, spans in unclear.items() if spans}
    found = [item for item in sections if item not in (OUTPUT, *unclear)]
    if printed or unclear or (found and len(sections) > 1):
        several = _several(data, printed, sections, found, unclear)
        if is_named and hint not in (*several.items, *unclear):
            several = several._replace(items=(*several.items, hint))
        return several
    by_content = hint if is_named else _by_content(head, hint) or next(iter(found), "")
    if by_content:
        # A pasted job often has its settings first and its errors after them, and a shell's session
        # a tool or program that fails after one that does not.
        if by_content not in {"counters", hint} and _COUNTER.search(head) is not None:
            return FileItems((by_content, "counters"), sure=True)
        # A kernel's log whose lines have no mark of the kernel says nothing of a program.
        is_quiet = by_content in _WITHOUT_ERRORS or (is_named and not sections)
        # A launcher's command with what it printed is no script, and a post has words beside one.
        is_quiet = is_quiet or (by_content == "job" and not _fails_beside_script(data))
        fails = _states_failure(data) or (by_content == "job" and _has_other_lines(data))
        is_program = by_content != "job" and _PROGRAM.search(data) is not None
        items = (by_content, OUTPUT) if is_program or (fails and not is_quiet) else (by_content,)
        return FileItems(items, sure=True)
    if states_failure(data) or has_workaround(data) or _PROGRAM.search(data) is not None:
        return FileItems((OUTPUT,), sure=True)
    if not head.strip():
        return FileItems((hint,), sure=hint in _OFTEN_EMPTY) if hint else FileItems((), sure=False)
    if hint and not _is_other(hint, head):
        return FileItems((hint,), sure=False)
    return FileItems((), sure=False)


def _is_log(data: bytes) -> bool:
    return any(mark in data for mark in _LOG)


def _is_test(data: bytes) -> bool:
    return any(mark in data for mark in _TEST) or _TEST_ROW.search(data[:HEAD_BYTES]) is not None


_PRINTED = (
    ("log", _is_log),
    ("test", _is_test),
    ("diagnostics", lambda data: _DIAGNOSTICS in data),
)


def _states_failure(data: bytes) -> bool:
    """Return whether a line that the kernel did not print states a failure."""
    return states_failure(data) and states_failure(
        without_kernel_lines(data.decode(errors="replace")).encode()
    )


_AFTER_SCRIPT = re.compile(
    rb"^(?:```|Traceback \(most|(?:\[rank\d+\]: ?|\d+: ?)?(?:\w+\.)*\w+(?:Error|Exception): "
    rb"|[WEF] ?\S{1,200}\.(?:cc|cpp|cu):\d+\]|\S+: Test (?:NCCL|CUDA) failure"
    rb"|(?:srun|slurmstepd): error: )",
    re.M,
)


def _fails_beside_script(data: bytes) -> bool:
    """Return whether a text with a script states a failure before it, after the fence that ends it,
    or from the first line on that a program printed; True for a text without a script."""
    script = _SCRIPT.search(data)
    if script is None:
        return True
    end = _AFTER_SCRIPT.search(data, script.end())
    after = data[end.start() :] if end is not None else b""
    return _states_failure(data[: script.start()] + b"\n" + after)


# A line of words that a person wrote, beside commands: a capital letter or a full stop.
_PROSE = re.compile(
    rb"^(?![ \t]*(?:#|echo |printf ))(?:[ \t>*]*(?:[A-Z][a-z']*(?:,? [A-Za-z'-]+){2}(?:[ ,.?!:]|$)"
    rb"|[A-Za-z',-]+(?: [A-Za-z',-]+){2,20}[.?!:](?:\s|$))|[^\n]{0,200}[\x80-\xff]{6})",
    re.M,
)


def _has_other_lines(data: bytes) -> bool:
    """Return whether a command that is no script stands among words of a person: a post."""
    return _SCRIPT.search(data) is None and _PROSE.search(data[:HEAD_BYTES]) is not None


def _several(
    data: bytes,
    printed: tuple[str, ...],
    sections: Mapping[str, Sequence[tuple[int, int]]],
    found: list[str],
    unclear: Mapping[str, Sequence[tuple[int, int]]],
) -> FileItems:
    """Return the items of a text with several outputs. Logs and failures may be anywhere in it."""
    whole = list(printed)
    if printed and has_kernel_lines(data.decode(errors="replace")):
        whole.append("dmesg")
    if _COUNTER.search(data[:MOST_PARTED]) is not None:
        whole.append("counters")
    if not printed and (OUTPUT in sections or _states_failure(data)):
        whole.append(OUTPUT)
    parts = {item: sections[item] for item in found if item not in whole}
    items = (*whole[: len(printed)], *parts, *whole[len(printed) :])
    return FileItems(items, sure=True, sections=parts, unclear=unclear)


def _machines(
    item: str, spans: Sequence[tuple[int, int]], data: bytes, beside_log: bool
) -> list[tuple[int, int]]:
    """Return the offsets of the outputs of a tool on several machines, none for one machine.

    Of a tool that no log is beside, a reader takes both, except two matrices.
    """
    if item == "topology" and len(spans) > 1:
        # The first section has the words before it, which name its machine.
        return [(data.rfind(b"<system", *spans[0]), spans[0][1]), *spans[1:]]
    if item not in _ONCE or not (beside_log or item == "topo"):
        return []
    starts: list[int] = []
    lines: set[bytes] = set()
    end = 0
    for match in _ONCE[item].finditer(data):
        line = data[match.start() : data.find(b"\n", match.end())].partition(b"==>")[0]
        before, end = data[end : match.start()], match.end()
        if item == "topo" and _TOPO_PCI.search(before) is not None:
            continue
        if not starts or line in lines or not item.startswith(("ib", "rdma")):
            starts.append(match.start())
            lines = set()
        lines.add(line)
    return list(pairwise((*starts, len(data)))) if len(starts) > 1 else []


def _by_content(head: bytes, hint: str) -> str:
    tree = _TREE_LINE.search(head)
    if tree is not None and hint in _TREE_ITEMS:
        return hint
    for item, mark in _MARKS:
        if mark.search(head):
            return hint if _SAME_MARK.get(hint) == item else item
    if _COUNTER.search(head) is not None:
        return "counters"
    if tree is not None and hint not in _LISTED:
        return next((item for start, item in _TREES if tree[1].startswith(start)), "")
    if _JOB.search(head) is not None:
        return "job"
    if _is_settings(head):
        return hint if hint in _SETTINGS else "env"
    return ""


def _sections(data: bytes) -> dict[str, list[tuple[int, int]]]:
    """Return the offsets of the parts of each tool's outputs in a text, in order of the text.

    An output goes on to the next line with which the output of another tool begins, or to the
    command before that line. Text before the first output belongs to it.
    """
    text, places = _beside_log(data)
    begins = [begin for begin, _ in places]
    starts: dict[int, str] = {}
    # Two marks can match on the same line. Then the earlier one in _MARKS is used.
    for item, mark in _MARKS:
        for match in () if item in _DOCUMENTS else mark.finditer(text):
            at = text.rfind(b"\n", 0, match.start()) + 1
            before = text.rfind(b"\n", 0, max(at - 1, 0)) + 1
            at = before if _COMMAND.match(text, before, at) else at
            begin, offset = places[bisect_right(begins, at) - 1]
            starts.setdefault(at - begin + offset, item)
    for dump in dumps_in(text):
        if text[dump[0] : dump[1]].endswith(b"</system>"):
            at, after = (
                offset + at - begin
                for at in (dump[0], dump[1] - 1)
                for begin, offset in (places[bisect_right(begins, at) - 1],)
            )
            starts = {start: item for start, item in starts.items() if not at <= start <= after}
            starts |= {at: "topology", after + 1: ""}
    # NCCL's log ends an output.
    if places[0][1]:
        starts[0] = ""
    for (begin, offset), (end, _) in pairwise(places):
        starts[offset + end - begin] = ""
    if "lspci" in starts.values():
        starts = {start: item for start, item in starts.items() if item != "acs"}
    begun = [(item, next(run)[0]) for item, run in groupby(sorted(starts.items()), itemgetter(1))]
    found: dict[str, list[tuple[int, int]]] = {}
    for number, (item, start) in enumerate(begun):
        end = begun[number + 1][1] if number + 1 < len(begun) else len(data)
        if item:
            found.setdefault(item, []).append((start if number else 0, end))
    return found


def _beside_log(data: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """Return a text without the lines of NCCL's log, and where each piece of it begins: in the
    result, and in `data`. In a large log all marks would take seconds."""
    places = [(0, 0)]
    if not _is_log(data):
        return data, places
    pieces: list[bytes] = []
    size = offset = 0
    for line in data.splitlines(keepends=True):
        offset += len(line)
        if not any(mark in line for mark in _LOG):
            pieces.append(line)
            size += len(line)
        elif places[-1][0] == size:
            places[-1] = (size, offset)
        else:
            places.append((size, offset))
    return b"".join(pieces), places


def _is_settings(head: bytes) -> bool:
    """Return whether most lines are `NAME=value`: an environment, or a file of NCCL's settings.

    Either has a name once: lines of one name are commands of several processes.
    """
    lines = [line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#")]
    names = {match[0] for line in lines if (match := _ASSIGNED.match(line))}
    return bool(names) and 2 * len(names) > len(lines)


def _is_other(hint: str, head: bytes) -> bool:
    """Return whether the content of a file that is named `hint` cannot be the item `hint`."""
    if hint in _TREE_ITEMS:
        return _PATH_LINE.search(head) is None
    if hint in _SETTINGS:
        return True
    return head.lstrip().startswith(b"<")


def plain_bytes(data: bytes) -> bytes:
    """Return a text in UTF-8 without a byte order mark."""
    encoding = encoding_of(data[:4])
    if encoding != "utf-8-sig":
        return data.decode(encoding, errors="replace").encode(errors="replace")
    return data[3:] if data.startswith(b"\xef\xbb\xbf") else data

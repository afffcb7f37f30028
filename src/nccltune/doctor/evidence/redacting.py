# SPDX-License-Identifier: Apache-2.0
"""Remove serial numbers, hardware addresses and secrets from raw text before it leaves a node.

Host names, IP addresses, GIDs and paths are kept, because rules need these and users must recognise
their nodes. `docs/reference/collecting.md` lists all text that is removed or kept.
"""

import re
from collections.abc import Iterable

from nccltune.doctor.evidence.catalogue import SETTINGS
from nccltune.doctor.evidence.parsers.kernel_log import wanted
from nccltune.formats.text.redact import SECRET_NAME

GONE = "(redacted)"
_SECRET_VALUE = re.compile(r"://[^/@\s]*:[^/@\s]*@|-----BEGIN|\b[A-Za-z0-9+/_=-]{40,}\b", re.ASCII)
_UUID = re.compile(r"\b(?P<kind>GPU-|MIG-|)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_MAC = re.compile(r"\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}(?:(?::[0-9a-fA-F]{2}){14})?\b")
_XML_SERIAL = re.compile(
    r"<(?P<tag>serial|uuid|pdi|board_part_number|chassis_serial_number|gpu_fabric_guid|process_name)"
    r">[^<]*<"
)
_TEXT_SERIAL = re.compile(
    r"^(?P<label>\s*(?:Serial Number|GPU UUID|GPU PDI|Chassis Serial Number|GPU Fabric GUID"
    r"|\[SN\][^:]*|Device Serial Number)\s*:?).*$",
    re.M,
)
LIBRARY_WORDS = ("libnccl", "libibverbs", "libfabric", "libmlx5", "librdmacm")
_LIBRARY = re.compile("|".join(LIBRARY_WORDS))
_PROCESSES = re.compile(r"<processes>.*?</processes>", re.S)
CMDLINE_NAMES = (
    "(intel_|amd_)?iommu",
    "pci",
    "pcie_[a-z_]+",
    "numa_balancing",
    "mitigations",
    "intel_idle[.][a-z_]+",
    "processor[.][a-z_]+",
    "cpuidle[.][a-z_]+",
    "idle",
    "intel_pstate",
    "amd_pstate",
    "hugepages",
    "hugepagesz",
    "default_hugepagesz",
    "isolcpus",
    "nohz_full",
    "nohz",
    "rcu_nocbs",
    "transparent_hugepage",
    "nvidia[A-Za-z0-9_.-]*",
    "mlx5_[a-z]+[.][a-z_]+",
    "swiotlb",
    "numa",
    "tsc",
    "clocksource",
    "BOOT_IMAGE",
    "vfio[a-z_.-]*",
)
"""Kernel parameters whose values are kept, as extended regular expressions."""
_CMDLINE = re.compile(f"^(?:{'|'.join(CMDLINE_NAMES)})$")


def plain_text(text: str) -> str:
    """Return a text without serial numbers, UUIDs and MAC addresses."""
    if "<" in text:
        text = _PROCESSES.sub("<processes></processes>", text)
        text = _XML_SERIAL.sub(lambda match: f"<{match['tag']}>{GONE}<", text)
    text = _TEXT_SERIAL.sub(lambda match: f"{match['label']} {GONE}", text)
    if "-" in text:
        text = _UUID.sub(lambda match: f"{match['kind']}{GONE}", text)
    return _MAC.sub(GONE, text) if ":" in text else text


def kept_name(name: str) -> bool:
    """Return whether a setting of that name is kept: `CUDA_VISIBLE_DEVICES`, not `PATH`."""
    return name.startswith(SETTINGS) and name.replace("_", "").isalnum() and name.isascii()


def kept_value(name: str, value: str) -> str:
    """Return at most 4096 characters of a setting's value, or GONE if the value is a secret."""
    if SECRET_NAME.search(name) or _SECRET_VALUE.search(value):
        # A long list of folders matches _SECRET_VALUE but is not a secret.
        is_path = name.endswith(("PATH", "PRELOAD", "FILE", "PLUGIN", "DIR"))
        if SECRET_NAME.search(name) or not is_path or "://" in value or "BEGIN" in value:
            return GONE
    return value[:4096]


def plain_cmdline(text: str) -> str:
    """Return the kernel's command line up to `--`. Only values of CMDLINE_NAMES are kept."""
    words = []
    for word in text.split():
        if word == "--":
            # Words after `--` are for the init program and may contain secrets.
            break
        name, sign, _ = word.partition("=")
        words.append(word if not sign or _CMDLINE.match(name) else f"{name}={GONE}")
    return " ".join(words) + "\n"


def plain_environment(entries: Iterable[tuple[str, str]]) -> str:
    """Return `NAME=value` lines of the settings that are kept, sorted. Line ends in values become
    spaces."""
    lines = [
        f"{name}={kept_value(name, value)}".replace("\n", " ").replace("\r", " ")
        for name, value in sorted(entries)
        if kept_name(name)
    ]
    return "".join(f"{line}\n" for line in lines)


def plain_conf(text: str) -> str:
    """Return a configuration file of NCCL with the same line numbers. The text of comments, secrets
    and values of other programs' settings are removed."""
    out = []
    for line in text.split("\n"):
        name, sign, value = line.partition("=")
        if line.startswith("#") or not sign:
            out.append("#" if line.startswith("#") else "")
        else:
            out.append(f"{name}={kept_value(name, value)}" if kept_name(name) else f"{name}={GONE}")
    return "\n".join(out)


def plain_libraries(text: str) -> str:
    """Return the lines of `ldconfig -p` with libraries that rules need."""
    return "".join(f"{line}\n" for line in text.split("\n") if _LIBRARY.search(line))


MOUNT_POINTS = ("/", "/dev/shm", "/sys")  # noqa: S108  # read, never written


def plain_mounts(text: str) -> str:
    """Return the lines of `/proc/self/mounts` with mount points that rules need, without options.

    The options of an overlay would show the image's layers.
    """
    rows = [line.split(" ")[:3] for line in text.split("\n") if line.count(" ") >= 3]
    return "".join(f"{' '.join(row)}\n" for row in rows if row[1] in MOUNT_POINTS)


def plain_log(text: str) -> str:
    """Return the lines of the kernel's log that rules may use, without what plain_text removes."""
    lines = [line for line in text.split("\n") if wanted(line)]
    return plain_text("".join(f"{line}\n" for line in lines))

# SPDX-License-Identifier: Apache-2.0
"""The NCCL settings that change paths, parsed as NCCL parses them (`graph/paths.cc`)."""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum

import msgspec

from nccltune.model.errors import InputError
from nccltune.topology.hardware.bandwidth import Version


class PathKind(IntEnum):
    """NCCL's path types, best first (`PATH_*`, NCCL 2.27.5 and later)."""

    LOC = 0
    """Within the device itself."""
    NVL = 1
    """NVLink, also through NVSwitches."""
    NVB = 2
    """NVLink through one other GPU."""
    C2C = 3
    """NVLink-C2C between GPU and CPU."""
    PIX = 4
    """At most one PCIe bridge."""
    PXB = 5
    """Several PCIe bridges, no CPU."""
    P2C = 6
    """C2C from the GPU to the CPU, PCIe from the CPU to the NIC."""
    PXN = 7
    """To a NIC through the GPU beside that NIC."""
    PHB = 8
    """Through a CPU."""
    SYS = 9
    """Through several CPUs and the links between them."""
    NET = 10
    """Through the network."""
    DIS = 11
    """Not connected."""


_DIGITS = (
    PathKind.LOC, PathKind.PIX, PathKind.PXB, PathKind.PHB, PathKind.SYS, PathKind.SYS
)  # fmt: skip
"""The path kinds for the digits 0 to 5. Levels were digits before NCCL gave them names."""


class PathSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that change paths; None is NCCL's default, by version and hardware."""

    p2p_level: PathKind | None = None
    """NCCL_P2P_LEVEL: the worst path that P2P uses. With NCCL_P2P_DISABLE=1: LOC, so no P2P."""
    gdr_level: PathKind | None = None
    """NCCL_NET_GDR_LEVEL: the worst path that GPUDirect RDMA uses."""
    gdr_read: bool | None = None
    """NCCL_NET_GDR_READ: whether a NIC reads GPU memory when it sends."""
    gdr_c2c: bool | None = None
    """NCCL_NET_GDR_C2C: whether GPUDirect RDMA may go through C2C and the CPU."""
    pxn: bool = True
    """Whether NCCL uses PXN. False if NCCL_PXN_DISABLE=1."""
    pxn_c2c: bool | None = None
    """NCCL_PXN_C2C: whether PXN may use a NIC that its GPU reaches over C2C and the CPU."""
    nvb: bool = True
    """Whether NCCL uses paths of kind NVB. False if NCCL_NVB_DISABLE is set and not 0."""


_LAST = 999
"""The third number that stands for the last release of a minor version."""


def parse_version(text: str, where: str | None = None) -> Version:
    """Return a version; `2.28` is the last release of 2.28. Raises InputError, at `where`."""
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?:[-+.]\S*)?", text.strip())
    if found is None:
        raise InputError(f"'{text}' is not an NCCL version", where=where, hint="write it as 2.28.9")
    major, minor, patch = found.groups()
    return (int(major), int(minor), int(patch) if patch is not None else _LAST)


def version_text(version: Version) -> str:
    """Return a version as text; `2.28` for the last release of 2.28."""
    return ".".join(map(str, version if version[2] != _LAST else version[:2]))


def known_version(text: str | None) -> Version | None:
    """Return the version that `text` spells; None if it spells none."""
    try:
        return parse_version(text or "")
    except InputError:
        return None


def parse_settings(words: Iterable[str]) -> dict[str, str]:
    """Return the settings in words `NCCL_X=VALUE`. Raises InputError for any other word."""
    settings = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name.startswith("NCCL_"):
            raise InputError(
                f"'{word}' is not an NCCL setting", hint="write it as NCCL_P2P_LEVEL=SYS"
            )
        settings[name] = value
    return settings


def path_settings(settings: Mapping[str, str]) -> PathSettings:
    """Return the path settings among `NCCL_*`; what NCCL cannot parse is ignored, too."""
    p2p = level_of(settings.get("NCCL_P2P_LEVEL"))
    if _number(settings.get("NCCL_P2P_DISABLE")) == 1:
        p2p = PathKind.LOC
    read = _number(settings.get("NCCL_NET_GDR_READ"))
    return PathSettings(
        p2p_level=p2p,
        gdr_level=level_of(settings.get("NCCL_NET_GDR_LEVEL")),
        gdr_read=None if read is None or read < 0 else read != 0,
        gdr_c2c=_flag(settings.get("NCCL_NET_GDR_C2C")),
        pxn=_number(settings.get("NCCL_PXN_DISABLE")) != 1,
        pxn_c2c=_flag(settings.get("NCCL_PXN_C2C")),
        nvb=not _number(settings.get("NCCL_NVB_DISABLE")),
    )


def level_of(text: str | None) -> PathKind | None:
    """Return the path kind of a name up to SYS, or an old digit; None if NCCL ignores it."""
    if text is None:
        return None
    if text in PathKind.__members__ and PathKind[text] <= PathKind.SYS:
        return PathKind[text]
    if text[:1].isdigit() and text[:1].isascii():
        return _DIGITS[min(_number(text) or 0, len(_DIGITS) - 1)]
    return None


def _number(text: str | None) -> int | None:
    """Return the whole number (at most 9 digits) at the start of a text; None if there is none."""
    if text is None:
        return None
    text = text.strip()
    sign = text[:1] in "+-" and text[:1] != ""
    digits = ""
    for char in text[1:] if sign else text:
        if not ("0" <= char <= "9") or len(digits) == 9:
            break
        digits += char
    if not digits:
        return None
    return -int(digits) if text[0] == "-" else int(digits)


def _flag(text: str | None) -> bool | None:
    number = _number(text)
    return None if number is None else number != 0


class PathRules:
    """The path rules that differ between versions of NCCL."""

    def __init__(self, version: Version | None) -> None:
        since = version if version is not None else (1 << 30, 0, 0)
        self.by_kind = since >= (2, 30, 7)
        """Paths compare by kind, bandwidth, hops; before, by bandwidth without more hops."""
        self.widest_cpu = since >= (2, 30, 7)
        """The CPU of a GPU is the one of the widest path, before of the fewest hops."""
        self.c2c_as_nvlink = since < (2, 26, 0)
        """C2C counts as NVLink."""
        self.p2c = since >= (2, 27, 0)
        """A path over C2C and then PCIe has its own kind, P2C."""
        self.p2c_nearest_only = since >= (2, 29, 0)
        """The kind P2C applies only to the nearest NICs of a GPU."""
        self.far_nics_bounce = since < (2, 21, 0)
        """A path to a NIC that crosses a CPU, without GPUDirect RDMA, uses the GPU's CPU."""
        self.pxn_needs_gdr = since >= (2, 30, 0)
        """PXN requires that the GPU beside the NIC can send with GPUDirect RDMA."""
        self.pxn_c2c = since >= (2, 28, 0)
        """Default of NCCL_PXN_C2C."""
        self.gdr_c2c = since >= (2, 27, 0)
        """Default of NCCL_NET_GDR_C2C."""
        self.p2c_as_c2c = since < (2, 29, 0)
        """NCCL_NET_GDR_LEVEL treats a path of kind P2C like one of kind C2C."""
        self.amd_pairs_only = since >= (2, 23, 0)
        """P2P on AMD crosses a CPU only with at most two GPUs in the node."""
        self.shares_by_rest = (2, 30, 7) <= since < (2, 31, 0)
        """In 2.30.7 a GPU's first NIC is its index modulo the sharing GPUs, else the index."""
        self.read_from_sm80 = since >= (2, 19, 1)
        """GPUDirect RDMA reads are on by default from compute capability 8.0."""

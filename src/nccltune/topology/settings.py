# SPDX-License-Identifier: Apache-2.0
"""The settings of NCCL that change paths, read as NCCL reads them (`graph/paths.cc`)."""

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum

import msgspec

from nccltune.model.errors import InputError
from nccltune.topology.bandwidth import Version


class PathKind(IntEnum):
    """NCCL's path types, best first (`PATH_*`, 2.27.5 and later)."""

    LOC = 0
    """The device itself."""
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
    """C2C to the CPU, PCIe from there."""
    PXN = 7
    """To a NIC through the GPU beside it."""
    PHB = 8
    """Through a CPU."""
    SYS = 9
    """Between CPUs."""
    NET = 10
    """Through the network."""
    DIS = 11
    """Not connected."""


_DIGITS = (
    PathKind.LOC, PathKind.PIX, PathKind.PXB, PathKind.PHB, PathKind.SYS, PathKind.SYS
)  # fmt: skip
"""What the digits 0 to 5 mean, from before levels had names."""


class PathSettings(msgspec.Struct, frozen=True, kw_only=True):
    """None is NCCL's default, which may depend on version and hardware."""

    p2p_level: PathKind | None = None
    """NCCL_P2P_LEVEL, or LOC under NCCL_P2P_DISABLE=1."""
    gdr_level: PathKind | None = None
    """NCCL_NET_GDR_LEVEL."""
    gdr_read: bool | None = None
    """NCCL_NET_GDR_READ: whether a NIC reads a GPU's memory when it sends."""
    gdr_c2c: bool | None = None
    """NCCL_NET_GDR_C2C: GPUDirect RDMA through C2C and the CPU."""
    pxn: bool = True
    """Not NCCL_PXN_DISABLE."""
    pxn_c2c: bool | None = None
    """NCCL_PXN_C2C."""
    nvb: bool = True
    """Not NCCL_NVB_DISABLE."""


def parse_version(text: str) -> Version:
    """`2.28.9`, or `2.28` for its last release. Raises InputError."""
    found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?(?:[-+.]\S*)?", text.strip())
    if found is None:
        raise InputError(f"'{text}' is no version of NCCL", hint="write it as 2.28.9")
    major, minor, patch = found.groups()
    return (int(major), int(minor), int(patch) if patch is not None else 999)


def parse_settings(words: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` words. Raises InputError for one without a sign or of no `NCCL_` name."""
    settings = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name.startswith("NCCL_"):
            raise InputError(
                f"'{word}' is no setting of NCCL", hint="write it as NCCL_P2P_LEVEL=SYS"
            )
        settings[name] = value
    return settings


def path_settings(settings: Mapping[str, str]) -> PathSettings:
    """From `NCCL_*` settings; what NCCL would not understand it ignores, and so does this."""
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
    """A level's name up to SYS, or an old digit; None where NCCL would ignore it."""
    if text is None:
        return None
    if text in PathKind.__members__ and PathKind[text] <= PathKind.SYS:
        return PathKind[text]
    if text[:1].isdigit() and text[:1].isascii():
        return _DIGITS[min(_number(text) or 0, len(_DIGITS) - 1)]
    return None


def _number(text: str | None) -> int | None:
    """A whole number at the start of a text, at most 9 digits of it."""
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


class PathRules(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between versions of NCCL."""

    by_kind: bool
    """The kind of a path counts before its bandwidth and hops. Before 2.30.7 a path with fewer
    hops, or none longer with more bandwidth, counted first."""
    widest_cpu: bool
    """A GPU's CPU is the one with the widest path: since 2.30.7. Before, with the fewest hops."""
    p2c: bool
    """C2C and PCIe together are a kind of their own: since 2.27."""
    p2c_nearest_only: bool
    """Only for a GPU's nearest NICs: since 2.29."""
    pxn_needs_gdr: bool
    """The GPU beside the NIC must be able to send with GPUDirect RDMA: since 2.30."""
    pxn_c2c: bool
    """Default of NCCL_PXN_C2C: on since 2.28."""
    gdr_c2c: bool
    """Default of NCCL_NET_GDR_C2C: on since 2.27."""
    p2c_as_c2c: bool
    """GPUDirect RDMA over C2C is measured by C2C alone, whatever NCCL_NET_GDR_LEVEL says of PCIe:
    until 2.28."""
    amd_pairs_only: bool
    """On AMD hosts P2P crosses the CPU only where there are two GPUs: since 2.23."""
    read_from_sm80: bool
    """GPUDirect RDMA reads are on by default from compute capability 80: since 2.19.1."""


def rules_of(version: Version | None) -> PathRules:
    """The rules of a version; None is the newest known."""
    newest = (1 << 30, 0, 0)
    since = version if version is not None else newest
    return PathRules(
        by_kind=since >= (2, 30, 7),
        widest_cpu=since >= (2, 30, 7),
        p2c=since >= (2, 27, 0),
        p2c_nearest_only=since >= (2, 29, 0),
        pxn_needs_gdr=since >= (2, 30, 0),
        pxn_c2c=since >= (2, 28, 0),
        gdr_c2c=since >= (2, 27, 0),
        p2c_as_c2c=since < (2, 29, 0),
        amd_pairs_only=since >= (2, 23, 0),
        read_from_sm80=since >= (2, 19, 1),
    )

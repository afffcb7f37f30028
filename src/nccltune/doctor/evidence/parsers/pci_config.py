# SPDX-License-Identifier: Apache-2.0
"""Parse PCI configuration space (`/sys/bus/pci/devices/*/config`), for nodes without `lspci -vvv`.

Root reads 4096 bytes, or 256 bytes of a device that is not PCI Express. Other users read only the
first 64 bytes, which contain no capability.

Offsets are those of the PCI Express Base Specification 6.0: 7.5.3 (PCI Express capability), 7.7.11
(ACS), 10.5.1 (ATS).
"""

from typing import NamedTuple

_EXPRESS, _ACS, _ATS = 0x10, 0x000D, 0x000F
_HAS_LIST = 0x10
_ACS_NAMES = (
    "SrcValid",
    "TransBlk",
    "ReqRedir",
    "CmpltRedir",
    "UpstreamFwd",
    "EgressCtrl",
    "DirectTrans",
)


class PciConfig(NamedTuple):
    """Fields of a configuration space.

    `acs` is in lspci's format, None without the capability. `complete` is true if the extended
    capabilities could be read.
    """

    acs: str | None
    ats: bool | None
    max_read_request: int | None
    complete: bool


def parse_pci_config(data: bytes) -> PciConfig:
    """Parse a device's configuration space, which may be incomplete."""
    express = _capability(data, _EXPRESS)
    request = None
    if express is not None:
        control = _word(data, express + 8)
        if control is not None:
            request = 128 << (control >> 12 & 7)
    acs = ats = None
    # Users other than root get 64 bytes. Root gets 4096, or 256 of a device without PCI Express,
    # which has no extended capabilities. So more than 64 bytes are the complete space.
    complete = len(data) > 64
    if complete:
        at = _extended(data, _ACS)
        if at is not None:
            bits = _word(data, at + 6) or 0
            acs = " ".join(
                f"{name}{'+' if bits >> number & 1 else '-'}"
                for number, name in enumerate(_ACS_NAMES)
            )
        at = _extended(data, _ATS)
        if at is not None:
            ats = bool((_word(data, at + 6) or 0) & 0x8000)
    return PciConfig(acs, ats, request, complete)


def _word(data: bytes, at: int) -> int | None:
    return int.from_bytes(data[at : at + 2], "little") if at + 2 <= len(data) else None


def _capability(data: bytes, wanted: int) -> int | None:
    status = _word(data, 6)
    if status is None or not status & _HAS_LIST or len(data) < 0x40:
        return None
    at, seen = data[0x34] & 0xFC, 0
    while at >= 0x40 and at + 2 <= len(data) and seen < 48:
        if data[at] == wanted:
            return at
        at, seen = data[at + 1] & 0xFC, seen + 1
    return None


def _extended(data: bytes, wanted: int) -> int | None:
    at, seen = 0x100, 0
    while 0x100 <= at <= len(data) - 8 and seen < 480:
        head = int.from_bytes(data[at : at + 4], "little")
        if head in (0, 0xFFFFFFFF):
            return None
        if head & 0xFFFF == wanted:
            return at
        at, seen = head >> 20 & 0xFFC, seen + 1
    return None


def render_pci_config(
    place: str, class_code: str, vendor: str, device: str, config: PciConfig
) -> str:
    """Return the fields in the format of `lspci -Dnn -vvv`, so that `parse_lspci` reads them."""
    lines = [f"{place} Device [{class_code}]: Device [{vendor}:{device}]"]
    if not config.complete:
        return "\n".join([*lines, "\tCapabilities: <access denied>", ""])
    lines.append("\tCapabilities: (from its configuration space)")
    if config.max_read_request is not None:
        lines.append(f"\t\tDevCtl:\tMaxReadReq {config.max_read_request} bytes")
    if config.acs is not None:
        lines.append(f"\t\tACSCtl:\t{config.acs}")
    if config.ats is not None:
        lines.append(f"\t\tATSCtl:\tEnable{'+' if config.ats else '-'}")
    return "\n".join([*lines, ""])

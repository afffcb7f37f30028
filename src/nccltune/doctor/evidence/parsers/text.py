# SPDX-License-Identifier: Apache-2.0
"""What all readers here do alike: bytes to text, words to numbers, bus ids in one form."""

import re
from collections.abc import Iterator

from nccltune.formats.lines import encoding_of

_BUS_ID = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<slot>[0-9a-fA-F]{2})"
    r"\.(?P<function>[0-7])"
)
_INT = re.compile(r"[+-]?\d{1,18}")
_FLOAT = re.compile(r"[+-]?\d{1,15}(?:\.\d{0,15})?(?:[eE][+-]?\d{1,2})?")
LONGEST_LINE = 4096
_ESCAPE = re.compile(rb"\x1b\[[0-9;]*m")
# No byte of these is a part of another character in UTF-8.
_CONTROLS = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n")


def decode(data: bytes) -> str:
    """The text of `data`: UTF-8, or what its byte order mark names; what is not valid becomes
    U+FFFD, line ends become LF. Colours and control characters go: what is read here is shown on
    terminals."""
    encoding = encoding_of(data[:4])
    if encoding != "utf-8-sig":
        data = data.decode(encoding, errors="replace").encode(errors="replace")
    if b"\x1b" in data:
        data = _ESCAPE.sub(b"", data)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.translate(None, _CONTROLS).decode("utf-8-sig", errors="replace")


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, each with its number from 1; of one over LONGEST_LINE characters
    only the beginning. Only LF ends a line."""
    for number, line in enumerate(text.split("\n"), 1):
        shown = line[:LONGEST_LINE]
        if shown and not shown.isspace():
            yield number, shown


def whole(text: str | None) -> int | None:
    """The number at the beginning of `text` (`16x`, `1980 MHz`, `0x1f` only alone); None without
    one."""
    if text is None:
        return None
    text = text.strip()
    if text[:2] in ("0x", "0X"):
        try:
            return int(text, 16) if len(text) <= 18 else None
        except ValueError:
            return None
    match = _INT.match(text)
    return int(match[0]) if match else None


def real(text: str | None) -> float | None:
    """The decimal number at the beginning of `text` (`26.562 GB/s`); None without one."""
    if text is None:
        return None
    match = _FLOAT.match(text.strip())
    return float(match[0]) if match else None


def bus_id(text: str) -> str | None:
    """A PCI address in the form dddd:bb:dd.f, lower case; None where `text` begins with none.

    nvidia-smi writes eight digits of domain, lspci none where there is only one.
    """
    match = _BUS_ID.match(text.strip())
    if match is None:
        return None
    domain = (match["domain"] or "0").lstrip("0").rjust(4, "0")
    return f"{domain}:{match['bus']}:{match['slot']}.{match['function']}".lower()

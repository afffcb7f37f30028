# SPDX-License-Identifier: Apache-2.0
"""Helpers of all parsers: bytes to text, words to numbers, bus ids in one format."""

import re
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from nccltune.formats.text.lines import encoding_of

Record = TypeVar("Record")
Counter = TypeVar("Counter")
_BUS_ID = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<slot>[0-9a-fA-F]{2})"
    r"\.(?P<function>[0-7])"
)
_INT = re.compile(r"[+-]?\d{1,18}")
_FLOAT = re.compile(r"[+-]?\d{1,15}(?:\.\d{0,15})?(?:[eE][+-]?\d{1,2})?")
LONGEST_LINE = 4096
_ESCAPE = re.compile(rb"\x1b\[[0-9;]*m")
# Control characters except tab and LF. In UTF-8 these bytes are never part of another character, so
# they can be removed from undecoded text.
_CONTROLS = bytes(byte for byte in (*range(32), 127) if byte not in b"\t\n")


class Parsed(NamedTuple, Generic[Record]):
    """Records of an output. `unread` counts the lines or cells that could not be parsed."""

    records: list[Record]
    unread: int = 0


class SettingLine(NamedTuple):
    """A setting and its line number."""

    name: str
    value: str
    line: int


def decode(data: bytes) -> str:
    """Return the text of `data`.

    The encoding is UTF-8, or the one of the byte order mark. Invalid bytes become U+FFFD, line ends
    become LF. Colours and control characters are removed, because the text may be printed on
    terminals.
    """
    encoding = encoding_of(data[:4])
    if encoding != "utf-8-sig":
        data = data.decode(encoding, errors="replace").encode(errors="replace")
    if b"\x1b" in data:
        data = _ESCAPE.sub(b"", data)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data.translate(None, _CONTROLS).decode("utf-8-sig", errors="replace")


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, each with its number from 1.

    A line is cut after LONGEST_LINE characters. Only LF ends a line.
    """
    for number, line in enumerate(text.split("\n"), 1):
        shown = line[:LONGEST_LINE]
        if shown and not shown.isspace():
            yield number, shown


def whole(text: str | None) -> int | None:
    """Return the integer at the start of `text` (`16x`, `1980 MHz`), or None.

    A hexadecimal number (`0x1f`) must be the whole text.
    """
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
    """Return the decimal number at the start of `text` (`26.562 GB/s`), or None."""
    if text is None:
        return None
    match = _FLOAT.match(text.strip())
    return float(match[0]) if match else None


def bus_id(text: str) -> str | None:
    """Return a PCI address in the format dddd:bb:dd.f, in lower case.

    Returns None if `text` does not start with a PCI address. nvidia-smi prints eight digits of the
    domain. lspci prints no domain if the machine has only one.
    """
    match = _BUS_ID.match(text.strip())
    if match is None:
        return None
    domain = (match["domain"] or "0").lstrip("0").rjust(4, "0")
    return f"{domain}:{match['bus']}:{match['slot']}.{match['function']}".lower()


def add_reading(readings: list[dict[Counter, int]], key: Counter, value: int) -> None:
    """Add a counter to the last reading. A counter that it has begins the next reading."""
    if not readings or key in readings[-1]:
        readings.append({})
    readings[-1][key] = value

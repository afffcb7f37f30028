# SPDX-License-Identifier: Apache-2.0
"""Bytes to lines in bounded memory, whatever the file holds."""

import codecs
from collections.abc import Callable, Iterator
from typing import BinaryIO

from nccltune.model.errors import InputError

MAX_LINE_BYTES = 1 << 20
"""A longer line is counted as unreadable and never held whole."""
CHUNK_BYTES = 1 << 20
_HEAD_BYTES = 1 << 12
_FOREIGN = 16
"""Bytes that are not UTF-8: fewer say nothing about what a file is."""
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
)
_BINARY_MAGIC = (b"\x7fELF", b"\x89PNG", b"%PDF-", b"GIF8", b"\xff\xd8\xff", b"\xca\xfe\xba\xbe")
# Control characters that text does hold: tab, newline, return, form feed, backspace, escape.
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")

TooLong = Callable[[int, str], None]
Progress = Callable[[int], None]


def encoding_of(head: bytes) -> str:
    """The encoding that a byte order mark names; UTF-8 where there is none."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


def check_text(head: bytes) -> None:
    """Raise InputError where the first bytes of a file are no text, saying what they are."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            raise InputError(f"is compressed ({name})", hint=f"unpack it first ({name} -d)")
    if encoding_of(head) != "utf-8-sig":
        return
    sample = head[:_HEAD_BYTES]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(sample) >= 8 and max(even, odd) > 0.4 * len(sample) / 2 and min(even, odd) == 0:
        raise InputError(
            "looks like UTF-16 without a byte order mark",
            hint="convert it: iconv -f UTF-16LE -t UTF-8",
        )
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in sample)
    # Text of another encoding has a few bytes that are not UTF-8, a binary file a fifth or more.
    foreign = sample.decode(errors="replace").count("\ufffd")
    is_foreign = foreign >= _FOREIGN and (controls + foreign) * 5 > len(sample)
    if sample.startswith(_BINARY_MAGIC) or is_foreign or controls * 10 > len(sample):
        raise InputError("is a binary file", hint="name text, JSON or CSV files")


def line_blocks(
    file: BinaryIO,
    *,
    too_long: TooLong | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """Blocks of lines without their ends, each with the number of its first line (from 1).

    Ends are LF or CRLF. A line over MAX_LINE_BYTES comes as an empty one and is told to
    `too_long` with its number and its first characters. `progress` hears the bytes read so far.
    Bytes that are not valid in the file's encoding become U+FFFD.
    """
    decoder: codecs.IncrementalDecoder | None = None
    rest = ""
    skipping = False
    number = 1
    done = 0
    while chunk := file.read(CHUNK_BYTES):
        if decoder is None:
            decoder = codecs.getincrementaldecoder(encoding_of(chunk[:4]))(errors="replace")
        done += len(chunk)
        text = rest + decoder.decode(chunk)
        lines = text.split("\n")
        rest = lines.pop()
        if skipping and lines:
            lines[0] = ""
            skipping = False
        if lines:
            _blank_long(lines, number, too_long)
            yield (
                number,
                [line[:-1] if line[-1:] == "\r" else line for line in lines]
                if ("\r" in text)
                else lines,
            )
            number += len(lines)
        if skipping:
            rest = ""
        elif len(rest) > MAX_LINE_BYTES:
            if too_long is not None:
                too_long(number, rest[:200])
            rest = ""
            skipping = True
        if progress is not None:
            progress(done)
    if decoder is not None:
        rest += decoder.decode(b"", final=True)
    if skipping or rest:
        yield number, ["" if skipping else rest.removesuffix("\r")]


def _blank_long(lines: list[str], number: int, too_long: TooLong | None) -> None:
    # Only the first line can hold more than one chunk.
    if len(lines[0]) > MAX_LINE_BYTES:
        if too_long is not None:
            too_long(number, lines[0][:200])
        lines[0] = ""


def visible(text: str, width: int = 120) -> str:
    """`text` for a message: control characters made visible, at most `width` characters."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:width]
    )
    return shown[: width - 3] + "..." if len(text) > width or len(shown) > width else shown

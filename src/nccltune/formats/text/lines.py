# SPDX-License-Identifier: Apache-2.0
"""Split the bytes of any file into lines, in bounded memory."""

import codecs
from collections.abc import Callable, Iterator
from typing import BinaryIO

from nccltune.model.errors import InputError

MAX_LINE_BYTES = 1 << 20
"""Limit of a line in bytes. A longer line is counted as unreadable and never held in memory as a
whole."""
CHUNK_BYTES = 1 << 20
_HEAD_BYTES = 1 << 12
_FOREIGN = 16
"""Least number of bytes that are invalid UTF-8 in a file that may be binary. Fewer such bytes prove
nothing."""
_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
)
_BINARY_MAGIC = (b"\x7fELF", b"\x89PNG", b"%PDF-", b"GIF8", b"\xff\xd8\xff", b"\xca\xfe\xba\xbe")
# Control characters that occur in text: tab, newline, return, form feed, backspace, escape.
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")

TooLong = Callable[[int, str], None]
Progress = Callable[[int], None]


def encoding_of(head: bytes) -> str:
    """Return the encoding that the byte order mark in `head` names; UTF-8 without a mark."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "utf-8-sig"


def check_text(head: bytes) -> None:
    """Check that the first bytes of a file are text.

    Raises InputError if they are compressed, UTF-16 without a byte order mark, or binary.
    """
    for magic, name in _MAGIC:
        if head.startswith(magic):
            raise InputError(f"is compressed ({name})", hint=f"unpack it first ({name} -d)")
    if encoding_of(head) != "utf-8-sig":
        return
    if head.startswith(b"\x80") and b"pg_config" in head:
        raise InputError("is a dump of PyTorch's Flight Recorder: nccltune workload show reads it")
    sample = head[:_HEAD_BYTES]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(sample) >= 8 and max(even, odd) > 0.4 * len(sample) / 2 and min(even, odd) == 0:
        raise InputError(
            "looks like UTF-16 without a byte order mark",
            hint="convert it: iconv -f UTF-16LE -t UTF-8",
        )
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in sample)
    # Text in another encoding has few bytes that are not UTF-8; a binary file has a fifth or more.
    foreign = sample.decode(errors="replace").count("\ufffd")
    is_foreign = foreign >= _FOREIGN and (controls + foreign) * 5 > len(sample)
    if sample.startswith(_BINARY_MAGIC) or is_foreign or controls * 10 > len(sample):
        raise InputError("is a binary file", hint="name text, JSON or CSV files")


def line_blocks(
    file: BinaryIO, *, too_long: TooLong | None = None, progress: Progress | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield blocks of lines, each with the number of its first line (from 1).

    A line ends with LF or CRLF, which is removed. A line of more than MAX_LINE_BYTES becomes an
    empty line, and `too_long` is called with its number and its first 200 characters. `progress` is
    called with the number of bytes read so far. Bytes that are invalid in the file's encoding
    become U+FFFD.
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
    # Only the first line of a block can be longer than a chunk: it may start in earlier chunks.
    if len(lines[0]) > MAX_LINE_BYTES:
        if too_long is not None:
            too_long(number, lines[0][:200])
        lines[0] = ""


def visible(text: str, width: int = 120) -> str:
    """Return `text` for a message: control characters escaped, at most `width` characters."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:width]
    )
    return shown[: width - 3] + "..." if len(text) > width or len(shown) > width else shown

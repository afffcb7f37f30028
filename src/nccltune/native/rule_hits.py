# SPDX-License-Identifier: Apache-2.0
"""Read how many calls each row of a configuration decided in a process.

The layout is that of native/tuner/rule_set.h.
"""

import os
import struct
from pathlib import Path

import msgspec

from nccltune.native.processes import memories, own_number

NAME = "nccltune-tuner-hits"
MAGIC = b"ncclhits"
LAYOUT = 1
_HEAD = struct.Struct("=8s7Q256s")
_LARGEST = _HEAD.size + 8 * (2**16 + 1)


class RuleHits(msgspec.Struct, frozen=True):
    """Counts of a process for a file with the hash `content`: by line, and undecided calls."""

    path: str
    content: str
    calls: dict[int, int]
    undecided: int


def rule_hits(folder: Path) -> list[RuleHits]:
    """Return the counts of `/proc/PID` in this layout. Raises OSError if it may not be read."""
    found = []
    for fd in memories(folder, NAME):
        page = decode(os.pread(fd, _LARGEST, 0))
        # A forked process inherits the page of its parent.
        if page is not None and page[0] == own_number(folder):
            found.append(page[1])
    return found


def decode(data: bytes) -> tuple[int, RuleHits] | None:
    """Return the process id and counts of a page; None if it is incomplete or of no use."""
    if len(data) < _HEAD.size:
        return None
    magic, layout, size, offset, lines, pid, content, _, path = _HEAD.unpack_from(data)
    fits = offset >= _HEAD.size and offset + 8 * (lines + 1) <= size <= len(data)
    if magic != MAGIC or layout != LAYOUT or not fits:
        return None
    undecided, *counts = struct.unpack_from(f"={lines + 1}Q", data, offset)
    return pid, RuleHits(
        path=path.split(b"\0")[0].decode("utf-8", "replace"),
        content=f"{content:016x}",
        calls={line: calls for line, calls in enumerate(counts, 1) if calls},
        undecided=undecided,
    )

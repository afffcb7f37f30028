# SPDX-License-Identifier: Apache-2.0
"""Convert lists of CPUs: the kernel's `0-15,32-47`, and the hexadecimal masks that NCCL writes."""

import re
from collections.abc import Iterable

MAX_CPUS = 1 << 16
_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def cpus_of(text: str) -> list[int] | None:
    """Return the sorted numbers in a list such as `0-15,32-47`.

    None if `text` is no such list or has a number of MAX_CPUS or above.

    The kernel's empty list (a NUMA node with memory only) is an empty line.
    """
    if not text or text.isspace():
        return []
    found: set[int] = set()
    for part in text.strip().split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            return None
        first = int(match.group(1))
        last = int(match.group(2) or first)
        if not first <= last < MAX_CPUS:
            return None
        found.update(range(first, last + 1))
    return sorted(found)


def mask_of(cpus: list[int]) -> str:
    """Return the mask as NCCL and the kernel write it: hexadecimal 32-bit words, highest first."""
    return _words(sum(1 << cpu for cpu in set(cpus)))


def all_of(masks: Iterable[str]) -> str | None:
    """Return the union of masks; None if no mask has a CPU."""
    value = 0
    for mask in masks:
        value |= int(mask.replace(",", ""), 16)
    return _words(value) if value else None


def _words(value: int) -> str:
    words = []
    while True:
        words.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
        if not value:
            return ",".join(reversed(words))

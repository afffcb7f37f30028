# SPDX-License-Identifier: Apache-2.0
"""Lists of CPUs: the kernel's `0-15,32-47`, and the hexadecimal words that NCCL writes."""

import re
from collections.abc import Iterable

MAX_CPUS = 1 << 16
_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def cpus_of(text: str) -> list[int] | None:
    """The numbers in a list such as `0-15,32-47`; None where it is no such list.

    The kernel's list of none (a NUMA node of memory only) is an empty line.
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
    """NCCL's and the kernel's mask: 32 bits a word, in hexadecimal, highest first."""
    return _words(sum(1 << cpu for cpu in set(cpus)))


def all_of(masks: Iterable[str]) -> str | None:
    """The mask of what is in any of them; None where there is no CPU in any."""
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

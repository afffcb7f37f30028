# SPDX-License-Identifier: Apache-2.0
"""Read and write message sizes as nccl-tests does (binary suffixes K, M, G, T)."""

import re

from nccltune.model.errors import InputError

_SIZE = re.compile(
    r"\s*([0-9]{1,40}(?:\.[0-9]{1,40})?)\s*([KMGT]?)(I?B)?\s*", re.IGNORECASE | re.ASCII
)
_FACTOR = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
MAX_BYTES = (1 << 63) - 1
"""The largest size that an interface of NCCL can carry (nccl-tests has a signed 64-bit count)."""


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as `8`, `64K`, `1.5M`, `8G`, `64KiB`.

    Suffixes are binary, as in nccl-tests. Raises InputError for any other text, for a fraction that
    is not a whole number of bytes, and for more than `MAX_BYTES`.

    >>> parse_bytes("1.5M")
    1572864
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r} is not a size", hint="sizes look like 8, 64K, 1.5M or 8G (binary suffixes)"
        )
    number, suffix, unit = match.group(1), match.group(2).upper(), match.group(3)
    if unit is not None and unit.upper() == "IB" and not suffix:
        raise InputError(f"{text!r} is not a size", hint="write 64KiB or 64K, not 64iB")
    whole, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    scaled: int = int(whole + fraction) * _FACTOR[suffix]
    if scaled % scale:
        raise InputError(f"{text!r} is not a whole number of bytes")
    if scaled // scale > MAX_BYTES:
        raise InputError(f"{text!r} is larger than any message can be (8 EiB)")
    return scaled // scale


def parse_range(text: str) -> tuple[int, int]:
    """Return first and last size of `64K-8M` in bytes, inclusive, or one twice; InputError."""
    first, dash, last = text.partition("-")
    low = parse_bytes(first)
    high = parse_bytes(last) if dash else low
    if low > high:
        raise InputError(f"{text!r} runs backwards", hint=f"write {last}-{first}")
    return low, high


def exact_bytes(size: int) -> str:
    """Return a size as an option of nccl-tests, not rounded.

    >>> exact_bytes(65536), exact_bytes(1000)
    ('64K', '1000')
    """
    for suffix in ("T", "G", "M", "K"):
        if size and size % _FACTOR[suffix] == 0:
            return f"{size // _FACTOR[suffix]}{suffix}"
    return str(size)


def format_bytes(size: int) -> str:
    """Return a size as readable text, rounded, in binary units (`64 KiB`, `1.5 MiB`)."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        # From 1023.5 on the rounded number would be 1024 of the smaller unit.
        if value < (1024 if unit == "B" else 1023.5):
            break
        value, unit = value / 1024, larger
    # With `.3g`, 1023.4 would become 1.02e+03.
    digits = f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"
    return f"{digits} {unit}"

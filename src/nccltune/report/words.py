# SPDX-License-Identifier: Apache-2.0
"""Format numbers and ranges for people: three significant digits, binary sizes."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from nccltune.model.numbers import significant
from nccltune.model.sizes import MAX_BYTES, format_bytes

_WORD = re.compile(r"(?!(?:nccltune|mpirun|srun|torchrun|kubectl)\b)[a-z]+(?=[ ,:]|$)")
_TOGETHER = re.compile(
    r"(?<=%) (?=CI )|(?<=% CI) (?=\d)|(?<=per) (?=size \d)|(?<=size) (?=\d)|(?<=SMs) (?=\w)"
)
_UNIT = re.compile(r"(?<=\d) (?=(?:%|B|KiB|MiB|GiB|TiB|PiB|EiB|us|µs|ms|s|GB/s)(?!\w))")


def time_text(time_us: float, micro: str = "us") -> str:
    """Return a time with its unit: `91.7 us`, `1.25 ms`, `2.50 s`.

    >>> time_text(1250.0)
    '1.25 ms'
    """
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if time_us >= 0.9995 * factor:
            return f"{significant(time_us / factor)} {unit}"
    return f"{significant(time_us)} {micro}"


def rate_text(gb_per_s: float) -> str:
    """Return a bandwidth such as `0.470 GB/s`."""
    return f"{significant(gb_per_s)} GB/s"


def interval_text(low: float | None, high: float | None) -> str:
    """Return an interval such as `95 % CI 1.18-1.24`; empty if it is unknown."""
    return "" if low is None or high is None else f"95 % CI {low:.2f}-{high:.2f}"


def per_size_text(least: float | None, most: float | None) -> str:
    """Return the smallest and largest gain at one size of a range, if they differ."""
    if least is None or most is None or f"{least:.2f}" == f"{most:.2f}":
        return ""
    return f"per size {least:.2f}-{most:.2f}"


def sms_text(channels: int | None, default: int | None) -> str:
    """Return `SMs 16 (default 24)`, as a channel uses one SM, or `SMs unknown`."""
    if channels is None and default is None:
        return "SMs unknown"
    known = ["unknown" if number is None else str(number) for number in (channels, default)]
    return f"SMs {known[0]} (default {known[1]})"


def range_text(
    low: int, high: int, dash: str = "–", form: Callable[[int], str] = format_bytes
) -> str:
    """Return a range such as `2 KiB – 41 KiB`, one size, or `90.5 MiB and more`."""
    if high >= MAX_BYTES:
        return f"{form(low)} and more"
    return form(low) if low == high else f"{form(low)} {dash} {form(high)}"


def between_text(low: int, high: int) -> str:
    """Return `between 2 and 256 KiB`, `between 512 KiB and 4 MiB` or `at 64 KiB`."""
    if low == high:
        return f"at {format_bytes(low)}"
    first, second = format_bytes(low), format_bytes(high)
    number, _, unit = first.partition(" ")
    return f"between {number if second.endswith(' ' + unit) else first} and {second}"


def where_text(ruled: Iterable[int], measured: Sequence[int]) -> str:
    """Return the sizes at which rules apply, as ranges.

    - one range: `between 2 and 256 KiB`
    - two ranges: `between 2 and 8 KiB and between 64 and 256 KiB`
    - more ranges: `in 3 ranges between 2 and 256 KiB`

    `measured` are all sizes in ascending order. A measured size that is not in `ruled` splits a
    range.
    """
    inside = set(ruled)
    runs: list[list[int]] = []
    before = None
    for size in measured:
        if size in inside:
            if before in inside:
                runs[-1][1] = size
            else:
                runs.append([size, size])
        before = size
    if len(runs) < 3:
        return " and ".join(between_text(low, high) for low, high in runs)
    return f"in {len(runs)} ranges {between_text(runs[0][0], runs[-1][1])}"


def listed(parts: Sequence[str]) -> str:
    """Return words joined as a list: `a`, `a and b`, `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def no_shapes(sizes: int, *, rates: bool, known: bool) -> str:
    """Return what curves without findings show: one size has no shape, nor have times alone.

    `rates`: the curves have bandwidths. `known`: the noise of every curve was measured.
    """
    if sizes < 2:
        return "one size: it shows no shape"
    if known:
        return f"{'no dip, no plateau and ' if rates else ''}no falling time beyond noise"
    shapes = "dip, plateau or falling time" if rates else "falling time"
    return f"no clear {shapes}; the noise is unknown, so smaller ones may not show"


def sentence(text: str) -> str:
    """Return `text` with a full stop, and a capital unless it starts with a name or command."""
    text = text.strip()
    if _WORD.match(text):
        text = text[0].upper() + text[1:]
    return text + ("" if text.endswith((".", "!", "?")) or not text else ".")


def unbroken(text: str) -> str:
    """Return `text` with no-break spaces before units and in `95 % CI 1.18-1.24`."""
    return _TOGETHER.sub("\u00a0", _UNIT.sub("\u00a0", text))


def printable(text: str) -> str:
    """Return `text` without control characters, which could control the terminal."""
    return "".join(
        " " if char in "\n\r\t" else char
        for char in text
        if char in "\n\r\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co")
    )

# SPDX-License-Identifier: Apache-2.0
"""Numbers and ranges as people read them: three significant digits, binary sizes."""

import re
import unicodedata
from collections.abc import Sequence

from nccltune.model.finding import FindingKind
from nccltune.model.sizes import format_bytes

HEADINGS = {
    FindingKind.DIP: "Dip",
    FindingKind.PLATEAU: "Plateau",
    FindingKind.BAD_CROSSOVER: "Bad crossover",
    FindingKind.NOT_SATURATED: "Not saturated",
    FindingKind.NOISY: "Noisy",
    FindingKind.NOT_A_TUNING_PROBLEM: "Not a tuning problem",
    FindingKind.BELOW_EXPECTED: "Below what the links allow",
    FindingKind.AS_EXPECTED: "As expected",
    FindingKind.SINGLE_SAMPLES: "Single timings",
    FindingKind.NO_DEFAULT: "No default",
    FindingKind.WRONG_RESULTS: "Wrong results",
    FindingKind.SUSPECT_RUN: "Suspect run",
}
NOISE_WORDS = {
    "a/a series": "A/A: the default measured twice in every round",
    "split rounds": "A/A: odd against even rounds of the default",
    "assumed": "so few timings a point cannot tell it",
}


_WORD = re.compile(r"[a-z]+(?=[ ,:]|$)")
_UNIT = re.compile(r"(?<=\d) (?=(?:%|B|KiB|MiB|GiB|TiB|us|µs|ms|s|GB/s)(?!\w))")


def significant(value: float, digits: int = 3) -> str:
    """Plain decimal with `digits` significant digits, trailing zeros kept: `0.470`, `91.7`, `745`.

    Above that many digits before the point none is cut off: `12,345`.
    """
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    magnitude = int(f"{abs(rounded):e}".partition("e")[2])
    return f"{rounded:,.{max(0, digits - 1 - magnitude)}f}"


def time_text(time_us: float, micro: str = "us") -> str:
    """`91.7 us`, `1.25 ms`, `2.50 s`."""
    for factor, unit in ((1e6, "s"), (1e3, "ms")):
        if time_us >= 0.9995 * factor:
            return f"{significant(time_us / factor)} {unit}"
    return f"{significant(time_us)} {micro}"


def rate_text(gb_per_s: float) -> str:
    """`0.470 GB/s`."""
    return f"{significant(gb_per_s)} GB/s"


def percent_text(share: float) -> str:
    """`1.1 %`: two significant digits, as no share here is known better."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.2g} %"


def gain_text(gain: float) -> str:
    """A gain in prose, without trailing zeros: `1.4x`, `1.27x`."""
    return f"{gain:.3g}x"


def range_text(low: int, high: int, dash: str = "–") -> str:
    """`2 KiB – 41 KiB`, or one size."""
    return format_bytes(low) if low == high else f"{format_bytes(low)} {dash} {format_bytes(high)}"


def between_text(low: int, high: int) -> str:
    """`between 2 and 256 KiB`, `between 512 KiB and 4 MiB`, `at 64 KiB`."""
    if low == high:
        return f"at {format_bytes(low)}"
    first, second = format_bytes(low), format_bytes(high)
    number, _, unit = first.partition(" ")
    return f"between {number if second.endswith(' ' + unit) else first} and {second}"


def where_text(ruled: Sequence[int], measured: Sequence[int]) -> str:
    """Where rules apply: `between 2 and 256 KiB`, or `at 9 of 17 sizes` where that has holes."""
    low, high = min(ruled), max(ruled)
    if len(ruled) == sum(low <= size <= high for size in measured):
        return between_text(low, high)
    return f"at {len(ruled)} of {len(measured)} sizes"


def counted(number: int, noun: str) -> str:
    """`1 rule`, `3,128 timings`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def sentence(text: str) -> str:
    """`text` with a full stop, and a capital unless it starts with a name (`tree/ll`, `a.txt`)."""
    text = text.strip()
    if _WORD.match(text):
        text = text[0].upper() + text[1:]
    return text + ("" if text.endswith((".", "!", "?")) or not text else ".")


def unbroken(text: str) -> str:
    """`text` with a no-break space between a number and its unit."""
    return _UNIT.sub("\u00a0", text)


def printable(text: str) -> str:
    """`text` without control characters (a name in a file must not steer a terminal)."""
    return "".join(
        " " if char in "\n\r\t" else char
        for char in text
        if char in "\n\r\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co")
    )

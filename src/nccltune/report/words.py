# SPDX-License-Identifier: Apache-2.0
"""Numbers and ranges as people read them: three significant digits, binary sizes."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

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
GAIN_NOTE = (
    "The gain compares timings of the same round and averages over rounds, so it can differ from "
    "the ratio of the two medians."
)
"""Under every table that shows two times beside their gain."""
EDGE_NOTE = "Two rows of one size are the last byte of one range and the first of the next."
"""Under a table in which two sizes are written alike."""

_WORD = re.compile(r"(?!(?:nccltune|mpirun|srun|torchrun|kubectl)\b)[a-z]+(?=[ ,:]|$)")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TOGETHER = re.compile(
    r"(?<=%) (?=CI )|(?<=% CI) (?=\d)|(?<=per) (?=size \d)|(?<=size) (?=\d)|(?<=SMs) (?=\w)"
)
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
    """A gain, everywhere with two decimals: `1.30x`."""
    return f"{gain:.2f}x"


def interval_text(low: float | None, high: float | None) -> str:
    """`95 % CI 1.18-1.24`; empty where it is not known."""
    return "" if low is None or high is None else f"95 % CI {low:.2f}-{high:.2f}"


def per_size_text(least: float | None, most: float | None) -> str:
    """The smallest and largest gain at one size of a range: `per size 1.03-1.43`; empty where they
    are not known or the same."""
    if least is None or most is None or f"{least:.2f}" == f"{most:.2f}":
        return ""
    return f"per size {least:.2f}-{most:.2f}"


def sms_text(channels: int | None, default: int | None) -> str:
    """What a choice takes from compute, one SM a channel: `SMs 16 (default 24)`, `SMs unknown`."""
    if channels is None and default is None:
        return "SMs unknown"
    known = ["unknown" if number is None else str(number) for number in (channels, default)]
    return f"SMs {known[0]} (default {known[1]})"


def size_form(sizes: Iterable[int]) -> Callable[[int], str]:
    """How to write all sizes of one column or list: plain where each is a whole number of its unit
    (`32 KiB`), else with three significant digits each (`1.11 KiB`, `32.0 KiB`, `240 KiB`)."""
    return format_bytes if all(map(_is_whole, sizes)) else _three_digits


def _is_whole(size: int) -> bool:
    unit = 1
    while size >= unit << 10:
        unit <<= 10
    return size % unit == 0


def _three_digits(size: int) -> str:
    plain = format_bytes(size)
    number, _, unit = plain.partition(" ")
    if unit == "B":
        return plain
    value = size / _UNITS[unit]
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def range_text(
    low: int, high: int, dash: str = "–", form: Callable[[int], str] = format_bytes
) -> str:
    """`2 KiB – 41 KiB`, or one size."""
    return form(low) if low == high else f"{form(low)} {dash} {form(high)}"


def between_text(low: int, high: int) -> str:
    """`between 2 and 256 KiB`, `between 512 KiB and 4 MiB`, `at 64 KiB`."""
    if low == high:
        return f"at {format_bytes(low)}"
    first, second = format_bytes(low), format_bytes(high)
    number, _, unit = first.partition(" ")
    return f"between {number if second.endswith(' ' + unit) else first} and {second}"


def where_text(ruled: Iterable[int], measured: Sequence[int]) -> str:
    """Where rules apply, always as ranges of sizes: `between 2 and 256 KiB`; with a hole `between 2
    and 8 KiB and between 64 and 256 KiB`; with more of them `in 3 ranges between 2 and 256 KiB`.

    `measured` are all sizes, rising; a hole is a measured size that is not in `ruled`.
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


def counted(number: int, noun: str) -> str:
    """`1 rule`, `3,128 timings`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def sentence(text: str) -> str:
    """`text` with a full stop, and a capital unless it starts with a name (`tree/ll`, `a.txt`) or a
    command (`nccltune sweep`)."""
    text = text.strip()
    if _WORD.match(text):
        text = text[0].upper() + text[1:]
    return text + ("" if text.endswith((".", "!", "?")) or not text else ".")


def unbroken(text: str) -> str:
    """`text` with no-break spaces between a number and its unit, and in `95 % CI 1.18-1.24`."""
    return _TOGETHER.sub("\u00a0", _UNIT.sub("\u00a0", text))


def printable(text: str) -> str:
    """`text` without control characters (a name in a file must not steer a terminal)."""
    return "".join(
        " " if char in "\n\r\t" else char
        for char in text
        if char in "\n\r\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co")
    )

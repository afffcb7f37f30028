# SPDX-License-Identifier: Apache-2.0
"""Format numbers for people: three significant digits, percentages, gains, columns of sizes."""

from collections.abc import Callable, Iterable

from nccltune.model.sizes import format_bytes


def rate(gb_per_s: float) -> str:
    """Return a bandwidth in GB/s: `0.47 GB/s`, `3600 GB/s`."""
    return f"{_digits(gb_per_s)} GB/s"


def duration(time_us: float) -> str:
    """Return a time: `91.7 us`, `1.25 ms`."""
    return f"{_digits(time_us)} us" if time_us < 999.5 else f"{_digits(time_us / 1e3)} ms"


def percent(share: float) -> str:
    """Return a fraction as a percentage: `88 %`."""
    return f"{_digits(100 * share)} %"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}"


_UNITS = {
    unit: 1 << 10 * power
    for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"), 1)
}


def significant(value: float, digits: int = 3) -> str:
    """Return a plain decimal with `digits` significant digits: `0.470`, `745`, `12,345`."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    magnitude = int(f"{abs(rounded):e}".partition("e")[2])
    return f"{rounded:,.{max(0, digits - 1 - magnitude)}f}"


def percent_text(share: float) -> str:
    """Return a percentage such as `1.1 %` or `25 %`. More digits would not be reliable."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.2g} %"


def share_text(share: float) -> str:
    """Return a share as a percentage, those below 0.1 % as such."""
    return percent_text(share) if share >= 0.001 or not share else "<0.1 %"


def gain_text(gain: float) -> str:
    """Return a gain with two decimals: `1.30x`."""
    return f"{gain:.2f}x"


def size_form(sizes: Iterable[int]) -> Callable[[int], str]:
    """Return how to write all sizes of a column: plain if whole, else with three digits."""
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


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 rule`, `3,128 timings`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

# SPDX-License-Identifier: Apache-2.0
"""Bandwidths, times and shares as text with three significant digits."""


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

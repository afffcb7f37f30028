# SPDX-License-Identifier: Apache-2.0
"""Values as people read them."""

from typing import Any

from nccltune.doctor.unknown import UNKNOWN

_LISTED = 8


def spoken(value: Any) -> str:
    """A value for people: three significant digits, yes and no, lists cut short."""
    if value is UNKNOWN:
        return "unknown"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if isinstance(value, tuple):
        return ".".join(str(part) for part in value)
    if isinstance(value, list):
        shown = [spoken(member) for member in value[:_LISTED]]
        more = len(value) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "") or "none"
    return str(value)

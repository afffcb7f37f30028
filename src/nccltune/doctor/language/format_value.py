# SPDX-License-Identifier: Apache-2.0
"""Format values of facts for people."""

from typing import Any

from nccltune.doctor.language.evaluation import UNKNOWN

_LISTED = 8


def format_value(value: Any) -> str:
    """Return a value as text: three significant digits, yes and no, at most 8 list members."""
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
        shown = [format_value(member) for member in value[:_LISTED]]
        more = len(value) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "") or "none"
    return str(value)

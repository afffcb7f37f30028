# SPDX-License-Identifier: Apache-2.0
"""Text about what NCCL ran as its default at each size."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from nccltune.analyze.result import ConditionAnalysis, CurvePoint
from nccltune.model.choice import DEFAULT
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes

_MOST_CHANGES = 5
"""The largest number of ranges that `ran_text` lists."""


_LOGS = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING"
_LOGGED_SINCE = (2, 20)
"""The first release whose log names the choice of each call."""


def ran_text(item: ConditionAnalysis, nccl: str | None = None) -> str | None:
    """Return what NCCL ran as its default, if known: `ran ring/ll to 64 KiB, ring/simple above`."""
    default = item.curve(DEFAULT)
    if default is None:
        return None
    if not any(point.ran for point in default.points):
        unknown = "what it ran is unknown: no line of NCCL's log states it"
        numbers = re.findall(r"\d+", nccl or "")[:2]
        if len(numbers) == 2 and tuple(map(int, numbers)) < _LOGGED_SINCE:
            return f"{unknown}, and NCCL before 2.20 logs no such line"
        return f"{unknown} (NCCL 2.20 and later log it with {_LOGS})"
    runs = [(label, list(points)) for label, points in groupby(default.points, ran_label)]
    parts = [f"{label} to {format_bytes(points[-1].bytes)}" for label, points in runs[:-1]]
    parts.append(runs[-1][0] + (" above" if parts else ""))
    if len(parts) > _MOST_CHANGES:
        left = count(len(parts) - _MOST_CHANGES, "more change")
        parts = [*parts[: _MOST_CHANGES - 1], left, parts[-1]]
    verb = "ran, by NCCL's cost table:" if item.ran_predicted else "ran"
    return f"{verb} {', '.join(parts)}"


def ran_label(point: CurvePoint) -> str:
    """Return the label of what NCCL ran as its default at a point, or `unknown`."""
    return "unknown" if point.ran is None else point.ran.label


def ran_at(points: Sequence[CurvePoint], sizes: Iterable[int]) -> list[str]:
    """Return the labels of what NCCL ran at `sizes`, without repeats and unknown ones."""
    wanted = set(sizes)
    labels = [point.ran.label for point in points if point.bytes in wanted and point.ran]
    return list(dict.fromkeys(labels))

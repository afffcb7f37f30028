# SPDX-License-Identifier: Apache-2.0
"""What NCCL ran as its default; separate runs that did not run the same.

At one size NCCL's default is one choice. If NCCL reports another choice for some runs, for example
because NCCL_ALGO was set, these runs are not rounds of the default.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from nccltune.analyze.result import Condition, ConditionAnalysis, CurvePoint
from nccltune.model.choice import DEFAULT
from nccltune.model.platform import Platform
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes

if TYPE_CHECKING:
    from nccltune.analyze.timings import Rounds, Timings


def split_defaults(
    found: Sequence["Timings"], rounds: "Rounds", default_runs: Collection[str]
) -> list[str]:
    """Label runs of different algorithms or protocols by what NCCL ran, not as the default.

    Processes in `default_runs`, those that agree with them, and those without a report keep their
    label. Changes `found`; returns a sentence for each collective, scale and kind of calls.
    """
    grouped: dict[Condition, list[Timings]] = {}
    for timings in found:
        grouped.setdefault(timings.condition.for_tuner, []).append(timings)
    sentences = []
    for group in grouped.values():
        every = {process for item in group for ran in item.ran.values() for process in ran}
        first = _first_difference(group, every)
        if first is None:
            continue
        kept = {place for place in every if rounds.processes[place].name in default_runs}
        if _first_difference(group, kept) is not None:
            kept = set()
        if kept:
            kept |= {place for place in every if _first_difference(group, {*kept, place}) is None}
        sentence = _sentence(*first, len(kept))
        dropped = sum(_relabel(item, every - kept) for item in group)
        if dropped:
            sentence += f"; {count(dropped, 'timing')} without such a line left out"
        sentences.append(sentence)
    return sentences


def _first_difference(
    group: Iterable["Timings"], processes: Collection[int]
) -> "tuple[Timings, int] | None":
    """Return where these processes ran different choices: the first timings and size."""
    for timings in group:
        for size in timings.sizes:
            ran = timings.ran.get(size, {})
            chosen = {ran[place].without_channels() for place in processes if place in ran}
            if len(chosen) > 1:
                return timings, size
    return None


def _sentence(timings: "Timings", size: int, kept: int) -> str:
    condition = timings.condition
    seen = Counter(ran.without_channels().label for ran in timings.ran[size].values())
    listed = ", ".join(
        f"{label} in {count(number, 'run')}" for label, number in sorted(seen.items())
    )
    rest = "the others are" if kept else "each is"
    return (
        f"{condition.collective.prose}, {condition.scale}: the runs labelled default are not "
        f"rounds of one default: at {format_bytes(size)} NCCL's log shows {listed}; "
        + (f"{count(kept, 'run')} kept as the default, " if kept else "")
        + f"{rest} labelled by what NCCL ran"
        + (
            ""
            if kept
            else " (to keep one, name its file default or auto and import all into a new study)"
        )
    )


def _relabel(timings: "Timings", processes: Collection[int]) -> int:
    """Label the default of these processes by what NCCL ran; return how many had to be dropped."""
    dropped = 0
    for size in timings.sizes:
        by_choice, ran = timings.cells[size], timings.ran.get(size, {})
        kept = {}
        for key, time_us in by_choice.pop(DEFAULT, {}).items():
            process = timings.rounds_of.process(key[0])
            if process not in processes:
                kept[key] = time_us
            elif process in ran:
                timings.add(size, ran[process].without_channels(), key, time_us)
            else:
                dropped += 1
        if kept:
            by_choice[DEFAULT] = kept
        if not by_choice:
            del timings.cells[size]
        timings.channels.get(size, {}).pop(DEFAULT, None)
        timings.ran[size] = {}
        for process, choice in ran.items():
            label = choice.without_channels() if process in processes else DEFAULT
            if choice.channels is not None:
                timings.note_channels(size, label, choice.channels)
            if process not in processes:
                timings.ran[size][process] = choice
    timings.samples -= dropped
    return dropped


_MOST_CHANGES = 5
"""The largest number of ranges that `ran_text` lists."""


_LOGS = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING"
_LOGGED_SINCE = (2, 20)
"""The first release whose log names the choice of each call."""


def is_before(nccl: str | None, release: tuple[int, int] = (2, 5)) -> bool:
    """Return whether NCCL is known to be older than `release`, by default that of NCCL_ALGO."""
    numbers = re.findall(r"\d+", nccl or "")[:2]
    return len(numbers) == 2 and tuple(map(int, numbers)) < release


def ran_text(item: ConditionAnalysis, platform: Platform | None = None) -> str | None:
    """Return what NCCL ran as its default, if known: `ran ring/ll to 64 KiB, ring/simple above`."""
    default = item.curve(DEFAULT)
    if default is None:
        return None
    if not any(point.ran for point in default.points):
        nccl, settings = (platform.nccl_version, platform.settings) if platform else (None, {})
        if is_before(nccl) and settings.get("NCCL_TREE_THRESHOLD") == "0":
            return "ring, not chosen by NCCL: NCCL_TREE_THRESHOLD=0 rules out trees"
        unknown = "what it ran is unknown: no line of NCCL's log is known to state it"
        if is_before(nccl, _LOGGED_SINCE):
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

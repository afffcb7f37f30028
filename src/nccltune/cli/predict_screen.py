# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune predict`: choices by size, the model behind them, another version."""

from collections import defaultdict
from itertools import groupby
from typing import Any, TypeVar

from rich.console import Console

from nccltune.app.predict import Predicted, VersionDifference
from nccltune.cli.output import hanging, styled
from nccltune.model.choice import Choice
from nccltune.model.numbers import counted, significant
from nccltune.model.sizes import format_bytes
from nccltune.predict import ExpectedSize, Prediction, ScaleOut, SizePrediction
from nccltune.report.words import listed, time_text

_WIDE = 100
"""On a terminal with fewer columns, the reason has a line of its own."""
_NARROW = 52
_TERMS = ("latency_in_node", "latency_between_nodes", "transfer")
_TERM_WORDS = ("latency in the node", "latency between nodes", "transfer")
_Size = TypeVar("_Size", SizePrediction, ExpectedSize)
_EVERY = 3
"""Of the sizes with one choice, the first, the last and one in three are printed."""
_LEAST_RATE = 0.01
_MOVED = 0.005
"""A smaller change of the model's time is not shown."""


def show(out: Console, found: list[Predicted]) -> None:
    """Print the predictions of all collectives."""
    for number, one in enumerate(found):
        if number:
            out.print()
        _show(out, one)
    for words in dict.fromkeys(words for one in found for words in _notes(one)):
        hanging(out, ("note       ", "dim"), 11, words)
    words = "all times are those of NCCL's own cost model, not measurements"
    if any(one.expected is not None for one in found):
        words = "but for what is expected, " + words
    hanging(out, ("model      ", "dim"), 11, words)


def as_data(found: list[Predicted]) -> dict[str, Any]:
    """Return the predictions in the form that `--json` prints."""
    return {
        "predictions": [
            {
                "topology": one.source,
                "settings": one.settings,
                **_prediction_data(one.version, one.prediction),
                "against": None if one.against is None else _against_data(one.against),
                "expected": None if one.expected is None else _expected_data(one.expected),
                "not_used": one.unused,
            }
            for one in found
        ]
    }


def _prediction_data(version: str, found: Prediction) -> dict[str, Any]:
    comm = found.communicator
    factor = found.collective.bus_factor(comm.ranks)
    return {
        "nccl": version,
        "collective": found.collective,
        "nodes": comm.nodes,
        "ranks": comm.ranks,
        "channels": comm.channels,
        "nvls_channels": comm.nvls_channels,
        "model": {
            choice.label: {
                "latency_us": _rounded(one.latency_us),
                "busbw_gb_per_s": _rounded(one.gb_per_s * factor),
                "limit": one.limit.kind,
                "limited_by": one.limit.words,
                "by_hand": one.by_hand,
            }
            for choice, one in found.modelled.items()
        },
        "excluded": {choice.label: words for choice, words in found.excluded.items()},
        "sizes": [
            {
                "bytes": one.size,
                "choice": one.choice.label,
                "time_us": _rounded(one.time_us),
                "busbw_gb_per_s": _rounded(one.busbw_gb_per_s),
                "most_channels": one.launch.most_channels,
                "channels": one.launch.channels,
                "threads": one.launch.threads,
                "reason": one.reason,
                "times_us": {
                    choice.label: None if found.modelled[choice].by_hand else _rounded(time)
                    for choice, time in one.times_us.items()
                },
            }
            for one in found.sizes
        ],
        "notes": found.notes,
    }


def _expected_data(found: ScaleOut) -> dict[str, Any]:
    comm, collective = found.prediction.communicator, found.prediction.collective
    return {
        "state": "predicted",
        "interval": 0.8,
        "measured_nodes": found.measured_nodes,
        "factors": {
            choice.label: dict(zip(_TERMS, map(_rounded, values), strict=True))
            for choice, values in found.factors.items()
        },
        "sizes": [
            {
                "bytes": one.size,
                "choice": one.choice.label,
                "time_us": _rounded(one.time_us),
                "low_us": _rounded(one.low_us),
                "high_us": _rounded(one.high_us),
                "busbw_gb_per_s": _rounded(
                    collective.busbw_gb_per_s(one.size, one.time_us, comm.ranks)
                ),
                "choice_was_measured": one.measured,
                "close": [choice.label for choice in one.others],
            }
            for one in found.sizes
        ],
        "notes": found.notes,
    }


def _against_data(other: VersionDifference) -> dict[str, Any]:
    return {
        **_prediction_data(other.version, other.prediction),
        "changes": [
            {
                "bytes": one.size,
                "before": one.before.label,
                "after": one.after.label,
                "time_ratio": _rounded(one.ratio),
            }
            for one in other.sizes
        ],
    }


def _rounded(value: float) -> float:
    """Return a value of single precision without digits that have no meaning."""
    return float(f"{value:.6g}")


def _notes(one: Predicted) -> tuple[str, ...]:
    notes = one.prediction.notes + (() if one.against is None else one.against.prediction.notes)
    notes += () if one.expected is None else one.expected.notes
    return (*notes, *one.unused)


def _show(out: Console, found: Predicted) -> None:
    prediction = found.prediction
    comm = prediction.communicator
    shape = f"{counted(comm.nodes, 'node')} x {counted(comm.ppn, 'GPU')}"
    title = f"{shape} · NCCL {found.version} · {prediction.collective.prose}"
    out.print(styled(" · ".join((found.source, title, *found.settings)), style="bold"))
    if found.against is not None:
        _show_difference(out, found.version, found.against)
    if found.expected is not None:
        _show_expected(out, found.expected)
    _show_sizes(out, prediction)
    _show_model(out, prediction)


def _show_expected(out: Console, found: ScaleOut) -> None:
    nodes = listed([f"{count:,}" for count in found.measured_nodes])
    words = f"predicted from runs on {nodes} nodes; the interval holds 80 %, congestion included"
    hanging(out, ("expected   ", "bold"), 11, words)
    out.print(styled((f"{'size':>8}  {'choice':<16} {'time':>8} {'GB/s':>6}  80 %", "bold")))
    comm, collective = found.prediction.communicator, found.prediction.collective
    for one in _shown(found.sizes):
        rate = _rate(collective.busbw_gb_per_s(one.size, one.time_us, comm.ranks))
        span = f"{time_text(one.low_us)} - {time_text(one.high_us)}"
        words = "" if one.measured else "  not measured at fewer nodes"
        if one.others:
            words += f"  or {' or '.join(choice.label for choice in one.others)}"
        lead = f"{format_bytes(one.size):>8}  {one.choice.label:<16} {time_text(one.time_us):>8}"
        hanging(out, f"{lead} {rate:>6}  ", len(lead) + 9, f"{span}{words}")
    for choice, factors in found.factors.items():
        words = ", ".join(
            f"{name} {significant(value)}x"
            for name, value in zip(_TERM_WORDS, factors, strict=True)
        )
        hanging(out, ("measured   ", "dim"), 11, f"{choice.label} by NCCL's model: {words}")


def _show_sizes(out: Console, prediction: Prediction) -> None:
    head = ("size", "choice", "time", "GB/s", "channels")
    if out.width >= _NARROW:
        out.print(styled((_line(*head) + ("  why" if out.width >= _WIDE else ""), "bold")))
    last = ""
    for one in _shown(prediction.sizes):
        why = "" if one.reason == last else one.reason
        last = one.reason
        cells = (
            format_bytes(one.size),
            one.choice.label,
            time_text(one.time_us),
            _rate(one.busbw_gb_per_s),
            f"{one.launch.channels} x {one.launch.threads}",
        )
        _show_row(out, cells, why)


def _show_row(out: Console, cells: tuple[str, str, str, str, str], why: str) -> None:
    if out.width < _NARROW:
        out.print(f"{cells[0]:>8}  {cells[1]}")
        out.print(f"{'':10}{cells[2]}, {cells[3]} GB/s, {cells[4]}")
    elif out.width >= _WIDE and why:
        lead = _line(*cells) + "  "
        hanging(out, lead, len(lead), why)
        return
    else:
        out.print(_line(*cells))
    if why:
        hanging(out, " " * 10, 10, why, "dim")


def _line(size: str, choice: str, time: str, rate: str, launch: str) -> str:
    return f"{size:>8}  {choice:<16} {time:>8} {rate:>6} {launch:>8}"


def _rate(gb_per_s: float) -> str:
    return significant(gb_per_s) if gb_per_s >= _LEAST_RATE else f"<{_LEAST_RATE}"


def _shown(sizes: tuple[_Size, ...]) -> list[_Size]:
    """Return the sizes to print: those where the choice changes, and some in between."""
    shown = []
    for number, one in enumerate(sizes):
        near = sizes[max(0, number - 1) : number + 2]
        edge = len(near) < 3 or any(other.choice != one.choice for other in near)
        if edge or number % _EVERY == 0:
            shown.append(one)
    return shown


def _show_model(out: Console, prediction: Prediction) -> None:
    factor = prediction.collective.bus_factor(prediction.communicator.ranks)
    head = f"  {'what NCCL has':<16} {'latency':>8} {'GB/s':>6}"
    out.print(styled((head + ("  limited by" if out.width >= _WIDE else ""), "bold")))
    for choice, one in prediction.modelled.items():
        rate = _rate(one.gb_per_s * factor)
        lead = f"  {choice.label:<16} {time_text(one.latency_us):>8} {rate:>6}  "
        words = one.limit.words + (" (only if it is asked for)" if one.by_hand else "")
        if out.width >= _WIDE:
            hanging(out, lead, len(lead), words)
        else:
            out.print(lead.rstrip())
            hanging(out, " " * 4, 4, words, "dim")
    missing: dict[str, list[Choice]] = defaultdict(list)
    for choice, words in prediction.excluded.items():
        missing[words].append(choice)
    for words, choices in missing.items():
        names = ", ".join(choice.label for choice in choices)
        hanging(out, ("not here   ", "dim"), 11, f"{names}: {words}")


def _show_difference(out: Console, version: str, other: VersionDifference) -> None:
    """Print where another version chooses differently, and how its times differ."""
    changed = [one for one in other.sizes if one.before != one.after]
    moved = [one for one in other.sizes if abs(one.ratio - 1) >= _MOVED]
    words = f"from NCCL {version} to {other.version}: "
    if not changed and not moved:
        words += f"the same choice and the same time at all {len(other.sizes)} sizes"
    else:
        words += f"another choice at {len(changed)} of {len(other.sizes)} sizes"
        words += f", another time of the model at {len(moved)}"
    hanging(out, ("against    ", "bold"), 11, words)
    pairs = groupby(other.sizes, key=lambda one: (one.before, one.after))
    for (before, after), group in pairs:
        sizes = list(group)
        ratios = [one.ratio for one in sizes]
        if before == after and all(abs(ratio - 1) < _MOVED for ratio in ratios):
            continue
        span = format_bytes(sizes[0].size)
        span += "" if len(sizes) == 1 else f" - {format_bytes(sizes[-1].size)}"
        choice = before.label if before == after else f"{before.label} -> {after.label}"
        hanging(out, " " * 11, 11, f"{span}: {choice}, model's time {_span(ratios)}")


def _span(ratios: list[float]) -> str:
    low, high = (f"{100 * (ratio - 1):+.0f} %" for ratio in (min(ratios), max(ratios)))
    low, high = low.replace("-0 %", "0 %"), high.replace("-0 %", "0 %")
    return low if low == high else f"{low} to {high}"

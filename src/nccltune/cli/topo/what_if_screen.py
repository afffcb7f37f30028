# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune topo what-if`.

The ceiling is the bandwidth of a collective that the links allow at large sizes.
"""

from typing import Any

from rich.console import Console
from rich.text import Text

from nccltune.app.topo_what_if import Answers
from nccltune.cli.output import hanging, plain_table, styled
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes
from nccltune.topology.flows.expect import Expected
from nccltune.topology.flows.what_if import WhatIfResult

_SAME = 0.005
_TABLE_WIDTH = 72
"""The width of the table in columns. On a narrower terminal a list is printed instead."""


def show(out: Console, found: Answers) -> None:
    """Print the ceiling now and after each change, then notes, costs and verifying commands."""
    case, now, answers, unanswered, choice = found
    gpus = case.ranks_per_node
    nodes = count(case.nodes, "node")
    size = f"{nodes} x {count(gpus, 'GPU')}" if gpus else nodes
    whose = case.calibration.name if case.calibration else "defaults"
    inforce = [f"{name}={value}" for name, value in case.settings.items()]
    parts = [case.topology.source, size, case.collective.prose, f"calibration: {whose}", *inforce]
    out.print(" · ".join(parts))
    rows: list[tuple[str, Expected, float | None]] = [("now", now, None)]
    rows += [(answer.change.words, answer.expected, answer.gain) for answer in answers]
    if out.is_terminal and out.width < _TABLE_WIDTH:
        _show_list(out, rows)
    else:
        _show_table(out, rows)
    own: list[str] = []
    if choice is not None and choice.choice.algorithm is not now.algorithm:
        rate = f"{choice.busbw_gb_per_s:.3g} GB/s"
        own.append(
            f"NCCL's own model takes {choice.choice.label} at {format_bytes(choice.size)} and "
            f"gives it {rate} (nccltune predict shows why)"
        )
    for note in [*_notes(now, answers), *own, *unanswered]:
        hanging(out, ("note  ", "dim"), 6, note)
    _show_costs(out, now, answers)
    _show_proofs(out, now, answers)


def as_data(answers: Answers) -> dict[str, Any]:
    """Return the answers in the form that `--json` prints."""
    case = answers.case
    return {
        "topology": case.topology.source,
        "collective": case.collective,
        "nodes": case.nodes,
        "ranks_per_node": case.ranks_per_node,
        "settings": case.settings,
        "calibration": case.calibration.name if case.calibration else "defaults",
        "now": answers.now,
        "answers": [
            {
                "change": answer.change.words,
                "settings": answer.change.settings,
                "nodes": answer.change.nodes,
                "hardware": answer.change.hardware is not None,
                "gain": answer.gain,
                "expected": answer.expected,
                "confirm": answer.confirm,
            }
            for answer in answers.answers
        ],
        "unanswered": answers.unanswered,
        "nccl_choice": None if answers.choice is None else answers.choice.choice.label,
    }


def _show_table(out: Console, rows: list[tuple[str, Expected, float | None]]) -> None:
    names = ("", ">GB/s", ">", "by", "full link", "carries, in GB/s of it")
    table = plain_table(*names, padding=(0, 2, 0, 0))
    unsure = any(not expected.sure for _, expected, _ in rows)
    for words, expected, gain in rows:
        mark = "" if not unsure else " " if expected.sure else "?"
        table.add_row(
            words,
            _busbw(expected) + mark,
            _gain(gain),
            expected.algorithm.value,
            f"{expected.bottleneck} ({expected.capacity_gb_per_s:.3g})",
            _carries(expected),
        )
    out.print(table)


def _show_list(out: Console, rows: list[tuple[str, Expected, float | None]]) -> None:
    for words, expected, gain in rows:
        mark = "" if expected.sure else "?"
        change = styled(" (", _gain(gain), ")") if gain is not None else ""
        head = f"{words}: {_busbw(expected)}{mark} GB/s"
        out.print(styled(head, change, f" by {expected.algorithm.value}"))
        link = f"{expected.bottleneck} ({expected.capacity_gb_per_s:.3g} GB/s)"
        hanging(out, "  full link ", 12, link)
        hanging(out, "  carries   ", 12, _carries(expected))


def _busbw(expected: Expected) -> str:
    value = expected.busbw_gb_per_s
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _gain(gain: float | None) -> Text:
    if gain is None:
        return styled("")
    if abs(gain - 1) < _SAME:
        return styled("same")
    return styled((f"{gain - 1:+.0%}", "green" if gain > 1 else "red"))


def _carries(expected: Expected) -> str:
    loads = sorted(expected.load_by_kind.items(), key=lambda item: -item[1])
    return ", ".join(f"{expected.flow_words(kind)} {load:.3g}" for kind, load in loads)


def _notes(now: Expected, answers: list[WhatIfResult]) -> list[str]:
    """Return the notes, with the changes to which they apply, or all those of now."""
    rows: dict[str, list[str]] = {}
    for answer in answers:
        for note in answer.expected.notes:
            if note not in now.notes:
                rows.setdefault(note, []).append(answer.change.words)
    return [*now.notes, *(f"{'; '.join(words)}: {note}" for note, words in rows.items())]


def _show_costs(out: Console, now: Expected, answers: list[WhatIfResult]) -> None:
    for answer in answers:
        more = answer.expected.host_memory_gb_per_s - now.host_memory_gb_per_s
        if more > _SAME * answer.expected.busbw_gb_per_s:
            hanging(
                out, ("cost  ", "dim"), 6,
                f"{answer.change.words}: {more:.3g} GB/s more through host memory (written and "
                "read) and the CPU's time for it",
            )  # fmt: skip


def _show_proofs(out: Console, now: Expected, answers: list[WhatIfResult]) -> None:
    """Print the commands that verify improvements not by assumptions, best first."""
    if not answers:
        return
    if not now.sure:
        out.print("no recommendation: figures with ? rest on what the notes call assumed")
        return
    better = [(one.gain, one) for one in answers if one.gain is not None and one.gain > 1 + _SAME]
    unsure = [one for one in answers if one.gain is None]
    for answer in unsure:
        out.print(f"no recommendation for {answer.change.words}: its figure is not sure")
    if not better and not unsure:
        out.print("nothing asked here raises the ceiling")
    for _, answer in sorted(better, key=lambda pair: -pair[0]):
        out.print(styled(("prove", "bold"), f" {answer.change.words}:"))
        for line in answer.confirm:
            out.print(f"  {line}", soft_wrap=True)
    if any("--launcher NAME" in line for _, one in better for line in one.confirm):
        out.print("  NAME is your launcher: openmpi, hydra or slurm")

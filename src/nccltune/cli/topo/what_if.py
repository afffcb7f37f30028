# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo what-if`: compute the bandwidth limit of a platform now and after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import FILE, PATH, binds, option
from nccltune.cli.output import hanging, plain_table, print_result, stdout, styled
from nccltune.cli.progress import working
from nccltune.cli.verb import verb
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from nccltune.app.topo_what_if import Answers, WhatIfRequest
    from nccltune.topology.flows.expect import Expected
    from nccltune.topology.flows.what_if import WhatIfResult

EPILOG = """\b
Examples:
  nccltune topo what-if topo.xml --nodes 2
  nccltune topo what-if topo.xml --nodes 2 --gdr-read off
  nccltune topo what-if topo.xml NCCL_IB_HCA=mlx5_0 NCCL_CROSS_NIC=1 --nodes 2
  nccltune topo what-if topo.xml --move-nic mlx5_1=0000:80:00.0
  nccltune topo what-if topo.xml --to-nodes 16 --to-nodes 1024
"""

_LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")

_NODES = click.IntRange(1, 1 << 20)


@verb(epilog=EPILOG)
@click.argument("path", metavar="FILE|STUDY", type=PATH)
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE...]")
@option(
    "--nodes",
    type=_NODES,
    default=1,
    show_default=True,
    more=" like this one that there are now.",
)
@option("--gpus", type=click.IntRange(1, 1 << 10), more="  [default: all]")
@option("--collective", default="allreduce", show_default=True, more=" that is run.")
@option("--env", "environment", more=" that is in force now.")
@option("--nccl-version", more="  [default: the newest known]")
@click.option(
    "--calibration",
    help="Measured efficiencies (`nccltune topo calibrate`)  [default: built in]",
    **FILE,
)
@click.option(
    "--gdr-read",
    type=click.Choice(["on", "off"]),
    help="Let NICs read GPU memory, or send through host memory.",
)
@click.option(
    "--p2p-level",
    "p2p_levels",
    type=click.Choice(_LEVELS),
    multiple=True,
    help="Let GPUs reach each other up to there.",
)
@click.option(
    "--algorithm",
    "algorithms",
    type=click.Choice(["ring", "tree", "nvls", "nvls_tree"]),
    multiple=True,
    help="This algorithm.",
)
@click.option(
    "--move-nic",
    "moves",
    multiple=True,
    metavar="NIC=PLACE",
    help="A NIC at a switch's bus id, at CPU0, or beside GPU0.",
)
@click.option(
    "--add-switch",
    "switches",
    multiple=True,
    metavar="PLACE=DEVICE,...",
    help="A PCIe switch there, with GPU0, mlx5_0 and so on below it.",
)
@click.option(
    "--to-nodes",
    type=_NODES,
    multiple=True,
    metavar="N",
    help="So many nodes.",
)
@binds(request="nccltune.app.topo_what_if:WhatIfRequest")
def command(request: WhatIfRequest, gdr_read: str | None) -> None:
    """Compute what a change would do to the bandwidth of a collective, and how to prove it.

    A change is a setting of NCCL (NAME=VALUE) or an option. FILE is a topology that NCCL wrote
    (NCCL_TOPO_DUMP_FILE). A cloud's file for NCCL_TOPO_FILE has no NVLink: it is assumed by device
    ids, and figures that rest on it have a ?. Each change is answered alone, and all together where
    there are several; without any, those settings that may matter. Nothing is started and nothing
    is changed. The ceiling is what the links allow at large sizes; the network beyond the NICs
    counts as wide enough. Of a study its settings and its NCCL count.
    """
    from nccltune.app.topo_what_if import answer

    reads = None if gdr_read is None else gdr_read == "on"
    with working("searching rings and trees"):
        answers = answer(request._replace(gdr_read=reads))
    print_result(as_data(answers), show, stdout(), answers)


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
    padding = (0, 2, 0, 0)
    names = ("", ">GB/s", ">", "by", "full link", "carries, in GB/s of it")
    table = plain_table(*names, padding=padding)
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
    """Print the rows of the table as several lines each, for a narrow terminal."""
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
    return ", ".join(f"{kind.prose} {load:.3g}" for kind, load in loads)


def _notes(now: Expected, answers: list[WhatIfResult]) -> list[str]:
    """Return the notes, each with the names of the changes to which the note applies.

    Notes on the present platform apply to all changes, so they have no name.
    """
    rows: dict[str, list[str]] = {}
    for answer in answers:
        for note in answer.expected.notes:
            if note not in now.notes:
                rows.setdefault(note, []).append(answer.change.words)
    return [*now.notes, *(f"{'; '.join(words)}: {note}" for note, words in rows.items())]


def _show_costs(out: Console, now: Expected, answers: list[WhatIfResult]) -> None:
    """Print the other costs of a change: CPU time and traffic of host memory."""
    for answer in answers:
        more = answer.expected.host_memory_gb_per_s - now.host_memory_gb_per_s
        if more > _SAME * answer.expected.busbw_gb_per_s:
            hanging(
                out, ("cost  ", "dim"), 6,
                f"{answer.change.words}: {more:.3g} GB/s more through host memory (written and "
                "read) and the CPU's time for it",
            )  # fmt: skip


def _show_proofs(out: Console, now: Expected, answers: list[WhatIfResult]) -> None:
    """Print the commands that verify each improvement, best first, or a message if there is none.

    Changes are not recommended if their ceiling depends on assumed values.
    """
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

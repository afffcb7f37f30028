# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo what-if`: the ceiling of a platform now, and after a change."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.output import json_option, print_json, stdout, styled, working

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from nccltune.model.topology import Topology
    from nccltune.topology.expect import Expected
    from nccltune.topology.what_if import Answer, Case, Change

EPILOG = """\b
Examples:
  nccltune topo what-if topo.xml --nodes 2
  nccltune topo what-if topo.xml --nodes 2 --gdr-read off
  nccltune topo what-if topo.xml --nodes 2 --move-nic mlx5_1=0000:80:00.0 --algorithm tree
  nccltune topo what-if topo.xml --to-nodes 16 --to-nodes 1024
"""
_LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
_SAME = 0.005
_TABLE_WIDTH = 72
"""Columns that the table needs; a narrower terminal gets lines below each other."""


@click.command("what-if", epilog=EPILOG)
@click.argument("path", metavar="FILE|STUDY", type=click.Path(path_type=Path))
@click.option("--nodes", type=click.IntRange(1, 1 << 20), default=1, show_default=True,
              help="How many nodes like this one there are now.")  # fmt: skip
@click.option("--gpus-per-node", type=click.IntRange(1, 1 << 10), help="GPUs used  [default: all]")
@click.option("--collective", default="allreduce", show_default=True, metavar="NAME",
              help="What is run.")  # fmt: skip
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE",
              help="A setting of NCCL that is in force now.")  # fmt: skip
@click.option("--nccl-version", metavar="X.Y.Z", help="Which NCCL  [default: the newest known]")
@click.option("--calibration", type=click.Path(path_type=Path),
              help="Measured efficiencies (`nccltune calibrate`)  [default: built in]")  # fmt: skip
@click.option("--gdr-read", type=click.Choice(["on", "off"]),
              help="Let NICs read GPU memory, or send through host memory.")  # fmt: skip
@click.option("--p2p-level", type=click.Choice(_LEVELS), multiple=True,
              help="Let GPUs reach each other up to there.")  # fmt: skip
@click.option("--nics", multiple=True, metavar="LIST", help="Only these NICs (as NCCL_IB_HCA).")
@click.option("--algorithm", type=click.Choice(["ring", "tree", "nvls"]), multiple=True,
              help="This algorithm.")  # fmt: skip
@click.option("--set", "others", multiple=True, metavar="NAME=VALUE", help="This setting of NCCL.")
@click.option("--move-nic", "moves", multiple=True, metavar="NIC=PLACE",
              help="A NIC at a switch's bus id, at CPU0, or beside GPU0.")  # fmt: skip
@click.option("--add-switch", "switches", multiple=True, metavar="PLACE=DEVICE,...",
              help="A PCIe switch there, with GPU0, mlx5_0 and so on below it.")  # fmt: skip
@click.option("--to-nodes", type=click.IntRange(1, 1 << 20), multiple=True, help="So many nodes.")
@json_option()
def command(path: Path, as_json: bool, **options: Any) -> int:
    """Say what a change would do to the bandwidth of a collective, and how to prove it.

    FILE is a topology that NCCL wrote (NCCL_TOPO_DUMP_FILE). A cloud's file for NCCL_TOPO_FILE has
    no NVLink: it is assumed by device ids, and figures that rest on it have a ?. Each change is
    answered alone, and all together where there are several; without any, those settings that may
    matter. Nothing is started and nothing is changed. The ceiling is what the links allow at large
    sizes; the network beyond the NICs counts as wide enough. Of a study its settings and its NCCL
    count.
    """
    from nccltune.topology.what_if import answerable, together, what_if, worth_asking

    case = _case(path, options)
    unanswered: list[str] = []
    changes = _changes(case.topology, options)
    with working("searching rings and trees"):
        if not changes:
            changes, unanswered = answerable(case, worth_asking(case, case.expected()))
        elif len(changes) > 1 and len(options["to_nodes"]) < 2:
            changes.append(together(changes))
        now, answers = what_if(case, changes)
    if as_json:
        print_json(_plain(case, now, answers, unanswered))
    else:
        _show(stdout(), case, now, answers, unanswered)
    return 0


def _case(path: Path, options: dict[str, Any]) -> "Case":
    from nccltune.model.collective import TUNED, Collective
    from nccltune.model.errors import InputError
    from nccltune.model.names import nearest
    from nccltune.topology.calibration import read_calibration
    from nccltune.topology.load import load_topology
    from nccltune.topology.what_if import Case

    name = str(options["collective"]).lower().replace("-", "").replace("_", "")
    if name not in TUNED:
        raise InputError(
            f"{options['collective']!r} has no flows here",
            where="--collective",
            hint=nearest(name, TUNED),
        )
    calibration = options["calibration"]
    settings, version = _of_study(path)
    return Case(
        topology=load_topology(path),
        collective=Collective(name),
        nodes=options["nodes"],
        ranks_per_node=options["gpus_per_node"],
        settings={**settings, **dict(_pair(text, "--env") for text in options["environment"])},
        calibration=None if calibration is None else read_calibration(calibration),
        nccl_version=_version(options["nccl_version"]) or version,
    )


def _of_study(path: Path) -> "tuple[dict[str, str], tuple[int, int, int] | None]":
    """What was in force when a study was measured: settings that count here, and which NCCL."""
    from nccltune.model.study import Study
    from nccltune.topology.flow_settings import READ

    study = Study(path)
    if not study.platform_path.is_file():
        return {}, None
    platform = study.platform()
    settings = {name: value for name, value in platform.settings.items() if name in READ}
    text = platform.nccl_version or ""
    known = len(text.split(".")) in (2, 3) and text.replace(".", "").isdecimal()
    return settings, _version(text) if known else None


def _pair(text: str, where: str) -> tuple[str, str]:
    from nccltune.model.errors import InputError

    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InputError(f"{text!r} is not NAME=VALUE", where=where)
    return name, value


def _version(text: str | None) -> tuple[int, int, int] | None:
    from nccltune.model.errors import InputError

    if text is None:
        return None
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        raise InputError(f"{text!r} is no version such as 2.28.9", where="--nccl-version")
    numbers = [int(part) for part in parts] + [0]
    return numbers[0], numbers[1], numbers[2]


def _changes(topology: "Topology", options: dict[str, Any]) -> "list[Change]":
    """One change for each option given."""
    from nccltune.topology.what_if import Change

    found: list[Change] = []
    if options["gdr_read"] is not None:
        value = "1" if options["gdr_read"] == "on" else "0"
        found.append(Change(f"GPUDirect reads {options['gdr_read']}", {"NCCL_NET_GDR_READ": value}))
    found += [
        Change(f"P2P up to {level}", {"NCCL_P2P_LEVEL": level}) for level in options["p2p_level"]
    ]
    found += [Change(f"NICs {rule}", {"NCCL_IB_HCA": rule}) for rule in options["nics"]]
    found += [Change(f"{name}", {"NCCL_ALGO": name}) for name in options["algorithm"]]
    for text in options["others"]:
        name, value = _pair(text, "--set")
        found.append(Change(text, {name: value}))
    found += _hardware(topology, options)
    found += [Change(f"{count:,} nodes", nodes=count) for count in options["to_nodes"]]
    return found


def _hardware(topology: "Topology", options: dict[str, Any]) -> "list[Change]":
    """Changes of hardware, tried once here so that a wrong name is said before anything else."""
    from functools import partial

    from nccltune.topology.hardware_change import add_switch, move_nic
    from nccltune.topology.what_if import Change

    found: list[Change] = []
    for text in options["moves"]:
        nic, place = _pair(text, "--move-nic")
        move = partial(move_nic, nic=nic, place=place)
        move(topology)
        found.append(Change(f"{nic} at {place}", hardware=move))
    for text in options["switches"]:
        place, listed = _pair(text, "--add-switch")
        names = [name for name in listed.split(",") if name]
        add = partial(add_switch, place=place, names=names)
        add(topology)
        found.append(Change(f"a switch at {place} for {', '.join(names)}", hardware=add))
    return found


def _show(
    out: "Console", case: "Case", now: "Expected", answers: "list[Answer]", unanswered: list[str]
) -> None:
    from nccltune.cli.output import hanging
    from nccltune.model.scale import count

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
    for note in [*_notes(now, answers), *unanswered]:
        hanging(out, ("note  ", "dim"), 6, note)
    _show_costs(out, now, answers)
    _show_proofs(out, now, answers)


def _show_table(out: "Console", rows: "list[tuple[str, Expected, float | None]]") -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for title in ("GB/s", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("by", "full link", "carries, in GB/s of it"):
        table.add_column(title)
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


def _show_list(out: "Console", rows: "list[tuple[str, Expected, float | None]]") -> None:
    """The table for a narrow terminal: each row as lines below each other."""

    from nccltune.cli.output import hanging

    for words, expected, gain in rows:
        mark = "" if expected.sure else "?"
        change = styled(" (", _gain(gain), ")") if gain is not None else ""
        head = f"{words}: {_busbw(expected)}{mark} GB/s"
        out.print(styled(head, change, f" by {expected.algorithm.value}"))
        link = f"{expected.bottleneck} ({expected.capacity_gb_per_s:.3g} GB/s)"
        hanging(out, "  full link ", 12, link)
        hanging(out, "  carries   ", 12, _carries(expected))


def _busbw(expected: "Expected") -> str:
    return f"{expected.busbw_gb_per_s:.3g}"


def _gain(gain: float | None) -> "Text":
    if gain is None:
        return styled("")
    if abs(gain - 1) < _SAME:
        return styled("same")
    return styled((f"{gain - 1:+.0%}", "green" if gain > 1 else "red"))


def _carries(expected: "Expected") -> str:
    loads = sorted(expected.load_by_kind.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind.prose} {load:.3g}" for kind, load in loads)


def _notes(now: "Expected", answers: "list[Answer]") -> list[str]:
    """Notes, each with the rows that it belongs to; those of the first row hold for the platform,
    whatever is changed."""
    rows: dict[str, list[str]] = {}
    for answer in answers:
        for note in answer.expected.notes:
            if note not in now.notes:
                rows.setdefault(note, []).append(answer.change.words)
    return [*now.notes, *(f"{'; '.join(words)}: {note}" for note, words in rows.items())]


def _show_costs(out: "Console", now: "Expected", answers: "list[Answer]") -> None:
    """What a change costs beside the links: work for the CPU and its memory."""
    from nccltune.cli.output import hanging

    for answer in answers:
        more = answer.expected.host_memory_gb_per_s - now.host_memory_gb_per_s
        if more > _SAME * answer.expected.busbw_gb_per_s:
            hanging(
                out, ("cost  ", "dim"), 6,
                f"{answer.change.words}: {more:.3g} GB/s more through host memory (written and "
                "read) and the CPU's time for it",
            )  # fmt: skip


def _show_proofs(out: "Console", now: "Expected", answers: "list[Answer]") -> None:
    """The commands for what would help, best first; if nothing does, say so. What rests on
    assumptions recommends nothing."""

    if not now.sure:
        out.print("no recommendation: figures with ? rest on what the notes call assumed")
        return
    better = sorted((one for one in answers if one.gain > 1 + _SAME), key=lambda one: -one.gain)
    if not better:
        out.print("nothing asked here raises the ceiling")
        return
    for answer in better:
        if not answer.confirm:
            out.print(f"no recommendation for {answer.change.words}: its figure is not sure")
            continue
        out.print(styled(("prove", "bold"), f" {answer.change.words}:"))
        for line in answer.confirm:
            out.print(f"  {line}", markup=False, soft_wrap=True)


def _plain(
    case: "Case", now: "Expected", answers: "list[Answer]", unanswered: list[str]
) -> dict[str, Any]:
    from nccltune.model.sample import SCHEMA_VERSION

    return {
        "schema_version": SCHEMA_VERSION,
        "topology": case.topology.source,
        "collective": case.collective,
        "nodes": case.nodes,
        "ranks_per_node": case.ranks_per_node,
        "settings": case.settings,
        "calibration": case.calibration.name if case.calibration else "defaults",
        "now": now,
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
            for answer in answers
        ],
        "unanswered": unanswered,
    }

# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo lint`: check topology and graph files."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.output import hanging, json_option, print_json, stdout, styled

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.topology.lint.check import Checked
    from nccltune.topology.lint.issue import Issue

EPILOG = """\b
Examples:
  nccltune topo lint topo.xml
  nccltune topo lint --here /var/run/nvidia-topologyd/virtualTopology.xml
  nccltune topo lint topo.xml graph.xml            is the graph file for this machine?
  nccltune topo lint nodes/*.xml --json            are all nodes alike?
"""


@click.command(epilog=EPILOG)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE|FOLDER..."
)
@click.option(
    "--here", is_flag=True,
    help="Also check that this machine has the GPUs and NICs that files name.",
)  # fmt: skip
@json_option()
def command(files: tuple[Path, ...], here: bool, as_json: bool) -> int:
    """Check topology and graph files, each by itself and nodes against each other.

    Link speeds that NCCL does not know, width 0, switches that a virtual machine made up, NVLinks
    that are missing or lead nowhere, readings of idle GPUs, flat trees, NICs out of reach, graph
    files of another job, nodes that differ, and what NCCL's own parser refuses. Exit code 1 for
    an error or a warning; notes alone are no reason.
    """
    from nccltune.topology.lint.check import lint_files
    from nccltune.topology.load import read_file

    checked = lint_files(
        [(str(path), read_file(path)) for path in _paths(files)], here=Path("/") if here else None
    )
    if as_json:
        print_json(
            {
                "files": [
                    *(one.source for one in checked.topologies),
                    *(one.source for one in checked.graphs),
                ],
                "issues": checked.issues,
            }
        )
    else:
        _show(stdout(), checked)
    return int(checked.is_bad)


def _paths(files: tuple[Path, ...]) -> list[Path]:
    """Files, and the XML files of folders."""
    from nccltune.model.errors import InputError

    found: list[Path] = []
    for path in files:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(path.rglob("*.xml"))
        if not inside:
            raise InputError("has no *.xml", where=str(path), hint="name the files themselves")
        found += inside
    return list(dict.fromkeys(found))


def _show(out: "Console", checked: "Checked") -> None:
    from nccltune.model.scale import count

    for issue in checked.issues:
        _show_issue(out, issue)
    words = count(checked.files, "file")
    kinds = [issue.severity.value for issue in checked.issues]
    counts = [count(kinds.count(kind), kind) for kind in ("error", "warning", "note")]
    if checked.is_bad:
        out.print(f"{words}, {', '.join(counts)}")
    else:
        notes = f" ({counts[2]})" if kinds else ""
        out.print(f"{words}, nothing wrong{notes}")


def _show_issue(out: "Console", issue: "Issue") -> None:
    styles = {"error": "red", "warning": "yellow", "note": "dim"}
    where = f"{issue.source}:{issue.line}" if issue.line else issue.source
    kind = issue.severity.value
    out.print(
        styled(f"{where}: ", (f"{kind}", styles[kind]), f": {issue.message}"),
        soft_wrap=not out.is_terminal,
    )
    hanging(out, ("  hint: ", "cyan"), 8, issue.hint)

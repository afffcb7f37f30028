# SPDX-License-Identifier: Apache-2.0
"""Print what rules are worth to a job, for `nccltune tune --workload`."""

from collections.abc import Iterable

from rich.console import Console

from nccltune.cli.output import hanging
from nccltune.report.worth import WorthLine

_STYLES = {"unused": "dim", "verdict": "bold"}


def show_worth(lines: Iterable[WorthLine], out: Console) -> None:
    """Print statements, and the command of those that have one."""
    for line in lines:
        style = "yellow" if line.is_warning else _STYLES.get(line.lead, "")
        hanging(out, (f"{line.lead:<11}", style), 11, line.words)
        if line.command is not None:
            hanging(out, " " * 11, 11, f"measure it: {line.command}")

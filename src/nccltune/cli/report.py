# SPDX-License-Identifier: Apache-2.0
"""`nccltune report`: write the report of a study as an HTML page, or print it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import STUDY, output_option
from nccltune.cli.output import (
    hanging,
    hint,
    is_json,
    note,
    print_json,
    show_worth,
    stdout,
    styled,
    warn,
    warn_unsaved,
)
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.report import ReportParts

EPILOG = """\b
Examples:
  nccltune report studies/h200x4 --open
  nccltune report studies/h200x4 --terminal | less -R
"""


@verb(epilog=EPILOG, dry_run=True)
@STUDY
@output_option("output", "the page  [default: STUDY/report.html]", metavar="FILE")
@click.option("--terminal", is_flag=True, help="Print the report here and write no page.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
def command(
    study: Path, output: Path | None, terminal: bool, open_page: bool, dry_run: bool
) -> None:
    """Write one HTML file with the verdict, the curves and the evidence for every rule.

    The file needs no network: mail it, print it, open it anywhere. Findings and rules are those of
    STUDY/findings.json and STUDY/tuning.json if these have all samples of the study; otherwise they
    are computed again.
    """
    from nccltune.app.report import report_path
    from nccltune.model.errors import InputError

    if (terminal or is_json()) and (output is not None or open_page):
        wrong = "--terminal" if terminal else "--json"
        raise InputError(f"{wrong} writes no page: leave out -o and --open")
    if terminal and is_json():
        raise InputError("--terminal and --json are two forms of the same; take one")
    writes = not (dry_run or terminal or is_json())
    with working("writing the report"):
        parts, path, unsaved = report_path(study, output, save=writes)
    report = parts.report
    warn(parts.warnings)
    warn_unsaved(unsaved)
    if is_json():
        print_json(report)
        return
    if terminal:
        show(parts)
        return
    out = stdout()
    out.print(report.verdict)
    if dry_run:
        out.print(f"Would write {path}. Nothing was written.")
    if not writes or unsaved:
        return
    out.print(f"report     {path}")
    if open_page and click.launch(path.resolve().as_uri()) != 0:
        note(f"no browser could be started; open {path} yourself")
    elif not open_page and (command := report.commands.prove or report.commands.deploy):
        hint(f"next: {command}")


def show(parts: ReportParts) -> None:
    """Print the verdict, then what `analyze`, `tune` and `verify` print, and the commands."""
    from nccltune.cli.analyze_screen import show_analysis
    from nccltune.cli.rule_screen import proof_tables, show_tuning
    from nccltune.cli.workload_screen import show_recorded

    report, out = parts.report, stdout()
    hanging(out, "", 0, report.verdict, "bold")
    if report.replay:
        hanging(out, ("replay     ", "dim"), 11, f"of {report.replay}", "yellow")
    for remark in report.notes:
        hanging(out, ("note       ", "dim"), 11, remark.text, "yellow")
    for fact in report.facts:
        words = f"{fact.value} ({fact.note})" if fact.note else fact.value
        hanging(out, (f"{fact.label.split(' ')[0].lower():<11}", "dim"), 11, words)
    out.print()
    show_analysis(parts.analysis, out)
    for row in report.published:
        hanging(out, ("published  ", "dim"), 11, f"{row.title}: {'; '.join(row.sentences)}")
    for step in report.check_first:
        hanging(out, ("check      ", "dim"), 11, step)
    out.print()
    show_tuning(parts.tuning)
    if report.proof is not None:
        hanging(out, "\nverify     ", 12, report.proof.sentence)
        hanging(out, ("measured   ", "dim"), 11, report.proof.how)
        proof_tables(report.proof, out)
    if parts.workload is not None:
        out.print()
        show_recorded(parts.workload)
    if report.workload is not None:
        out.print()
        show_worth(report.workload.worth, out)
    out.print()
    for sentence in report.remarks:
        hanging(out, ("how        ", "dim"), 11, sentence.replace("`", ""))
    commands = report.commands
    for label, command in (
        ("prove", commands.prove),
        ("deploy", commands.deploy),
        ("rebuild", commands.rebuild),
        ("measure", commands.reproduce),
    ):
        if command:
            # Users copy the command, so it must stay on one line.
            out.print(styled((f"{label:<11}", "dim"), command), soft_wrap=True)
    hanging(out, " " * 11, 11, commands.reproduce_note, "dim")

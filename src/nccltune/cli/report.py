# SPDX-License-Identifier: Apache-2.0
"""`nccltune report`: write the report of a study as an HTML page, or print it."""

from pathlib import Path

import click

from nccltune.cli.options import STUDY, output_option
from nccltune.cli.output import (
    hint,
    is_json,
    note,
    print_json,
    report_console,
    stdout,
    warn,
    warn_unsaved,
)
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

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
    from nccltune.report.terminal import render

    if (terminal or is_json()) and (output is not None or open_page):
        wrong = "--terminal" if terminal else "--json"
        raise InputError(f"{wrong} writes no page: leave out -o and --open")
    if terminal and is_json():
        raise InputError("--terminal and --json are two forms of the same; take one")
    writes = not (dry_run or terminal or is_json())
    with working("writing the report"):
        report, warnings, path, unsaved = report_path(study, output, save=writes)
    warn(warnings)
    warn_unsaved(unsaved)
    if is_json():
        print_json(report)
        return
    if terminal:
        render(report, report_console())
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

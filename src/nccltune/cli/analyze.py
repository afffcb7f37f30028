# SPDX-License-Identifier: Apache-2.0
"""`nccltune analyze`: what the measurements show."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.context import STUDY, assume_noise_option, open_sorted
from nccltune.cli.output import hanging, json_option, next_step, print_json, saving, stdout, working

if TYPE_CHECKING:
    from nccltune.analyze.result import Analysis

EPILOG = """\b
Examples:
  nccltune analyze studies/h200x4
  nccltune analyze studies/h200x4 --json | jq '.findings[].sentence'
"""


@click.command(epilog=EPILOG)
@STUDY
@assume_noise_option()
@click.option(
    "--check", is_flag=True, help="Exit with 1 if there is a bad crossover or a worse finding."
)
@json_option()
def command(study: Path, assume_noise: float, check: bool, as_json: bool) -> int:
    """Show S-curves in numbers and what is wrong with them.

    Dips, plateaus and bad crossovers (where another choice beats NCCL's default beyond noise),
    what is not a tuning problem, and how noisy the measurements are. With a topology in the study
    (nccltune import TOPO.xml) also what the links allow, and which one sets the limit. Written to
    STUDY/findings.json, too.
    """
    from nccltune.analyze import analyze_sorted
    from nccltune.cli.expectation import expectations_of
    from nccltune.formats.suspect import suspect_sentences
    from nccltune.model.finding import FindingKind

    with working("analysing"):
        opened, found = open_sorted(study)
        analysis = analyze_sorted(
            opened.platform(),
            found,
            suspect=suspect_sentences(opened),
            expected=expectations_of(opened, found),
            assumed_noise=assume_noise,
        )
    with saving():
        opened.write_json(opened.findings_path, analysis)
    if as_json:
        print_json(analysis)
    else:
        _show(analysis)
        next_step("nccltune tune", study)
    serious = {
        FindingKind.BAD_CROSSOVER,
        FindingKind.BELOW_EXPECTED,
        FindingKind.NOT_A_TUNING_PROBLEM,
        FindingKind.WRONG_RESULTS,
        FindingKind.SUSPECT_RUN,
    }
    return int(check and any(finding.kind in serious for finding in analysis.findings))


def _show(analysis: "Analysis") -> None:
    from rich.table import Table

    from nccltune.model.finding import FindingKind
    from nccltune.model.sizes import format_bytes

    out = stdout()
    out.print(f"platform   {analysis.platform.title}")
    if analysis.platform.replay:
        out.print(f"replay     of {analysis.platform.replay}")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("collective", no_wrap=True)
    for name in ("sizes", "rounds", "peak", "half at", "90 % at", "noise"):
        table.add_column(name, justify="right")
    for item in analysis.conditions:
        points = item.curves[0].points
        top = item.saturation
        noise = f"{100 * item.noise.typical:.2g} %" if item.noise.known else "unknown"
        table.add_row(
            item.condition.title,
            f"{format_bytes(points[0].bytes)} - {format_bytes(points[-1].bytes)}",
            str(item.rounds),
            f"{top.peak_gb_per_s:.3g} GB/s" if top else "",
            format_bytes(top.half_bytes) if top else "",
            format_bytes(top.ninety_bytes) if top else "",
            noise,
        )
    out.print(table)
    colour = {
        FindingKind.BAD_CROSSOVER: "yellow",
        FindingKind.NOT_A_TUNING_PROBLEM: "yellow",
        FindingKind.BELOW_EXPECTED: "red",
        FindingKind.AS_EXPECTED: "green",
        FindingKind.WRONG_RESULTS: "red",
        FindingKind.SUSPECT_RUN: "red",
    }
    for finding in analysis.findings:
        label = finding.kind.value.replace("_", " ")
        style = colour.get(finding.kind, "dim")
        hanging(out, (f"{label:<22}", style), 22, finding.sentence)
    if not analysis.findings:
        out.print("nothing found: the default is right wherever it was measured")

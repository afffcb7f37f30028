# SPDX-License-Identifier: Apache-2.0
"""`nccltune analyze`: what the measurements show."""

from pathlib import Path
from typing import TYPE_CHECKING

from nccltune.cli.options import STUDY, assume_noise_option, option
from nccltune.cli.output import hanging, next_step, print_json, saving, stdout, styled, warn
from nccltune.cli.progress import working
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.analyze.result import Analysis

EPILOG = """\b
Examples:
  nccltune analyze studies/h200x4
  nccltune analyze studies/h200x4 --json | jq '.findings[].sentence'
"""
_NARROW = 66
"""Below this width in columns there is no table, and a finding starts on its own line."""


@verb(epilog=EPILOG, dry_run=True)
@STUDY
@assume_noise_option()
@option("--check", is_flag=True, more=" if there is a bad crossover or a worse finding.")
def command(study: Path, assume_noise: float, check: bool, dry_run: bool, as_json: bool) -> int:
    """Show S-curves in numbers and what is wrong with them.

    Dips, plateaus and bad crossovers (where another choice beats NCCL's default beyond noise),
    what is not a tuning problem, and how noisy the measurements are. With a topology in the study
    (nccltune import TOPO.xml) also what the links allow, and which one sets the limit. Written to
    STUDY/findings.json, too.
    """
    from nccltune.app.analyze import analyze_path, is_serious

    with working("analyzing"):
        opened, (analysis, warnings) = analyze_path(study, assumed_noise=assume_noise)
    warn(warnings)
    if not dry_run:
        with saving():
            opened.write_json(opened.findings_path, analysis)
    if as_json:
        print_json(analysis)
    else:
        _show(analysis)
        next_step("nccltune tune", study)
    return int(check and is_serious(analysis))


def _show(analysis: "Analysis") -> None:
    out = stdout()
    hanging(out, "platform   ", 11, analysis.platform.title)
    if analysis.platform.replay:
        hanging(out, "replay     ", 11, f"of {analysis.platform.replay}")
    _show_conditions(analysis, out)
    _show_findings(analysis, out)


def _show_conditions(analysis: "Analysis", out: "Console") -> None:
    """Print a line for each curve; two lines on a narrow terminal."""
    from rich.table import Table

    from nccltune.report.words import percent_text, range_text, rate_text, size_form

    ends = [(item.curves[0].points[0], item.curves[0].points[-1]) for item in analysis.conditions]
    tops = [item.saturation for item in analysis.conditions if item.saturation is not None]
    whole = size_form(point.bytes for pair in ends for point in pair)
    half = size_form(top.half_bytes for top in tops)
    ninety = size_form(top.ninety_bytes for top in tops)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("collective", no_wrap=True)
    for name in ("sizes", "rounds", "peak", "half at", "90 % at", "noise"):
        table.add_column(name, justify="right")
    for item, (first, last) in zip(analysis.conditions, ends, strict=True):
        top = item.saturation
        noise = percent_text(item.noise.typical) if item.noise.known else "unknown"
        sizes = range_text(first.bytes, last.bytes, "-", whole)
        peak = rate_text(top.peak_gb_per_s) if top else ""
        if out.width < _NARROW:
            out.print(styled((item.condition.title, "bold")))
            words = f"{sizes}, {item.rounds} rounds, noise {noise}" + (
                f", peak {peak}" if top else ""
            )
            hanging(out, "  ", 2, words)
            continue
        table.add_row(
            item.condition.title,
            sizes,
            str(item.rounds),
            peak,
            half(top.half_bytes) if top else "",
            ninety(top.ninety_bytes) if top else "",
            noise,
        )
    if table.rows:
        out.print(table)


def _show_findings(analysis: "Analysis", out: "Console") -> None:
    from nccltune.model.finding import FindingKind
    from nccltune.report.alike import grouped

    colour = {
        FindingKind.BAD_CROSSOVER: "yellow",
        FindingKind.NOT_A_TUNING_PROBLEM: "yellow",
        FindingKind.BELOW_EXPECTED: "red",
        FindingKind.AS_EXPECTED: "green",
        FindingKind.WRONG_RESULTS: "red",
        FindingKind.SUSPECT_RUN: "red",
    }
    for alike in grouped(analysis.findings):
        label = alike.first.kind.value.replace("_", " ")
        style = colour.get(alike.first.kind, "dim")
        sentence = alike.first.sentence
        sentence += f" ({alike.more}: --json lists them)" if alike.others else ""
        if out.width < _NARROW:
            out.print(styled((label, style)))
            hanging(out, "  ", 2, sentence)
        else:
            hanging(out, (f"{label:<22}", style), 22, sentence)
    if not analysis.findings:
        out.print("nothing found: the default is right at every size measured")

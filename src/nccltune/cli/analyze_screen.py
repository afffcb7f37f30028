# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune analyze`: curves in numbers, and findings."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from nccltune.analyze.result import Analysis
from nccltune.cli.output import hanging, next_step, stdout, styled
from nccltune.model.finding import FindingKind
from nccltune.report.alike import grouped
from nccltune.report.words import percent_text, range_text, rate_text, size_form

_NARROW = 66
"""On a terminal with fewer columns no table is printed, and a finding starts on its own line."""


def show(analysis: Analysis, study: Path) -> None:
    """Print the curves, the findings and the next step."""
    out = stdout()
    hanging(out, "platform   ", 11, analysis.platform.title)
    if analysis.platform.replay:
        hanging(out, "replay     ", 11, f"of {analysis.platform.replay}")
    _show_conditions(analysis, out)
    _show_findings(analysis, out)
    next_step("nccltune tune", study)


def _show_conditions(analysis: Analysis, out: Console) -> None:
    """Print a line for each curve; two lines on a narrow terminal."""
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


def _show_findings(analysis: Analysis, out: Console) -> None:
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

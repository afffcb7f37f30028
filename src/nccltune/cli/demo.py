# SPDX-License-Identifier: Apache-2.0
"""`nccltune demo`: analyze, tune, verify and report a recording, without a GPU."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import output_option
from nccltune.cli.output import hanging, print_result, stdout, styled
from nccltune.cli.verb import verb
from nccltune.model.finding import FindingKind
from nccltune.model.scale import count

if TYPE_CHECKING:
    from nccltune.app.demo import DemoResult

EPILOG = """\b
Examples:
  nccltune demo
  nccltune demo --recording h200x4-1-node -o studies/node
"""


@verb(epilog=EPILOG, dry_run=True)
@click.option("--recording", metavar="NAME", help="Which recording  [default: h200x4-as-4-nodes]")
@output_option("output", "the study  [default: studies/NAME]")
def command(recording: str | None, output: Path | None, dry_run: bool) -> None:
    """Analyse, tune, verify and report a recording of 4 x H200.

    Real measurements, our own plugin loaded as NCCL would load it, the rules verified in a replay
    of the recording, and a report to open. The result is an ordinary study. Takes a few seconds.
    """
    from nccltune.app.demo import demo
    from nccltune.cli.measure_screen import DemoScreen
    from nccltune.examples import DEMO, example

    name = recording or DEMO
    path = output or Path("studies") / name
    if dry_run:
        words = (
            f"Would copy the recording {name} to {path}, analyze, tune, verify in a replay and "
            "write the report there. Nothing was written."
        )
        plan = {"recording": str(example(name)), "study": str(path)}
        print_result(plan, stdout().print, words)
        return
    screen = DemoScreen(path, f"nccltune verify {shlex.quote(str(path))}", quiet=True)
    found = screen.run(lambda: demo(name, path, screen))
    plugin = {"asked": found.asked, "as_predicted": found.agreed}
    document = {"tuning": found.tuning, "plugin": plugin, "proof": found.proof}
    print_result(document, show, found)


def show(demo: DemoResult) -> None:
    """Print the result of each step, the verdict, and the path of the report."""
    _show_steps(demo)
    _show_end(demo)


def _show_steps(demo: DemoResult) -> None:
    from nccltune.cli.rule_screen import show_rules

    crossovers = [
        finding.collective.prose
        for finding in demo.analysis.findings
        if finding.kind is FindingKind.BAD_CROSSOVER and finding.collective is not None
    ]
    out = stdout()
    platform = demo.study.platform()
    hanging(out, "platform   ", 11, platform.title)
    words = (
        f"of {demo.recording}, {platform.recorded_at or 'undated'}: {demo.tuning.samples} recorded "
        "timings; no GPU needed, nothing is measured here"
    )
    hanging(out, "replay     ", 11, words)
    where = ", ".join(dict.fromkeys(crossovers)) or "none"
    hanging(out, "analysis   ", 11, f"{count(len(crossovers), 'bad crossover')}: {where}")
    show_rules(demo.tuning, out)
    words = (
        f"loaded as NCCL {demo.tuning.nccl_version} loads it: {demo.agreed} of {demo.asked} "
        "decisions follow the rules"
    )
    hanging(out, "plugin     ", 11, words)


def _show_end(demo: DemoResult) -> None:
    from nccltune.cli.rule_screen import show_proof, show_verdict

    out = stdout()
    show_proof(demo.proof, out)
    show_verdict(demo.report, demo.study, out)
    out.print("measure    nccltune auto", end="")
    out.print(styled("        ", ("# your own machine: these rules are of the recording's", "dim")))
    out.print(f"took       {demo.seconds:.1f} s")

# SPDX-License-Identifier: Apache-2.0
"""`nccltune demo`: the whole loop on a recording, without a GPU."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nccltune.cli.options import output_option
from nccltune.cli.output import hanging, print_json, stdout
from nccltune.cli.rule_screen import rules_text, show_proof, show_rules
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from nccltune.app.demo import Demo, DemoProgress, DemoRun

EPILOG = """\b
Examples:
  nccltune demo
  nccltune demo --recording h200x4-1-node -o studies/node
"""


@verb(epilog=EPILOG, dry_run=True)
@click.option("--recording", metavar="NAME", help="Which recording  [default: h200x4-as-4-nodes]")
@output_option("output", "the study  [default: studies/NAME]")
def command(recording: str | None, output: Path | None, dry_run: bool, as_json: bool) -> int:
    """Analyse, tune, verify and report a recording of 4 x H200.

    Real measurements, our own plugin loaded as NCCL would load it, the rules verified in a replay
    of the recording, and a report to open. The result is an ordinary study. Takes a few seconds.
    """
    from nccltune.app.demo import DemoRun
    from nccltune.cli.measure_screen import run_interruptible
    from nccltune.examples import example

    demo = DemoRun(recording, output)
    if dry_run:
        _show_plan(demo, example(demo.recording), as_json)
        return 0
    found = run_interruptible(lambda: demo.run(_screen()), lambda: demo.kept, demo.path, demo.again)
    if isinstance(found, int):
        return found
    if as_json:
        plugin = {"asked": found.asked, "as_predicted": found.agreed}
        print_json({"tuning": found.tuning, "plugin": plugin, "proof": found.proof})
    else:
        _show(found)
        _show_end(found)
    return 0


def _screen() -> "DemoProgress":
    from nccltune.cli.measure_screen import VerifyScreen
    from nccltune.cli.output import talk

    class DemoScreen(VerifyScreen):
        def doing(self, words: str) -> None:
            """Print the present step, so that the user always sees progress."""
            talk().print(f"{words} ...", style="dim")

    return DemoScreen(quiet=True)


def _show_plan(demo: "DemoRun", source: Path, as_json: bool) -> None:
    if as_json:
        print_json({"recording": str(source), "study": str(demo.path)})
        return
    stdout().print(
        f"Would copy the recording {demo.recording} to {demo.path}, analyze, tune, verify in a "
        "replay and write the report there. Nothing was written."
    )


def _show(demo: "Demo") -> None:
    from nccltune.model.finding import FindingKind
    from nccltune.model.scale import count

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
    hanging(out, "tune       ", 11, rules_text(demo.tuning))
    show_rules(demo.tuning, out)
    words = (
        f"loaded as NCCL {demo.tuning.nccl_version} loads it: {demo.agreed} of {demo.asked} "
        "decisions follow the rules"
    )
    hanging(out, "plugin     ", 11, words)


def _show_end(demo: "Demo") -> None:
    """Print the proof, the verdict, and the path of the report."""
    out = stdout()
    if demo.proof is None:
        out.print("verify     no rules, so there is nothing to verify")
    else:
        show_proof(demo.proof, out)
    out.print()
    hanging(out, "verdict    ", 11, demo.report.verdict)
    out.print(f"report     {demo.study.report_path}", soft_wrap=True)
    path = shlex.quote(str(demo.study.path))
    if demo.report.commands.deploy:
        out.print(f"deploy     nccltune env {path}", soft_wrap=True)
    out.print(f"took       {demo.seconds:.1f} s")

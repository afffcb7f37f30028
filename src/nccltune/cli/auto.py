# SPDX-License-Identifier: Apache-2.0
"""`nccltune auto`: from nothing to proven rules, in one command and one study."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.options import budget_option, options_from, study_option, tune_options
from nccltune.cli.output import hanging, print_json, stderr, stdout, styled, warn
from nccltune.cli.platform_options import launch_from, platform_options
from nccltune.cli.rule_screen import rules_text, show_proof, show_rules
from nccltune.cli.run_options import command_line
from nccltune.cli.size_options import scope_from, scope_options
from nccltune.cli.verb import verb

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from nccltune.analyze.result import Analysis
    from nccltune.app.auto import Auto, AutoProgress
    from nccltune.app.examiner import ChecksLine
    from nccltune.app.sweep import Swept
    from nccltune.measure.adaptive.plan import Plan
    from nccltune.measure.bench.conversation import Hello
    from nccltune.measure.engine.communicator import Watcher
    from nccltune.model.platform import Platform
    from nccltune.prove.result import Proof
    from nccltune.tune.result import Tuning

EPILOG = """\b
Examples:
  nccltune auto
  nccltune auto --emulate-nodes 4 -o studies/h200x4
  nccltune auto --replay h200x4-as-4-nodes -o studies/first
"""


@verb(epilog=EPILOG, dry_run=True)
@study_option("the study  [default: studies/auto, or studies/replay-of-NAME]")
@scope_options
@platform_options
@budget_option()
@tune_options(advanced=True)
@click.pass_context
def command(
    context: click.Context,
    /,
    path: Path | None,
    budget: float | None,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure, tune and prove: sweep, analyze, tune, verify and report, one after the other.

    The result is an ordinary study, so that every step can be done again by its own verb. Ctrl-C
    loses nothing: the same command goes on where it stopped.
    """
    from nccltune.app.auto import AutoRun
    from nccltune.cli.measure_screen import run_interruptible
    from nccltune.cli.sweep_screen import as_data, show_plan

    scope = scope_from(options)
    again = command_line(context)
    launch = launch_from(options)
    auto = AutoRun(path, launch, scope, options_from(options), command=again, budget_s=budget)
    if dry_run:
        show_plan(*auto.plan(), as_json=as_json)
        return 0
    out = stderr() if as_json else stdout()
    found = run_interruptible(lambda: auto.run(_screen(out)), lambda: auto.kept, auto.path, again)
    if isinstance(found, int):
        return found
    _show_end(found, out)
    if as_json:
        more = {
            "tuning": found.tuning,
            "proof": found.proof,
            "report": str(found.study.report_path),
        }
        print_json(as_data(found.swept) | more)
    return 0


def _screen(out: "Console") -> "AutoProgress":
    """Return a screen that prints each result as soon as it is available."""
    from nccltune.cli.measure_screen import SweepScreen, VerifyScreen
    from nccltune.cli.sweep_screen import show_totals

    class Screen:
        verifying = VerifyScreen(quiet=True)

        def watching(self, hello: "Hello") -> "AbstractContextManager[Watcher[Plan]]":
            return SweepScreen().watching(hello)

        def started(self, platform: "Platform") -> None:
            hanging(out, "platform   ", 11, platform.title)
            if platform.replay:
                words = (
                    f"of {platform.replay}: timings are drawn from a recording, nothing is "
                    "measured here"
                )
                hanging(out, "replay     ", 11, words)

        def checked(self, line: "ChecksLine") -> None:
            hanging(out, "checks     ", 11, line.words, "yellow" if line.is_wrong else "")

        def swept(self, swept: "Swept") -> None:
            show_totals(swept, out, "sweep")

        def analyzed(self, analysis: "Analysis") -> None:
            hanging(out, "analysis   ", 11, _findings(analysis))

        def tuned(self, tuning: "Tuning") -> None:
            hanging(out, "tune       ", 11, rules_text(tuning))
            show_rules(tuning, out)

        def proven(self, proof: "Proof | None") -> None:
            if proof is None:
                out.print("verify     no rules, so there is nothing to verify")
            else:
                show_proof(proof, out)

        def warn(self, sentences: list[str]) -> None:
            warn(sentences)

    return Screen()


def _findings(analysis: "Analysis") -> str:
    """Return the findings in one line.

    For example `3 bad crossovers: all-reduce (2 KiB, 32-256 KiB), all-gather (64 KiB) · dip: 1`.
    Findings that tuning cannot fix are listed with their sizes too.
    """
    from collections import Counter

    from nccltune.model.finding import FindingKind
    from nccltune.model.scale import count
    from nccltune.report.words import HEADINGS, range_text

    placed = (FindingKind.BAD_CROSSOVER, FindingKind.NOT_A_TUNING_PROBLEM)
    places: dict[FindingKind, dict[str, list[str]]] = {kind: {} for kind in placed}
    others: Counter[FindingKind] = Counter()
    for item in analysis.findings:
        if item.kind in placed and item.collective is not None:
            where = range_text(item.min_bytes or 0, item.max_bytes or 0, "-")
            places[item.kind].setdefault(item.collective.prose, []).append(where)
        else:
            others[item.kind] += 1
    parts = []
    for kind, by_name in places.items():
        number = sum(len(ranges) for ranges in by_name.values())
        listed = ", ".join(f"{name} ({', '.join(ranges)})" for name, ranges in by_name.items())
        what = HEADINGS[kind].lower()
        if kind is FindingKind.BAD_CROSSOVER:
            parts.append(f"{count(number, what)}: {listed}" if number else f"no {what}")
        elif number:
            parts.append(f"{what}: {listed}")
    parts += [f"{HEADINGS[kind].lower()}: {number}" for kind, number in others.items()]
    return " · ".join(parts)


def _show_end(found: "Auto", out: "Console") -> None:
    """Print the verdict, and the paths of report and rules."""
    out.print()
    hanging(out, "verdict    ", 11, found.report.verdict)
    out.print(f"report     {found.study.report_path}", soft_wrap=True)
    if found.proof.rules if found.proof is not None else found.tuning.rules:
        path = shlex.quote(str(found.study.path))
        out.print(f"deploy     nccltune env {path}", end="")
        out.print(styled("        ", ("# two lines for a shell, nccl.conf or a job file", "dim")))
    else:
        out.print("deploy     nothing: NCCL keeps its default")

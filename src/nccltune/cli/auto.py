# SPDX-License-Identifier: Apache-2.0
"""`nccltune auto`: from nothing to proven rules, in one command and one study."""

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.bench_options import (
    command_line,
    launch_from,
    launch_options,
    terminated_like_interrupted,
)
from nccltune.cli.context import (
    budget_option,
    open_sorted,
    options_from,
    study_option,
    tune_options,
)
from nccltune.cli.output import hanging, json_option, print_json, stderr, stdout, styled
from nccltune.cli.what_options import wanted_from, what_options

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.analyze.result import Analysis
    from nccltune.cli.auto_checks import Examiner
    from nccltune.measure.bench import Launch
    from nccltune.measure.conversation import Hello
    from nccltune.model.platform import Platform
    from nccltune.model.study import Study
    from nccltune.tune.proof.result import Proof
    from nccltune.tune.result import Tuning

EPILOG = """\b
Examples:
  nccltune auto
  nccltune auto --emulate-nodes 4 -o studies/h200x4
  nccltune auto --replay h200x4-as-4-nodes -o studies/try
"""
SWEEP_SHARE = 0.8
"""Of the budget; the rest, and what the sweep leaves of it, is for the proof."""


@click.command(epilog=EPILOG)
@study_option("The study  [default: studies/auto, or studies/replay-of-NAME]")
@what_options
@launch_options
@budget_option()
@tune_options
@json_option()
@click.pass_context
def command(
    context: click.Context,
    /,
    path: Path | None,
    budget: float | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure, tune and prove: sweep, analyze, tune, verify and report, one after the other.

    The result is an ordinary study, so that every step can be done again by its own verb. Ctrl-C
    loses nothing: the same command goes on where it stopped.
    """
    from nccltune.cli.auto_checks import Examiner
    from nccltune.cli.sweep import run_sweep
    from nccltune.cli.sweep_screen import as_data, show_totals

    wanted = wanted_from(options)._replace(budget_s=budget and SWEEP_SHARE * budget)
    launch = launch_from(options)
    study_path = path or _usual(launch)
    again = command_line(context)
    out = stderr() if as_json else stdout()
    with terminated_like_interrupted():
        with Examiner(launch) as examiner:
            swept = run_sweep(
                study_path,
                launch,
                wanted,
                again,
                start=partial(_start, out, study_path, examiner),
                meanwhile=examiner.begin,
                channels=options["channels"],
            )
        if isinstance(swept, int):
            return swept
        show_totals(swept, out, "sweep")
        study, tuning = _analyse_and_tune(study_path, options, out)
        proof: Proof | None = None
        if tuning.rules:
            left = None
            if budget is not None:
                left = max(budget - swept.outcome.seconds, (1 - SWEEP_SHARE) * budget)
            found = _verify(study, launch, again, left, out)
            if isinstance(found, int):
                return found
            proof = found
        else:
            out.print("verify     no rules, so there is nothing to verify")
    _report(study, tuning, proof, out)
    if as_json:
        told = as_data(swept)
        print_json({**told, "tuning": tuning, "proof": proof, "report": str(study.report_path)})
    return 0


def _usual(launch: "Launch") -> Path:
    """Where the study is if nobody says."""
    if launch.replay is not None:
        return Path("studies") / f"replay-of-{launch.replay.name}"
    return Path("studies") / "auto"


def _start(
    out: "Console", path: Path, examiner: "Examiner", platform: "Platform", hello: "Hello"
) -> None:
    from nccltune.model.study import Study

    hanging(out, "platform   ", 11, platform.title)
    if platform.replay:
        words = (
            f"of {platform.replay}: timings are drawn from a recording, nothing is measured here"
        )
        hanging(out, "replay     ", 11, words)
    told = examiner.told(Study(path), platform, hello)
    hanging(out, "checks     ", 11, told.words, "yellow" if told.is_wrong else "")


def _analyse_and_tune(
    path: Path, options: dict[str, Any], out: "Console"
) -> "tuple[Study, Tuning]":
    from datetime import UTC, datetime

    from nccltune.analyze import analyze_sorted
    from nccltune.cli.expectation import expectations_of
    from nccltune.formats.suspect import suspect_sentences
    from nccltune.tune.study import tune, write

    study, found = open_sorted(path)
    told = options_from(options)
    analysis = analyze_sorted(
        study.platform(),
        found,
        suspect=suspect_sentences(study),
        expected=expectations_of(study, found),
        assumed_noise=told.assumed_noise,
    )
    study.write_json(study.findings_path, analysis)
    hanging(out, "analysis   ", 11, _findings(analysis))
    created = datetime.now(UTC).date().isoformat()
    tuning = write(study, tune(study.name, study.platform(), found, told, created=created))
    hanging(out, "tune       ", 11, rules_text(tuning))
    show_rules(tuning, out)
    return study, tuning


def _findings(analysis: "Analysis") -> str:
    """`3 bad crossovers: all-reduce (2 KiB, 32 KiB - 256 KiB), all-gather (64 KiB) · dip: 1`; what
    is not a tuning problem with its sizes, too."""
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


def rules_text(tuning: "Tuning") -> str:
    """`3 rules · expected: all-reduce 1.40x between 2 and 256 KiB · 41 of 51 sizes left alone`."""
    from nccltune.model.scale import count
    from nccltune.report.verdict import written
    from nccltune.report.words import gain_text, where_text

    gains = []
    for group in tuning.groups:
        if written(group) and group.expected_gain is not None:
            sizes = sorted({size for item in written(group) for size in item.sizes})
            where = where_text(sizes, [row.bytes for row in group.decisions])
            gains.append(f"{group.collective.prose} {gain_text(group.expected_gain)} {where}")
    decided = [row for group in tuning.groups for row in group.decisions]
    alone = sum(row.choice is None for row in decided)
    parts = [count(len(tuning.rules), "rule")]
    parts += [f"expected: {', '.join(gains)}"] if gains else []
    return " · ".join([*parts, f"{alone} of {len(decided)} sizes left alone"])


def show_rules(tuning: "Tuning", out: "Console") -> None:
    """Print each rule with its expected gain and the SMs that it takes."""
    from nccltune.cli.tune import rule_words
    from nccltune.report.words import range_text, size_form

    for group in tuning.groups:
        form = size_form(
            end for item in group.rules for end in (item.rule.min_bytes, item.rule.max_bytes)
        )
        for item in group.rules:
            sizes = range_text(item.rule.min_bytes, item.rule.max_bytes, "-", form)
            what = f"{group.collective.prose} {sizes}  {item.rule.choice.label}  "
            hanging(out, f"{'rule':<11}", 11, what + rule_words(item))


def _verify(
    study: "Study", launch: "Launch", again: str, budget: float | None, out: "Console"
) -> "Proof | int":
    from nccltune.cli.verify import prove

    proof = prove(study, launch, again, budget=budget, quiet=True)
    if not isinstance(proof, int):
        show_proof(proof, out)
    return proof


def show_proof(proof: "Proof", out: "Console") -> None:
    """Print the outcome of a proof and its most telling sizes."""
    from nccltune.report.proof import build_proof
    from nccltune.report.terminal import proof_tables

    built = build_proof(proof)
    hanging(out, "verify     ", 11, built.sentence)
    proof_tables(built, out, brief=True)


def _report(study: "Study", tuning: "Tuning", proof: "Proof | None", out: "Console") -> None:
    from nccltune.cli.report import write_report

    report = write_report(study.path)
    out.print()
    hanging(out, "verdict    ", 11, report.verdict)
    out.print(f"report     {study.report_path}", markup=False, soft_wrap=True)
    if proof.rules if proof is not None else tuning.rules:
        out.print(f"deploy     nccltune env {shlex.quote(str(study.path))}", end="", markup=False)
        out.print(styled("        ", ("# two lines for a shell, nccl.conf or a job file", "dim")))
    else:
        out.print("deploy     nothing: NCCL's default is left as it is")

# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune auto`: each result as soon as it is known."""

import shlex
from collections import Counter
from pathlib import Path

from rich.console import Console

from nccltune.analyze.result import Analysis
from nccltune.app.auto import AutoResult
from nccltune.app.examiner import ChecksLine
from nccltune.app.sweep import SweepResult
from nccltune.cli.measure_screen import SweepScreen, VerifyScreen, show_platform
from nccltune.cli.output import hanging, is_json, show_worth, stderr, stdout, styled, warn
from nccltune.cli.rule_screen import show_proof, show_rules, show_verdict
from nccltune.cli.sweep_screen import show_job, show_totals
from nccltune.measure.bench.conversation import Hello
from nccltune.model.finding import FindingKind
from nccltune.model.platform import Platform
from nccltune.model.scale import count
from nccltune.prove.result import Proof
from nccltune.report.remarks import REMARKS
from nccltune.report.words import range_text
from nccltune.report.worth import worth_lines
from nccltune.tune.result import Tuning


class AutoScreen(SweepScreen):
    """Prints each result as soon as it is known, on stdout or with `--json` on stderr."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.out = stderr() if is_json() else stdout()
        self.verifying = VerifyScreen(path, quiet=True)

    @property
    def is_stopped(self) -> bool:
        """Return whether the sweep or the verification was stopped."""
        return super().is_stopped or self.verifying.is_stopped

    def started(self, platform: Platform, hello: Hello) -> None:  # noqa: ARG002
        """Print the platform."""
        show_platform(platform, self.out)

    def checked(self, line: ChecksLine) -> None:
        """Print the line about the doctor's checks."""
        hanging(self.out, "checks     ", 11, line.words, "yellow" if line.is_wrong else "")

    def swept(self, swept: SweepResult) -> None:
        """Print how much was measured."""
        show_totals(swept, self.out, "sweep")
        show_job(swept.plan, self.out)

    def analyzed(self, analysis: Analysis) -> None:
        """Print the findings in one line."""
        hanging(self.out, "analysis   ", 11, _findings(analysis))

    def tuned(self, tuning: Tuning) -> None:
        """Print the rules."""
        show_rules(tuning, self.out)
        if tuning.worth is not None:
            show_worth(worth_lines(tuning.worth), self.out)

    def proven(self, proof: Proof | None) -> None:
        """Print the proof."""
        show_proof(proof, self.out)

    def warn(self, sentences: list[str]) -> None:
        """Print warnings."""
        warn(sentences)


def _findings(analysis: Analysis) -> str:
    """Return the findings in one line, with sizes of those that tuning cannot fix."""
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
        what = REMARKS[kind].heading.lower()
        if kind is FindingKind.BAD_CROSSOVER:
            parts.append(f"{count(number, what)}: {listed}" if number else f"no {what}")
        elif number:
            parts.append(f"{what}: {listed}")
    parts += [f"{REMARKS[kind].heading.lower()}: {number}" for kind, number in others.items()]
    return " · ".join(parts)


def show_end(found: AutoResult, out: Console) -> None:
    """Print the verdict, and the paths of report and rules."""
    show_verdict(found.report, found.study, out)
    has_rules = found.proof.rules if found.proof is not None else found.tuning.rules
    if has_rules and found.report.commands.deploy is None:
        return  # The verdict names the job that is slower with them.
    if has_rules:
        path = shlex.quote(str(found.study.path))
        stand_in = found.study.platform().stand_in
        words = "two lines for a shell, nccl.conf or a job file"
        if stand_in:
            words = f"measured {stand_in}: measure real nodes before you deploy"
        out.print(f"deploy     nccltune env {path}", end="")
        out.print(styled("        ", (f"# {words}", "dim")))
    else:
        out.print("deploy     nothing: NCCL keeps its default")

# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune verify`: a proof, or a comparison of a program without and with rules."""

import sys
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from nccltune.app.verify import VerifyPlan
from nccltune.cli.output import (
    hanging,
    is_json,
    next_step,
    note,
    print_json,
    stderr,
    stdout,
    styled,
)
from nccltune.cli.verbosity import is_quiet
from nccltune.model.scale import count
from nccltune.model.sizes import format_bytes
from nccltune.prove.edit import before_path
from nccltune.prove.result import Proof
from nccltune.prove.stock import StockPoint, StockProof
from nccltune.report.proof import build_proof
from nccltune.report.terminal import proof_tables
from nccltune.report.words import range_text, time_text
from nccltune.study.files import Study


class ProgramScreen:
    """Prints the progress of the two runs of a program on stderr."""

    def warn(self, sentence: str) -> None:
        """Print a warning."""
        stderr().print(f"warning    {sentence}", style="yellow", soft_wrap=True)

    def starting(self, which: str, command: str) -> None:
        """Print the command of a run."""
        note(f"run        {which} the plugin: {command}")

    def output(self, line: bytes) -> None:
        """Print a line of the program unchanged."""
        if not is_quiet():
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()

    def last_words(self, lines: Sequence[str]) -> None:
        """Print the last lines of a failed run's output."""
        for line in lines:
            stderr().print(f"  {line}", soft_wrap=True)


def show_plan(plan: VerifyPlan) -> None:
    """Print the rules and the number of sizes that would be verified."""
    if is_json():
        print_json({"rules": plan.rules, "sizes": plan.sizes})
        return
    out = stdout()
    for rule in plan.rules:
        where = range_text(rule.min_bytes, rule.max_bytes, "-")
        hanging(out, "rule       ", 11, f"{rule.collective.prose} {where}  {rule.choice.label}")
    sizes = sum(map(len, plan.sizes.values()))
    out.print(
        f"Would measure {count(len(plan.rules), 'rule')} against the default, at the "
        f"{count(sizes, 'size')} of the study and at the edges of the rules. Nothing was measured "
        "or written."
    )


def show_proof_in_full(proof: Proof, study: Study, *, is_changed: bool) -> None:
    """Print the result of a proof, the most important sizes, every rule, and the next step.

    `is_changed` is True if the verification changed the configuration. Then also print the path of
    the configuration and the path of its previous version.
    """
    out = stdout()
    built = build_proof(proof)
    out.print(f"{'verify':<11}{built.sentence}")
    out.print(f"{'measured':<11}{built.how}", style="dim")
    proof_tables(built, out)
    if is_changed:
        words = f"Changed {study.config_path}; as it was: {before_path(study.config_path)}"
        out.print(words, soft_wrap=True)
    next_step("nccltune report", study.path)


def show_program(proof: StockProof, reach: str) -> None:
    """Print whether the plugin was loaded, and what NCCL ran without and with it."""
    out = stdout()
    after = proof.after
    loaded = "not loaded"
    if after.config_hashes:
        loaded = (
            f"loaded, content {after.config_hashes[0]}: {after.applying} of "
            f"{count(after.rules or 0, 'rule')} for {after.nodes} nodes, {after.ranks} ranks"
        )
    out.print(f"plugin     {loaded}")
    for problem in proof.problems:
        out.print(f"finding    {problem}", style="red")
    if not after.config_hashes:
        out.print(f"hint       {reach}")
    if proof.points:
        alone = sum(point.verdict == "left alone" for point in proof.points)
        out.print(
            f"rules      followed at {proof.followed} of {count(proof.ruled, 'point')}; "
            f"left alone as before: {alone}"
        )
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("size", "without", "with"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("ran without", "ran with", ""):
        table.add_column(name, no_wrap=True)
    for point in proof.points:
        table.add_row(
            point.collective.value,
            format_bytes(point.bytes),
            _time(point.before_us),
            _time(point.after_us),
            point.before or "",
            point.after or "",
            _words(point),
        )
    if proof.points:
        out.print(table)
    if any(point.after_us is not None for point in proof.points):
        out.print(
            "Times are of one run each, not paired: nccltune verify without a COMMAND measures "
            "gains.",
            style="dim",
        )


def _time(time_us: float | None) -> str:
    return "" if time_us is None else time_text(time_us)


def _words(point: StockPoint) -> Text:
    if point.verdict == "as the rule says":
        return styled(("as the rule says", "green"))
    if point.verdict == "not as the rule says":
        return styled((f"the rule has {point.rule}", "red"))
    return styled((point.verdict or "", "red" if point.verdict == "changed" else ""))

# SPDX-License-Identifier: Apache-2.0
"""The output of `nccltune verify`: a proof, or a comparison of a program without and with rules."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.text import Text

from nccltune.app.program_run import ProgramStart
from nccltune.app.verify import VerifyPlan
from nccltune.app.verify_program import ProgramProof
from nccltune.cli.measure_screen import VerifyScreen
from nccltune.cli.output import (
    hanging,
    hint,
    is_json,
    next_step,
    note,
    plain_table,
    print_json,
    stderr,
    stdout,
    styled,
)
from nccltune.cli.progress import seconds_words
from nccltune.cli.rule_screen import proof_tables
from nccltune.cli.verbosity import is_quiet
from nccltune.measure.experiments.ab.speed import WALL
from nccltune.model.scale import Scale, count
from nccltune.model.sizes import format_bytes
from nccltune.prove.edit import before_path
from nccltune.prove.job import JobProof
from nccltune.prove.judge import MOST_ROUNDS
from nccltune.prove.result import Proof
from nccltune.prove.stock import StockPoint, StockProof
from nccltune.report.proof import build_proof
from nccltune.report.words import range_text, time_text
from nccltune.study.files import Study


class ProgramScreen(VerifyScreen):
    """Prints the progress of the runs of a program on stderr."""

    def starting(self, which: str, command: str, start: ProgramStart) -> None:
        """Print the command of the first round, and the progress of the later ones."""
        if start.is_first_round:
            note(f"run        {which} the plugin: {command}")
            return
        left = f"; at most {seconds_words(start.left_s)} left" if start.left_s is not None else ""
        note(f"run        {start.number} of at most {start.most}: {which} the plugin{left}")

    def output(self, line: bytes) -> None:
        """Print a line of the program unchanged."""
        if not is_quiet():
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()

    def last_words(self, lines: Sequence[str]) -> None:
        """Print the last lines of a failed run's output."""
        for line in lines:
            stderr().print(f"  {line}", soft_wrap=True)


def show_program_plan(program: Sequence[str], rounds: int) -> None:
    """Print how often a program would be started."""
    if is_json():
        print_json({"program": list(program), "rounds": rounds, "starts": 2 * rounds})
        return
    note(
        f"would start {2 * rounds} times at most, without and with the plugin in "
        f"{count(rounds, 'round')}: {' '.join(program)}"
    )
    note("it ends early where every rule is decided, or where no gain can be measured")


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
    where = f"{count(sizes, 'size')} of the study and at the edges of the rules"
    if plan.is_of_job:
        where = f"{count(sizes, 'size')} of the job and of the edges of its rules"
    out.print(
        f"Would measure {count(len(plan.rules), 'rule')} against the default, at the {where}. "
        "Nothing was measured or written."
    )


def show_proof_in_full(proof: Proof, study: Study, *, is_changed: bool) -> None:
    """Print a proof, every rule, the next step, and if it is changed, the configurations."""
    out = stdout()
    built = build_proof(proof)
    out.print(f"{'verify':<11}{built.sentence}")
    out.print(f"{'measured':<11}{built.how}", style="dim")
    proof_tables(built, out)
    if is_changed:
        words = f"Changed {study.config_path}; as it was: {before_path(study.config_path)}"
        out.print(words, soft_wrap=True)
    next_step("nccltune report", study.path)


def program_document(result: ProgramProof) -> dict[str, Any]:
    """Return the JSON document of a program's runs: `deployed.json`, and the proof."""
    document: dict[str, Any] = msgspec.to_builtins(result.deployed)
    proof = None if result.proof is None else msgspec.to_builtins(result.proof)
    job = None if result.job is None else msgspec.to_builtins(result.job)
    return {**document, "unmeasured": result.unmeasured, "proof": proof, "job": job}


def show_program(result: ProgramProof, study: Study) -> None:
    """Print what NCCL ran without and with the plugin, and the gains if they were measured."""
    _show_deployed(result.deployed, result.reach, is_last_round=result.proof is not None)
    if result.job is not None:
        _show_job(result.job)
        return
    if result.proof is None:
        hanging(stdout(), "gains      ", 11, f"not measured: {result.unmeasured}")
        return
    stdout().print()
    show_proof_in_full(result.proof, study, is_changed=result.is_changed)
    is_open = any(item.verdict == "open" for item in result.proof.rules)
    if is_open and result.proof.reason == "done" and result.proof.rounds < MOST_ROUNDS:
        hint(f"to decide the others: the same command with --rounds {MOST_ROUNDS}")


_JOB_STYLE = {"proven": "bold green", "no": "bold yellow"}


def _show_job(job: JobProof) -> None:
    """Print whether a job is faster with the rules, and what was read of it."""
    out = stdout()
    words = ": ".join(filter(None, (job.why, job.gain_text)))
    lead = (f"{job.verdict:<11}", _JOB_STYLE.get(job.verdict, "bold"))
    if job.gain is not None:
        words += f", in {count(job.pairs, 'pair')} of starts in alternating order"
        words += "; one start with the rules failed, and was repeated" if job.failed else ""
    hanging(out, lead, 11, words)
    if job.metric is not None and job.default is not None and job.tuned is not None:
        words = f"{job.metric}: {job.default:.4g} without the rules, {job.tuned:.4g} with them"
        if job.metric == WALL:
            words += " (s); nothing that is known states a speed: name it with --metric"
        elif job.left_out:
            words += f" (medians; the first {job.left_out} of {job.values} values of a start are "
            words += "warm-up and left out)"
        if job.gain and job.ratio and f"{job.gain:.3f}" != f"{job.ratio:.3f}":
            words += "; the gain is the mean over the pairs, not the ratio of these two medians, "
            words += f"{job.ratio:.3f}x"
        hanging(out, "read       ", 11, words)
    if job.sent:
        hanging(out, ("sent       ", "yellow" if job.sent_differs else ""), 11, job.sent)
    if job.in_nccl:
        hanging(out, "in NCCL    ", 11, job.in_nccl)
    hanging(
        out,
        "states     ",
        11,
        "the rules keep theirs: this is on the file as a whole, for this job",
    )
    if job.reason == "failed":
        hint("next: if the rules are not the cause: the same command with --anew")
    if job.harms:
        out.print("for this job: do not deploy")
    if job.verdict == "not sure":
        words = "the same command with more --rounds goes on"
        if job.reason == "budget":
            words = "the budget is spent: the same command with a larger --budget goes on"
        elif job.coarse:
            words = "let the program print more digits, or name another number with --metric"
        hint(f"next: {words}")


def _show_deployed(proof: StockProof, reach: str, *, is_last_round: bool) -> None:
    out = stdout()
    after = proof.after
    loaded = "not loaded"
    if after.config_hashes:
        loaded = (
            f"loaded, content {after.config_hashes[0]}: {after.applying} of "
            f"{count(after.rules or 0, 'rule')} for {Scale(after.nodes or 0, after.ranks or 0)}"
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
    table = plain_table("<", ">size", ">without", ">with", "<ran without", "<ran with", "<")
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
        words = "Times are of one run each, not paired."
        if is_last_round:
            words = "Times are of the last round; the gains below are of all rounds."
        out.print(words, style="dim")


def _time(time_us: float | None) -> str:
    return "" if time_us is None else time_text(time_us)


def _words(point: StockPoint) -> Text:
    if point.verdict == "as the rule says":
        return styled(("as the rule says", "green"))
    if point.verdict == "not as the rule says":
        return styled((f"the rule has {point.rule}", "red"))
    return styled((point.verdict or "", "red" if point.verdict == "changed" else ""))

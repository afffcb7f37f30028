# SPDX-License-Identifier: Apache-2.0
"""Print rules and proofs in a few lines, for `nccltune auto`, `demo` and `tune`."""

from rich.console import Console

from nccltune.cli.output import hanging
from nccltune.model.numbers import gain_text, size_form
from nccltune.model.rule import RuleState
from nccltune.model.scale import count
from nccltune.prove.result import Proof
from nccltune.report.data import Report
from nccltune.report.proof import build_proof
from nccltune.report.terminal import proof_tables
from nccltune.report.verdict import firm_rules
from nccltune.report.words import interval_text, per_size_text, range_text, sms_text, where_text
from nccltune.study.files import Study
from nccltune.tune.result import RuleEvidence, TunedGroup, Tuning


def rules_text(tuning: Tuning) -> str:
    """Return a summary of the rules.

    For example `3 rules · expected: all-reduce 1.40x between 2 and 256 KiB · 41 of 51 sizes left
    alone`.
    """
    gains = []
    for group in tuning.groups:
        if group.expected_gain is not None:
            sizes = sorted({size for item in firm_rules(group) for size in item.sizes})
            where = where_text(sizes, [row.bytes for row in group.decisions])
            gains.append(f"{_name(group)} {gain_text(group.expected_gain)} {where}")
    parts = [counted_rules(tuning)]
    parts += [f"expected: {', '.join(gains)}"] if gains else []
    measured, alone, other = _without_a_rule(tuning)
    parts += [f"{alone} of {measured} sizes left alone"] if alone or not other else []
    return " · ".join(parts + ([f"{other} of {measured} sizes not compared"] if other else []))


def counted_rules(tuning: Tuning) -> str:
    """Return the number of rules, and how many of them are candidates or proven.

    For example `4 candidates, none proven` or `3 rules, 1 of them a candidate`.
    """
    rules = len(tuning.rules)
    states = [item.state for group in tuning.groups for item in group.rules]
    candidates = states.count(RuleState.CANDIDATE)
    if candidates and candidates == len(states):
        return f"{count(rules, 'candidate')}, {'none' if rules > 1 else 'not'} proven"
    proven = states.count(RuleState.PROVEN)
    parts = [count(rules, "rule")]
    parts += [f"{proven} of them proven"] if proven else []
    parts += [f"{candidates} of them only {'a candidate' if candidates == 1 else 'candidates'}"] * (
        candidates > 0
    )
    return ", ".join(parts)


def left_alone_words(tuning: Tuning) -> str:
    """Return a sentence on how many sizes have no rule; empty if all have one."""
    sizes, alone, other = _without_a_rule(tuning)
    parts = [f"Left alone on purpose: {alone} of {sizes} sizes."] if alone else []
    return " ".join(parts + ([f"Not compared: {other} of {sizes} sizes."] if other else []))


def _without_a_rule(tuning: Tuning) -> tuple[int, int, int]:
    """Return the number of sizes, of those left alone on purpose, and of those not compared."""
    left = [item for group in tuning.groups for item in group.left_alone]
    return (
        sum(len(group.decisions) for group in tuning.groups),
        sum(item.sizes for item in left if item.compared),
        sum(item.sizes for item in left if not item.compared),
    )


def show_rules(tuning: Tuning, out: Console) -> None:
    """Print a summary, and each rule with its expected gain and the SMs that it uses."""
    hanging(out, "tune       ", 11, rules_text(tuning))
    for group in tuning.groups:
        form = size_form(
            end for item in group.rules for end in (item.rule.min_bytes, item.rule.max_bytes)
        )
        for item in group.rules:
            sizes = range_text(item.rule.min_bytes, item.rule.max_bytes, "-", form)
            what = f"{_name(group)} {sizes}  {item.rule.choice.label}  "
            hanging(out, f"{'rule':<11}", 11, what + rule_words(item))


def _name(group: TunedGroup) -> str:
    calls = f" ({group.calls_title})" if group.calls_title else ""
    return group.collective.prose + calls


def rule_words(item: RuleEvidence) -> str:
    """Return a rule's gain with its interval, its gains by size, its sureness and its SMs as text.

    For example `1.21x  95 % CI 1.15-1.28  (per size 1.03-1.43)  sure  SMs 16 (default 24)`.
    """
    if item.gain is None:
        return f"{item.state}  {item.reason}"
    parts = [gain_text(item.gain), interval_text(item.gain_low, item.gain_high)]
    per_size = per_size_text(item.least, item.most)
    parts += [f"({per_size})"] if per_size else []
    proven = "" if item.proven_gain is None else f" {gain_text(item.proven_gain)}"
    parts += [f"{item.state}{proven}", sms_text(item.channels, item.default_channels)]
    return "  ".join(part for part in parts if part)


def show_verdict(report: Report, study: Study, out: Console) -> None:
    """Print the verdict, and the path of the report."""
    out.print()
    hanging(out, "verdict    ", 11, report.verdict)
    out.print(f"report     {study.report_path}", soft_wrap=True)


def show_proof(proof: Proof | None, out: Console) -> None:
    """Print the result of a proof and its most important sizes."""
    if proof is None:
        out.print("verify     no rules, so there is nothing to verify")
        return
    built = build_proof(proof)
    hanging(out, "verify     ", 11, built.sentence)
    proof_tables(built, out, brief=True)

# SPDX-License-Identifier: Apache-2.0
"""Print rules and proofs in a few lines, for `nccltune auto`, `demo` and `tune`."""

from rich.console import Console

from nccltune.cli.output import hanging
from nccltune.model.scale import count
from nccltune.prove.result import Proof
from nccltune.report.data import Report
from nccltune.report.proof import build_proof
from nccltune.report.terminal import proof_tables
from nccltune.report.verdict import written
from nccltune.report.words import (
    gain_text,
    interval_text,
    per_size_text,
    range_text,
    size_form,
    sms_text,
    where_text,
)
from nccltune.study.files import Study
from nccltune.tune.result import RuleEvidence, TunedGroup, Tuning


def rules_text(tuning: Tuning) -> str:
    """Return a summary of the rules.

    For example `3 rules · expected: all-reduce 1.40x between 2 and 256 KiB · 41 of 51 sizes left
    alone`.
    """
    gains = []
    for group in tuning.groups:
        if written(group) and group.expected_gain is not None:
            sizes = sorted({size for item in written(group) for size in item.sizes})
            where = where_text(sizes, [row.bytes for row in group.decisions])
            name = _name(group)
            gains.append(f"{name} {gain_text(group.expected_gain)} {where}")
    decided = [row for group in tuning.groups for row in group.decisions]
    alone = sum(row.choice is None for row in decided)
    parts = [count(len(tuning.rules), "rule")]
    parts += [f"expected: {', '.join(gains)}"] if gains else []
    return " · ".join([*parts, f"{alone} of {len(decided)} sizes left alone"])


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
    parts = ["gain unknown" if item.gain is None else gain_text(item.gain)]
    parts.append(interval_text(item.gain_low, item.gain_high))
    per_size = per_size_text(item.least, item.most)
    parts += [f"({per_size})"] if per_size else []
    parts.append("sure" if item.sure else "not sure")
    parts += [] if item.written else ["not written"]
    parts.append(sms_text(item.channels, item.default_channels))
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

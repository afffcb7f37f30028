# SPDX-License-Identifier: Apache-2.0
"""Print rules and proofs, for `nccltune auto`, `demo`, `tune`, `verify` and `report`."""

from rich.console import Console

from nccltune.cli.output import hanging, stdout, styled
from nccltune.model.numbers import gain_text, size_form
from nccltune.model.rule import RuleState
from nccltune.model.scale import count
from nccltune.prove.result import Proof
from nccltune.report.data import ProofGroupRow, ProofReport, ProofRuleRow, ProofSizeRow, Report
from nccltune.report.proof import build_proof
from nccltune.report.remarks import EDGE_NOTE, GAIN_NOTE
from nccltune.report.verdict import firm_rules
from nccltune.report.words import (
    interval_text,
    per_size_text,
    range_text,
    sms_text,
    time_text,
    where_text,
)
from nccltune.study.files import Study
from nccltune.tune.result import RuleEvidence, TunedGroup, Tuning, ran_instead

_NARROW = 66
"""On a terminal with fewer columns, a row takes two lines."""


def rules_text(tuning: Tuning) -> str:
    """Return `3 rules · expected: all-reduce 1.40x between 2 and 256 KiB · 41 of 51 sizes left
    alone`."""
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
    """Return `4 candidates, none proven` or `3 rules, 1 of them a candidate`."""
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


def show_tuning(tuning: Tuning) -> None:
    """Print the rules and the sizes without a rule, in a block for each collective and scale."""
    for group in tuning.groups:
        _show_group(group)
    for words in tuning.wrong:
        hanging(stdout(), ("wrong      ", "bold red"), 11, words)


def _show_group(group: TunedGroup) -> None:
    out = stdout()
    heading = (
        f"{group.collective.value:<14}{group.scale}, "
        f"{group.calls_title + ', ' if group.calls_title else ''}"
        f"{count(len(group.decisions), 'size')}, {count(group.rounds, 'round')}"
    )
    if all(row.default_us is None for row in group.decisions):
        heading += ", default not measured"
    out.print(styled((heading, "bold")))
    lines = []
    for item in group.rules:
        replaced = ran_instead([row for row in group.decisions if row.bytes in item.sizes])
        instead = f"  instead of {', '.join(replaced)}" if replaced else ""
        rule = item.rule
        words = rule_words(item) + instead
        lines.append((rule.min_bytes, rule.max_bytes, rule.choice.label, words))
    lines += [(item.min_bytes, item.max_bytes, "default", item.reason) for item in group.left_alone]
    form = size_form(end for low, high, _, _ in lines for end in (low, high))
    for low, high, choice, words in sorted(lines):
        sizes, style = range_text(low, high, "-", form), "dim" if choice == "default" else ""
        if out.width < _NARROW:
            out.print(styled(f"  {sizes}  ", (choice, "bold")))
            hanging(out, "    ", 4, words, style)
        else:
            first, rest = form(low), sizes.removeprefix(form(low)).strip()
            lead = f"{first:>9} {rest:<11} {choice:<14}  "
            hanging(out, lead, len(lead), words, style)
    for item in group.rules:
        if item.state is RuleState.CANDIDATE and item.gain is not None:
            words = f"{range_text(item.rule.min_bytes, item.rule.max_bytes, '-', form)}: "
            words += item.reason + (
                f"; runs that decide: {item.decided_by}" if item.decided_by else ""
            )
            hanging(out, (f"{'candidate':<11}", "yellow"), 11, words)


def rule_words(item: RuleEvidence) -> str:
    """Return `1.21x 95 % CI 1.15-1.28 (per size 1.03-1.43) sure SMs 16 (default 24)`."""
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


def proof_tables(proof: ProofReport, out: Console, *, brief: bool = False) -> None:
    """Print the most informative sizes, then the rules; if `brief`, those that fail."""
    if proof.replay and not brief:
        hanging(out, ("replay     ", "dim"), 11, f"of {proof.replay}", "yellow")
    if proof.remark:
        hanging(out, ("note       ", "dim"), 11, proof.remark, "yellow")
    alike = False
    shown = [(group.label, rows) for group in proof.groups if (rows := informative_proof(group))]
    for label, rows in shown:
        form = size_form(row.bytes for row in rows)
        out.print(styled("\n", (label, "bold")))
        if out.width < _NARROW:
            head = f"{'size':>10}{'gain':>8}   95 % CI\n{'':>4}default -> tuned  choice"
        else:
            head = f"{'size':>10}{'default':>12}{'tuned':>17}{'gain':>8}   {'95 % CI':<12}choice"
        out.print(styled((head, "dim")))
        for row in rows:
            _show_size(out, form(row.bytes), row)
        alike |= len({form(row.bytes) for row in rows}) < len(rows)
    if shown:
        out.print()
        hanging(out, "", 0, GAIN_NOTE, "dim")
    if alike:
        hanging(out, "", 0, EDGE_NOTE, "dim")
    rules = [rule for rule in proof.rules if not brief or rule.verdict != "holds"]
    if rules:
        out.print()
    for rule in rules:
        _show_proven_rule(out, rule)


def informative_proof(group: ProofGroupRow) -> list[ProofSizeRow]:
    """Return the most informative sizes of a proof.

    By range of one choice they are its ends, the largest gain, and a neighbour on each side; always
    what is slower, undecided or not the default's.
    """
    rows = group.sizes
    if not any(row.choice for row in rows):
        return [row for row in rows if row.verdict == "not alike"]
    kept = {
        index for index, row in enumerate(rows) if row.verdict in ("slower", "not alike", "open")
    }
    runs: list[list[int]] = []
    for index, row in enumerate(rows):
        if index and rows[index - 1].choice == row.choice:
            runs[-1].append(index)
        else:
            runs.append([index])
    for run in runs:
        if rows[run[0]].choice:
            best = max(run, key=lambda index: rows[index].gain or 0.0)
            kept |= {run[0] - 1, run[0], best, run[-1], run[-1] + 1}
    return [row for index, row in enumerate(rows) if index in kept]


def _show_size(out: Console, size: str, row: ProofSizeRow) -> None:
    if row.default_us is None or row.tuned_us is None:
        hanging(out, (f"{size:>10}   ", "dim"), 13, row.words, "dim")
        return
    is_alone = row.verdict == "left alone"
    colour = {"slower": "red", "not alike": "red", "faster": "green"}.get(row.verdict, "dim")
    note = "" if row.verdict in ("faster", "left alone", "alike") else row.words
    default, tuned = time_text(row.default_us), time_text(row.tuned_us)
    gain = ("unknown" if row.gain is None else f"{row.gain:.2f}x", colour)
    low, high = row.gain_low, row.gain_high
    interval = "" if low is None or high is None else f"{low:.2f}-{high:.2f}"
    choice = (row.words, "dim") if is_alone else (row.choice or "", "")
    if out.width < _NARROW:
        out.print(styled(f"{size:>10}", (f"{gain[0]:>8}", colour), f"   {interval}"))
        out.print(styled(f"{'':>4}{default} -> {tuned}  ", choice))
        if note:
            hanging(out, "    ", 4, note, colour)
        return
    cells = styled(
        f"{size:>10}{default:>12}{tuned:>17}",
        (f"{gain[0]:>8}", colour),
        (f"   {interval:<12}", "dim" if is_alone else ""),
        choice,
        (f"  {note}" if note else "", colour),
    )
    cells.rstrip()
    out.print(cells)


def _show_proven_rule(out: Console, row: ProofRuleRow) -> None:
    colour = {"holds": "", "removed": "red"}.get(row.verdict, "yellow")
    form = size_form((row.min_bytes, row.max_bytes))
    parts = [f"{row.group} {range_text(row.min_bytes, row.max_bytes, '-', form)} {row.choice}"]
    if row.gain is not None:
        parts += [gain_text(row.gain), interval_text(row.gain_low, row.gain_high)]
        per_size = per_size_text(row.least, row.most)
        parts += [f"({per_size})"] if per_size else []
        parts += [f"expected {row.expected:.2f}x"] if row.expected is not None else []
    words = "  ".join(part for part in parts if part)
    hanging(out, (f"{row.verdict:<12}", "dim"), 12, words, colour)
    if row.reason:
        hanging(out, " " * 12, 12, row.reason, "dim")

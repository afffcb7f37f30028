# SPDX-License-Identifier: Apache-2.0
"""Make the rows and sentences of a proof for the page and the terminal."""

from nccltune.model.numbers import counted, percent_text
from nccltune.prove.result import Proof, ProvenSize, RemovedRule, RuleProof
from nccltune.report import words
from nccltune.report.data import ProofGroupRow, ProofReport, ProofRuleRow, ProofSizeRow

_VERDICTS = {
    "faster": "faster",
    "alike": "no slower",
    "slower": "slower",
    "open": "not decided",
    "left alone": "left alone",
    "not alike": "not what the default ran",
    "unverified": "not measured",
}
_REASONS = {
    "budget": "The budget was spent before everything was decided; the same command goes on.",
    "interrupted": "It was interrupted; the same command goes on.",
}


_DIFFERS = "Proven and expected gains differ: verify measures again, in rounds of its own."
_DIFFERS_BETWEEN = (
    "Proven and expected gains differ: verify also measures the edges of each range, where the "
    "gain is smallest, and sizes in between, in rounds of its own."
)


def build_proof(proof: Proof) -> ProofReport:
    """Return the rows and sentences of a proof."""
    rules = [_rule(item) for item in proof.rules]
    rules += [_dropped(item) for item in proof.dropped]
    order = [group.collective.prose for group in proof.groups]
    order += [row.group for row in rules]
    return ProofReport(
        sentence=sentence(proof),
        how=_how(proof),
        remark=_remark(proof),
        replay=proof.replay and words.printable(proof.replay),
        holds=proof.holding == len(proof.rules) and not proof.slower,
        rules=sorted(rules, key=lambda row: (order.index(row.group), row.min_bytes)),
        groups=[
            ProofGroupRow(
                ", ".join(filter(None, (group.collective.prose, group.calls_title))),
                group.noise,
                group.floor,
                [_size(size) for size in group.sizes],
            )
            for group in proof.groups
        ],
    )


def sentence(proof: Proof) -> str:
    """Return a summary: `2 of 3 rules hold · 0 sizes slower · noise floor 1.1 %`."""
    removed = sum(item.narrowed is None for item in proof.dropped)
    total = len(proof.rules) + removed
    parts = [f"{proof.holding} of {counted(total, 'rule')} hold"]
    if total == 1:
        parts = ["the rule holds"] if proof.holding else ["the rule does not hold"] * removed
    for number, what in (
        (removed, "removed"),
        (len(proof.dropped) - removed, "narrowed"),
        (sum(item.verdict == "open" for item in proof.rules), "not decided"),
        (sum(item.verdict == "unverified" for item in proof.rules), "not verifiable here"),
    ):
        parts += [f"{number} {what}"] if number else []
    parts.append(f"{counted(proof.slower, 'size')} slower")
    other = sum(size.verdict == "not alike" for group in proof.groups for size in group.sizes)
    parts += [f"{counted(other, 'size')} without a rule not left alone"] if other else []
    parts.append(f"noise floor {percent_text(proof.noise)}")
    return " · ".join(parts)


def _how(proof: Proof) -> str:
    """Return the extent of the measurement: `61 sizes, 24 of them new, in 4 to 12 rounds`."""
    sizes = [size for group in proof.groups for size in group.sizes if size.rounds]
    between = sum(size.between for size in sizes)
    rounds = sorted({size.rounds for size in sizes}) or [0]
    span = f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else str(rounds[0])
    noun = "round" if rounds[-1] == 1 else "rounds"
    what = " of the job" if proof.workload else ""
    return f"{counted(len(sizes), 'size')}{what}, {between} of them new, in {span} {noun}"


def _remark(proof: Proof) -> str | None:
    lost = sum(size.verdict == "unverified" for group in proof.groups for size in group.sizes)
    parts = [_REASONS[proof.reason]] if proof.reason in _REASONS else []
    if lost:
        where = "in this recording" if proof.replay else "here"
        parts.append(f"{counted(lost, 'size')} could not be measured {where}.")
    if any(map(_differs, proof.rules)):
        has_new = any(size.between for group in proof.groups for size in group.sizes)
        parts.append(_DIFFERS_BETWEEN if has_new else _DIFFERS)
    return " ".join(parts) or None


def _differs(item: RuleProof) -> bool:
    if item.expected is None or item.gain_low is None or item.gain_high is None:
        return False
    return not item.gain_low <= item.expected <= item.gain_high


def _rule(item: RuleProof) -> ProofRuleRow:
    rule = item.rule
    return ProofRuleRow(
        group=rule.collective.prose,
        min_bytes=rule.min_bytes,
        max_bytes=rule.max_bytes,
        choice=rule.choice.label,
        verdict=item.verdict,
        reason=item.reason,
        expected=item.expected,
        gain=item.gain,
        gain_low=item.gain_low,
        gain_high=item.gain_high,
        least=item.least,
        most=item.most,
        sizes=item.sizes,
        between=item.between,
        rounds=item.rounds,
    )


def _dropped(item: RemovedRule) -> ProofRuleRow:
    rule = item.rule
    reason = item.reason
    if item.narrowed is not None:
        left = words.range_text(item.narrowed.min_bytes, item.narrowed.max_bytes, "-")
        reason = f"{reason}; kept for {left}"
    return ProofRuleRow(
        group=rule.collective.prose,
        min_bytes=rule.min_bytes,
        max_bytes=rule.max_bytes,
        choice=rule.choice.label,
        verdict="removed" if item.narrowed is None else "narrowed",
        reason=reason,
        expected=None,
        gain=None,
        gain_low=None,
        gain_high=None,
        least=None,
        most=None,
        sizes=0,
        between=0,
        rounds=0,
    )


def _size(size: ProvenSize) -> ProofSizeRow:
    verdict = _VERDICTS[size.verdict]
    return ProofSizeRow(
        bytes=size.bytes,
        choice=size.choice,
        between=size.between,
        verdict=size.verdict,
        words=f"{verdict}: {words.printable(size.note)}" if size.note else verdict,
        rounds=size.rounds,
        default_us=size.default_us,
        tuned_us=size.tuned_us,
        gain=size.gain,
        gain_low=size.gain_low,
        gain_high=size.gain_high,
        ran=size.ran,
    )
